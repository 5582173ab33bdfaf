"""What the demo on a language model shows: held-out pass rates, answers, a group's tree, credit by token."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tempo_trl.data.instructions import KINDS, generated_rows
from tempo_trl.demo.decisive import decisive_shares
from tempo_trl.demo.results import wilson
from tempo_trl.methods import METHODS, method_colours
from tempo_trl.report.collect import opening_group
from tempo_trl.report.command import report
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.report.terminal_tree import group_tree
from tempo_trl.runs.log import training_log
from tempo_trl.runs.token_text import one_line, readable, shortened
from tempo_trl.runs.trees import recorded_steps

HELD_OUT = 120  # instructions, twelve of each kind, in one batch, so that TRL's mean over batches is that of all
SHOWN_ANSWERS, LONGEST = 5, 200


def show(runs: list, folder: Path, console: Console) -> None:
    """Print tables, answers and credit; write curves.png, results.json and report.html to `folder`."""
    rates, first = {run.method: held_out_rates(run.folder) for run in runs}, runs[0]
    for method, own in rates.items():
        console.print(pass_rates(own, METHODS[method].label))
    console.print(side_by_side(held_out_answers(first.folder)))
    groups = [group for step in recorded_steps(first.folder) for group in recorded_groups(first.folder, step)]
    shares = decisive_shares(groups)
    if groups:
        group = groups[opening_group(groups)]
        console.print(f"\nA group of step {group.step}: {len(group.ids)} answers to one instruction:")
        console.print(group_tree(group))
        console.print(credit_lines(group))
        console.print(shares_sentence(shares))
    draw({run.method: run.rewards() for run in runs}, folder / "curves.png")
    _write(runs, rates, shares, folder / "results.json")
    path = report([run.folder for run in runs], folder / "report.html")
    console.print(f"Curves: {folder / 'curves.png'}   numbers: {folder / 'results.json'}", highlight=False)
    console.print(f"\nCredit per token: open {path} in a browser.", style="bold", highlight=False)


def held_out_rates(folder: Path) -> pd.DataFrame:
    """Pass rates of a run on held-out instructions, `before` and `after`, by kind, and of `all`."""
    evaluations = [entry for entry in training_log(folder) if "eval_reward" in entry]
    after = json.loads((folder / "eval_results.json").read_text())
    rates = {
        when: {kind: entry[f"eval_instructions/{kind}"] for kind in KINDS} | {"all": entry["eval_reward"]}
        for when, entry in (("before", evaluations[0]), ("after", after))
    }
    return pd.DataFrame(rates)


def held_out_answers(folder: Path) -> pd.DataFrame:
    """
    Held-out answers of a run: `instruction`, `kind`, and answer and reward `before` and `after`.

    TRL's table keeps as many rows as a generation has: not all of them, but the same before and after.
    """
    files = sorted((folder / "completions").glob("completions_*.parquet"))
    kinds = {row["instruction"]: row["kind"] for row in generated_rows("test")}
    before, after = (pd.read_parquet(file) for file in (files[0], files[-1]))
    asked = [prompt[-1]["content"] for prompt in before["prompt"]]
    if [prompt[-1]["content"] for prompt in after["prompt"]] != asked:
        raise ValueError(f"{folder} has no answers of the trained policy to the held-out instructions.")
    frame = pd.DataFrame({"instruction": asked, "kind": [kinds[text] for text in asked]})
    for when, table in (("before", before), ("after", after)):
        frame[when] = [completion[-1]["content"] for completion in table["completion"]]
        frame[f"reward_{when}"] = table["instruction_reward"].to_numpy()
    return frame


def pass_rates(rates: pd.DataFrame, label: str) -> Table:
    """Share of the held-out instructions that are followed, before and after, by kind, with intervals."""
    table = Table(
        title=f"{label}: share of {HELD_OUT} held-out instructions followed",
        caption="95% Wilson intervals; three_words is never trained",
        box=SIMPLE_HEAD,
    )
    for heading in ("kind", "n", "before", "after"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind, rate in rates.iterrows():
        n = HELD_OUT if kind == "all" else HELD_OUT // len(KINDS)
        table.add_row(kind, str(n), *(_rate(rate[when], n) for when in ("before", "after")))
    return table


def _rate(rate: float, n: int) -> str:
    low, high = wilson(rate, n)
    return f"{rate:.0%} ({low:.0%} to {high:.0%})"


def side_by_side(answers: pd.DataFrame) -> Table:
    """Held-out instructions with their answers before and after: one per kind, those that changed first."""
    order = answers.assign(same=answers["reward_before"] == answers["reward_after"]).sort_values("same", kind="stable")
    table = Table(title="Held-out instructions", box=SIMPLE_HEAD, show_lines=True)
    for heading in ("instruction", "before", "after"):
        table.add_column(heading, ratio=1, overflow="fold")
    for _, row in order.drop_duplicates("kind").head(SHOWN_ANSWERS).iterrows():
        table.add_row(row["instruction"], *(_marked(row, when) for when in ("before", "after")))
    return table


def _marked(row: pd.Series, when: str) -> Text:
    passed = row[f"reward_{when}"] > 0
    mark = Text("✓ ", style="dodger_blue1") if passed else Text("✗ ", style="dark_orange")
    return mark.append(shortened(one_line(row[when]), LONGEST), style="default")


def credit_lines(group: Group) -> Text:
    """A right and a wrong completion of a group, if it has both, each token in the colour of its credit."""
    scale = max((float(np.abs(own).max()) for own in group.advantages if len(own)), default=0.0) or 1.0
    best, worst = int(np.nanargmax(group.rewards)), int(np.nanargmin(group.rewards))
    text = Text("\nCredit of each token (blue: more likely from now on, orange: less; bold: much):\n")
    for row in dict.fromkeys((best, worst)):
        text.append(f"reward {group.rewards[row]:g}: ")
        for piece, credit in zip(readable(group.tokens[row]), group.advantages[row], strict=True):
            strong = "bold " if abs(credit) > 0.6 * scale else ""
            colour = "grey62" if abs(credit) < 1e-6 else "dodger_blue1" if credit > 0 else "dark_orange"
            text.append(piece.replace("\n", "⏎"), style=strong + colour)
        text.append("\n")
    return text


def shares_sentence(shares: dict[str, np.ndarray]) -> str:
    """A sentence on the share of negative credit on the tokens that broke an instruction."""
    if not shares["outcome"][1]:
        return "No recorded failure has credit at one decisive token."
    td, outcome = (float(own[0] / own[1]) if own[1] else 0.0 for own in (shares["td"], shares["outcome"]))
    return (
        f"{td:.0%} of the negative TD credit of broken instructions is on the token that broke them (the first comma, "
        f"for example); of GRPO's outcome credit, which is spread evenly, it is {outcome:.0%}."
    )


def draw(rewards: dict[str, Sequence[float]], path: Path) -> None:
    """Mean reward of each step, a line per method."""
    figure, colours = Figure(figsize=(6, 3.5), layout="constrained"), method_colours(list(rewards))
    axes = figure.subplots()
    for method, own in rewards.items():
        axes.plot(range(1, len(own) + 1), own, color=colours[method], label=METHODS[method].label, marker=".")
    axes.set(xlabel="steps (8 prompts x 8 completions)", ylabel="mean reward", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.suptitle("SmolLM2-135M-Instruct learns to follow instructions")
    figure.savefig(path, dpi=150)


def _write(runs: list, rates: dict[str, pd.DataFrame], shares: dict[str, np.ndarray], path: Path) -> None:
    """Write all printed numbers as JSON."""
    numbers = {run.method: {"rewards": run.rewards(), "held_out": rates[run.method].to_dict()} for run in runs}
    on_decisive = {name: {"decisive": float(own[0]), "all": float(own[1])} for name, own in shares.items()}
    path.write_text(json.dumps({"runs": numbers, "negative_credit": on_decisive}, indent=2))
