"""`tempo-trl compare RUN_A RUN_B ...`: a table of results, with paired differences and 95% intervals.

Runs of one method that differ in seeds alone are its seeds, and so are those that are given one label. Every method is
compared with GRPO on the same model and data, or without one with the first method on these: results of an evaluation
over the questions that both answered, rewards in training over the seeds that both have.
The output folder gets compare.md and compare.json (fractions of 1).
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tempo_trl.methods import method_label
from tempo_trl.runs.curves import mean_rewards, read_curve
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import changed_settings
from tempo_trl.runs.results import DECODING, Result, evaluation_folder, of_other_weights
from tempo_trl.runs.run import Run, changed_beside_seeds, names_of, place_of, read_runs
from tempo_trl.runs.statistics import interval_over_questions, numbers_by_metric, paired_difference, student_interval

END = 20  # of training, the mean over the last 1/20 of the log: single batches are too noisy
KEY = ["row_id", "source", "prompt_sha256"]  # a question of two runs is the same if these are equal
LONGEST_WORD = 16  # longer ones, such as paths, may be folded
HEADS = ("", "method", "runs", "value", "95 %", "difference", "95 %", "paired over")
Own = list[tuple[Run, Result]]  # the results of a method's runs, one each


def main(runs: Sequence[str], output: str, label: Sequence[str] | None = None) -> int:
    """
    Compare runs, print and write the table, return the exit status.

    Raises:
        ValueError: from [`~tempo_trl.runs.run.read_runs`], or if answers cannot be read.
        OSError: a file cannot be read or written.
    """
    found = read_runs(runs, label)
    methods: dict[str, list[Run]] = {}
    for name, run in zip(label or names_of(found), found, strict=True):
        methods.setdefault(name, []).append(run)
    baselines = {name: baseline_of(own[0], methods) for name, own in methods.items()}
    notes = [note for name, own in methods.items() for note in doubts(name, own)]
    notes += [note for pair in baselines.items() for note in other_differences(*pair, methods)]
    rows = [*_evaluations(methods, baselines, notes), *_rewards(methods, baselines)]
    _write(Path(output), rows, baselines, notes)
    return 0


def baseline_of(run: Run, methods: dict[str, list[Run]]) -> str:
    """The GRPO, else the first of the methods, on a run's model and data. What is unknown may be the same."""

    def is_alike(other: Run) -> bool:
        pairs = (run.model, other.model), (run.trained_on, other.trained_on)
        return all(None in pair or pair[0] == pair[1] for pair in pairs)

    alike = {name: own[0] for name, own in methods.items() if is_alike(own[0])}
    return next((name for name, other in alike.items() if other.method == "grpo"), next(iter(alike)))


def other_differences(name: str, baseline: str, methods: dict[str, list[Run]]) -> Iterator[str]:
    """Warnings about what else than the method differs between the first runs of a method and its baseline."""
    run, other = methods[name][0], methods[baseline][0]
    last, others_last = (max((entry.get("step", 0) for entry in own.log), default=0) for own in (run, other))
    if 0 < last != others_last > 0:
        yield f"{name} ends at step {last:,}, {baseline} at step {others_last:,}."
    changed = changed_settings(run.settings, other.settings, of_both=True)
    told = {*re.findall(r"\w+(?= )", name), "seed", "method"}  # by the name: `beta` in "tempo (beta 0.1)"
    if odd := [key for key in changed if key not in told]:
        yield f"{name} and {baseline} also differ in {', '.join(odd)}."


def doubts(name: str, runs: Sequence[Run]) -> Iterator[str]:
    """Warnings about results of other weights than a run's, and about runs that are not seeds of one training."""
    for run in runs:
        for file, why in of_other_weights(run.results, place_of(run.folder), run.started).items():
            yield f"{run.folder}: {file} is {why}. Remove its evaluation, and evaluate again."
    for run in runs[1:]:
        if odd := changed_beside_seeds(runs[0].settings, run.settings):
            yield f"{runs[0].folder} and {run.folder} count as two seeds of {name}, but differ in {', '.join(odd)}."
    seeds = [run.seed for run in runs if run.seed is not None]
    if len(set(seeds)) < len(seeds):
        yield f"runs of {name} have seeds {seeds}, expected each once. Leave one out, or use --label."


def _evaluations(methods: dict[str, list[Run]], baselines: dict[str, str], notes: list[str]) -> Iterator[dict]:
    """A row per task, metric and method."""
    found: dict[tuple, dict[str, Own]] = {}
    for name, runs in methods.items():
        for run in runs:
            # Of two evaluations of a task the one with more questions. pass@4 of 16 answers is not that of 8.
            best = {(own.task, own.metric, own.k): own for own in sorted(run.results, key=lambda own: own.n)}
            for key, result in best.items():
                found.setdefault(key, {}).setdefault(name, []).append((run, result))
    for (task, metric, k), measured in found.items():
        numbers = {name: _mean_by_question(own) for name, own in measured.items()}
        for name, own in measured.items():
            questions = numbers[name]
            value = float(questions.mean() if questions is not None else np.mean([result.value for _, result in own]))
            interval = own[0][1].interval if len(own) == 1 else None
            if interval is None and questions is not None:
                interval = interval_over_questions(questions)
            of_answers = f" of {k}" * metric.startswith("pass@")
            row, baseline = _row(f"{task} {metric}{of_answers}", name, len(own), value, interval), baselines[name]
            if name != baseline and baseline in measured:
                row |= _paired(value, questions, measured[baseline], numbers[baseline])
            if odd := _differing([*own, *measured.get(baseline, ())]):
                both = " and ".join(dict.fromkeys((name, baseline)))
                notes.append(f"{row['what']}: runs of {both} were evaluated differently: {odd}.")
            yield row


def _mean_by_question(own: Own) -> pd.Series | None:
    """Mean over the runs on the questions that all of them have; None without any, or if answers were not kept."""
    per_run = [numbers_by_question(run.folder, result) for run, result in own]
    if any(numbers is None for numbers in per_run):
        return None
    of_all = pd.concat(per_run, axis=1, join="inner").mean(axis=1)
    return None if of_all.empty else of_all


def numbers_by_question(folder: Path, result: Result) -> pd.Series | None:
    """
    The number of each question, whose mean is `result`, by [`KEY`]; None if the run has no such answers.

    A run's answers are in `RUN/evaluation/{task}.greedy.jsonl` and `{task}.n16.jsonl`, a question a line.

    Raises:
        ValueError: the file does not have a question a line, each once and with equally many answers.
    """
    kind = "greedy" if result.metric == "accuracy" and result.k == 1 else f"n{result.k}"
    path = evaluation_folder(folder) / f"{result.task}.{kind}.jsonl"
    if not path.is_file():
        return None
    try:
        rows = pd.read_json(path, lines=True, dtype=False, convert_dates=False)
        correct = np.array(rows["correct"].tolist(), float)  # None is NaN
        index = pd.MultiIndex.from_frame(rows[KEY])
        if not index.is_unique:
            raise ValueError("a question occurs twice")
        return pd.Series(numbers_by_metric(kind, correct, rows["answers"].tolist())[result.metric], index)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not have a graded question a line ({error}). Evaluate again.") from error


def _paired(value: float, numbers: pd.Series | None, others: Own, theirs: pd.Series | None) -> dict:
    """The difference over the questions of both, or without answers that of the two values."""
    if numbers is not None and theirs is not None:
        pairs = pd.concat([numbers, theirs], axis=1, join="inner")
        if len(pairs):
            difference, *interval = paired_difference(*pairs.to_numpy().T)
            left_out = max(len(numbers), len(theirs)) - len(pairs)
            over = f"{len(pairs)} questions" + f", {left_out} left out" * (left_out > 0)
            return _difference(difference, interval, over)
    return _difference(value - float(np.mean([result.value for _, result in others])))


def _differing(measured: Own) -> str:
    """How measurements differ, such as `temperature 0.7, 1.0`. Settings that are unknown are left out."""
    names = (*DECODING, "n", "thinking", "chat_template_kwargs")
    values = {name: {str(getattr(result, name)) for _, result in measured} - {"None"} for name in names}
    return "; ".join(f"{name} {', '.join(sorted(own))}" for name, own in values.items() if len(own) > 1)


def _rewards(methods: dict[str, list[Run]], baselines: dict[str, str]) -> Iterator[dict]:
    """A row per method with the reward at the end of its trainings."""
    for metric in mean_rewards(run.log for own in methods.values() for run in own):
        ends = {name: _ends(own, metric) for name, own in methods.items()}
        for name, own in ends.items():
            if own:
                mean, *interval = map(float, student_interval(np.array([*own.values()])))
                row, baseline = _row(f"{metric} at the end", name, len(own), mean, interval), baselines[name]
                if name != baseline and ends[baseline]:
                    row |= _paired_by_seed(own, ends[baseline])
                yield row


def _ends(runs: Sequence[Run], metric: str) -> dict[int | Path, float]:
    """The reward at the end of each run that logged it, by its seed, or by its folder if that is unknown."""
    part = END if metric == "reward" else 10**9  # of evaluations the last one
    curves = {run.folder if run.seed is None else run.seed: read_curve(run.log, metric) for run in runs}
    return {seed: float(own.value[-max(1, len(own.value) // part) :].mean()) for seed, own in curves.items() if own}


def _paired_by_seed(own: dict[int | Path, float], others: dict[int | Path, float]) -> dict:
    """The difference over the seeds of both, or without such seeds that of the two means."""
    differences = [own[seed] - others[seed] for seed in own if seed in others]
    if not differences:
        return _difference(float(np.mean([*own.values()]) - np.mean([*others.values()])))
    difference, *interval = map(float, student_interval(np.array(differences)))
    return _difference(difference, interval, f"{len(differences)} seed{'s' * (len(differences) > 1)}")


def _row(what: str, method: str, runs: int, value: float, interval: Sequence[float] | None) -> dict:
    return {"what": what, "method": method, "runs": runs, "value": value, "interval": _known(interval)}


def _difference(difference: float, interval: Sequence[float] | None = None, over: str = "nothing") -> dict:
    return {"difference": difference, "difference_interval": _known(interval), "over": over}


def _known(interval: Sequence[float] | None) -> list[float] | None:
    """The interval; None for that of a single run."""
    return None if interval is None or np.isnan(interval).any() else [float(end) for end in interval]


def _write(folder: Path, rows: list[dict], baselines: dict[str, str], notes: list[str]) -> None:
    theirs = ", ".join(map(method_label, dict.fromkeys(baselines.values())))
    caption = f"Differences from {theirs}. Intervals over questions leave training's randomness out."
    lines = [_cells(row) for row in rows]
    text = [f"| {' | '.join(line)} |" for line in (HEADS, ["---"] * len(HEADS), *lines)]
    text += ["", caption, "", *(f"- {note}" for note in notes)]
    write_atomically(folder / "compare.md", "\n".join(text) + "\n")
    numbers = {"baselines": baselines, "rows": rows, "notes": notes}
    write_atomically(folder / "compare.json", json.dumps(numbers, indent=2, allow_nan=False))
    words = ([word for cell in column for word in cell.split()] for column in zip(HEADS, *lines, strict=True))
    columns = (
        Column(head, overflow="fold", min_width=min(max(map(len, own), default=1), LONGEST_WORD))
        for head, own in zip(HEADS, words, strict=True)
    )
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table, crop=False)  # a number that is cut off would read as another one
    print(caption, *(f"Note: {note}" for note in notes), f"Written to {folder}: compare.md, compare.json", sep="\n")


def _cells(row: dict) -> list[str]:
    numbers = _text(row["value"]), _text(row["interval"])
    difference = _text(row.get("difference"), "+"), _text(row.get("difference_interval"), "+"), row.get("over", "")
    return [row["what"], method_label(row["method"]), str(row["runs"]), *numbers, *difference]


def _text(value: float | list[float] | None, sign: str = "") -> str:
    """A number, or an interval, for the table."""
    ends = value if isinstance(value, list) else [value]
    return "" if value is None else " to ".join(f"{end:{sign}.3f}" for end in ends)
