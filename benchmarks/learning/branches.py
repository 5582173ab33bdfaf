"""Accuracy by the branches of a group's prefix tree (the TEMPO paper's figure 7).

The paper's number of branches k counts the edges of the tree: the children of nodes that have several. Two views. Of
the recorded trees of TEMPO's own runs: the mean reward of the groups that it trained on, in the first and in the last
third of the budget. Of held-out problems: their accuracy under the start and under TEMPO's and GRPO's final policies,
by the branches that each problem had under the start. Branches are counted on one set of samples and accuracy on
another, so that no problem is in a class for having been lucky.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.learning.arms import Study
from benchmarks.learning.figures import GREY, STYLES, finish, name_lines, points, save
from benchmarks.learning.results import Measured, Result
from benchmarks.learning.starts import Start, rewards

GROUP = 8
HELD_OUT = 512
END = -1  # no token has this id
COMPARED = ("tempo", "grpo")
COLOURS = {"first third": "#56B4E9", "last third": "#0072B2", "start": GREY}


def branches(completions: Sequence[Sequence]) -> int:
    """Edges of a group's prefix tree: the children of nodes that have several, 0 where all completions are alike.

    A completion that ends where others go on is a child of its own, as if EOS followed.
    """
    from tempo_trl.credit.prefix_tree import build_prefix_tree

    rows = [[ord(token) for token in one] if isinstance(one, str) else one for one in completions]
    lengths = np.array([len(row) + 1 for row in rows])  # with the end, a token of its own
    ids = np.full((len(rows), lengths.max()), END)
    for own, row in zip(ids, rows, strict=True):
        own[: len(row)] = row
    children = build_prefix_tree(ids, lengths, len(rows)).num_children()
    return int(children[children > 1].sum())


def recorded_groups(folder: Path) -> list[tuple[int, int, float]]:
    """Step, branches and mean reward of every group whose tree a run has recorded."""
    from tempo_trl.report import read_trees

    trees = read_trees(folder, columns=["step", "group", "completion_ids", "reward"])
    return [
        (int(step), branches(rows["completion_ids"].tolist()), float(rows["reward"].mean()))
        for (step, _), rows in trees.groupby(["step", "group"])
    ]


def by_branches(ks: np.ndarray, values: np.ndarray, least: int = 10) -> dict[int, float]:
    """Mean of `values` by number of branches, for the numbers that at least `least` have."""
    classes, counts = np.unique(ks, return_counts=True)
    return {int(k): float(values[ks == k].mean()) for k, n in zip(classes, counts, strict=True) if n >= least}


def training_view(result: Result) -> dict[str, dict[int, Measured]]:
    """Mean reward of trained groups by branches, early and late; a number of branches that every run has."""
    views = {}
    for name, low, high in (("first third", 0, 1 / 3), ("last third", 2 / 3, 1)):
        runs = [_third(recorded_groups(run.folder), low, high) for run in result.runs]
        views[name] = _over_seeds([by_branches(*run) for run in runs])
    return views


def _third(groups: Sequence[tuple[int, int, float]], low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    last = max(step for step, *_ in groups) + 1
    kept = [(k, reward) for step, k, reward in groups if low * last <= step < high * last]
    return np.array([k for k, _ in kept]), np.array([reward for _, reward in kept])


def _over_seeds(runs: Sequence[dict[int, float]]) -> dict[int, Measured]:
    common = sorted(set.intersection(*(set(run) for run in runs)))
    return {k: Measured.of([run[k] for run in runs]) for k in common}


def held_out_view(results: Sequence[Result], problems: int = HELD_OUT) -> dict[str, dict[int, Measured]]:
    """Accuracy on held-out problems by their branches under the start: the start's, and an entry an arm."""
    start = results[0].runs[0].start
    ks = np.array([branches(group) for group in _groups(start, start.folder, problems, seed=1)[0]])
    before = by_branches(ks, _groups(start, start.folder, problems, seed=2)[1])
    views = {"start": _over_seeds([before])}
    for result in results:
        after = [_groups(start, run.folder, problems, seed=3 + run.seed)[1] for run in result.runs]
        views[result.arm.label] = _over_seeds([by_branches(ks, accuracy) for accuracy in after])
    return views


def _groups(start: Start, policy: Path, problems: int, seed: int) -> tuple[list[list[str]], np.ndarray]:
    """Eight completions of each held-out problem, and each problem's share of right ones."""
    from tempo_trl.demo.policy import load_policy
    from tempo_trl.demo.warm_start import sampled_completions

    asked = [p for p in start.task.draw(problems, random.Random(0), "test") for _ in range(GROUP)]
    texts = sampled_completions(*load_policy(policy), asked, seed, max_length=start.max_completion_length)
    paid = np.array(rewards(start.task, asked, texts)).reshape(problems, GROUP).mean(axis=1)
    return [texts[i : i + GROUP] for i in range(0, len(texts), GROUP)], paid


def carry_out(study: Study, experiment, result: Result, path: Path, caption: str) -> dict:
    """Draw both views; their numbers. The policies of the second are those of study chain's final runs."""
    chain = experiment.study("chain")
    arms = tuple(arm for arm in chain.arms if arm.label in COMPARED)
    finals, _ = experiment.measure(replace(chain, arms=arms))
    views = {"training": training_view(result), "held_out": held_out_view(finals)}
    _draw(views, study, len(result.runs), path, caption)
    return {"by_branches": {name: _as_json(view) for name, view in views.items()}}


def _as_json(view: dict[str, dict[int, Measured]]) -> dict:
    return {name: {str(k): vars(measured) for k, measured in line.items()} for name, line in view.items()}


def _draw(views: dict, study: Study, seeds: int, path: Path, caption: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(9, 4), layout="constrained")
    words = {"training": "mean reward of TEMPO's groups", "held_out": "accuracy on held-out problems"}
    for axes, (name, view) in zip(figure.subplots(1, 2), views.items(), strict=True):
        ends = []
        for i, (label, line) in enumerate(view.items()):
            colour = COLOURS.get(label) or STYLES[label][0]
            at = np.array(list(line)) + 0.06 * i
            points(axes, at, list(line.values()), colour)
            if line:
                ends.append((at[-1], list(line.values())[-1].iqm, label, colour))
        axes.set_xlabel("branches of the group's tree" if name == "training" else "branches under the start")
        axes.set_ylabel(words[name])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        finish(axes)
        if ends:
            name_lines(axes, ends)
            axes.set_xlim(left=-0.5)
    figure.suptitle(f"{study.title} ({seeds} seed(s), 95% bootstrap)", fontsize=11)
    save(figure, path, caption)
