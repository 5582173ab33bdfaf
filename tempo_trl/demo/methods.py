"""All methods side by side: accuracy at equal numbers of sampled tokens, with its spread over seeds."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tempo_trl.demo.recipe import GROUP, ROWS
from tempo_trl.demo.results import Curve, difference, read_curve
from tempo_trl.demo.task import HELD_OUT
from tempo_trl.methods import METHODS
from tempo_trl.runs.log import training_log
from tempo_trl.version import __version__

BASELINE = "grpo"


@dataclass(frozen=True)
class TokenCurve:
    """A run's accuracy curve, and the tokens it had sampled to train on at each evaluation, a shared one once."""

    curve: Curve
    tokens: np.ndarray

    def at(self, tokens: float) -> Curve:
        """The curve up to a number of sampled tokens; its last point lies between two evaluations."""
        kept = self.tokens < tokens
        columns = (self.curve.generations, self.curve.seconds, self.curve.accuracy)
        cut = [np.append(c[kept], np.interp(tokens, self.tokens, c)) for c in columns]
        return Curve(self.curve.method, self.curve.seed, *cut)


def read_token_curve(method: str, seed: int, folder: Path, rows: int = ROWS, group: int = GROUP) -> TokenCurve:
    """The curve that a run's `trainer_state.json` holds, resumed or not.

    A generation of the run has `rows` completions, in groups of `group`.
    """
    history = training_log(folder)
    sampled = sampled_tokens(history, rows, group)
    evaluated = dict.fromkeys(entry["step"] for entry in history if "eval_reward" in entry)
    tokens = [sum(count for at, count in sampled.items() if at <= step) for step in evaluated]
    return TokenCurve(read_curve(method, seed, folder), np.array(tokens))


def sampled_tokens(history: list[dict], rows: int = ROWS, group: int = GROUP) -> dict[int, float]:
    """Tokens of each generation, by the step that logged them in TRL's `log_history`; a tree's shared ones count once.

    A generation has `rows` completions, in groups of `group`.
    """
    sampled = {}
    for entry in history:
        if "rollout/generated_tokens" in entry:
            sampled[entry["step"]] = rows // group * entry["rollout/generated_tokens"]
        elif "completions/mean_length" in entry:
            sampled[entry["step"]] = rows * entry["completions/mean_length"]
    return sampled


def show_methods(runs: list, folder: Path, console: Console) -> None:
    """Print the table of methods and write its numbers to methods.json in `folder`."""
    methods = list(dict.fromkeys(run.method for run in runs))
    curves = {m: [read_token_curve(m, run.seed, run.folder) for run in runs if run.method == m] for m in methods}
    budget = min(curve.tokens[-1] for own in curves.values() for curve in own)
    rows = {method: [curve.at(budget) for curve in own] for method, own in curves.items()}
    console.print(method_table(rows, budget))
    _write(curves, rows, budget, folder / "methods.json")
    console.print(f"Numbers: {folder / 'methods.json'}", highlight=False)


def method_table(rows: dict[str, list[Curve]], budget: float) -> Table:
    """A row a method, at `budget` sampled tokens: mean over the seeds, their range, and the paired difference."""
    seeds = len(next(iter(rows.values())))
    table = Table(
        title=f"Accuracy in percent after {budget / 1000:,.0f} thousand sampled tokens, {HELD_OUT} problems",
        caption=f"means and ranges over {seeds} seed(s); paired differences with 95% intervals",
        box=SIMPLE_HEAD,
    )
    for heading in ("method", "accuracy", "range", f"- {METHODS[BASELINE].label}", "generations", "time"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for method, own in rows.items():
        table.add_row(METHODS[method].label if method in METHODS else method, *_cells(own, rows.get(BASELINE)))
    return table


def _cells(own: list[Curve], baseline: list[Curve] | None) -> tuple[str, ...]:
    final = [curve.accuracy[-1] for curve in own]
    versus = ""
    if baseline is not None and own is not baseline:
        mean, _, high = (100 * number for number in difference(own, baseline, HELD_OUT))
        versus = f"{mean:+.1f} ± {high - mean:.1f}"
    generations, seconds = (np.mean([getattr(c, unit)[-1] for c in own]) for unit in ("generations", "seconds"))
    spread = f"{100 * min(final):.1f} to {100 * max(final):.1f}"
    return f"{100 * np.mean(final):.1f}", spread, versus, f"{generations:.1f}", f"{seconds:.0f} s"


def _write(curves: dict[str, list[TokenCurve]], rows: dict[str, list[Curve]], budget: float, path: Path) -> None:
    """All numbers behind the table, for other programs."""
    runs = [
        {
            "method": method,
            "seed": curve.curve.seed,
            "tokens": curve.tokens.tolist(),
            "accuracy": curve.curve.accuracy.tolist(),
            "seconds": curve.curve.seconds.tolist(),
            "accuracy_at_budget": float(at.accuracy[-1]),
        }
        for method, own in curves.items()
        for curve, at in zip(own, rows[method], strict=True)
    ]
    numbers = {"tempo_trl": __version__, "sampled_tokens": float(budget), "runs": runs}
    path.write_text(json.dumps(numbers, indent=2))
