"""Every command prints its table and writes a figure and its numbers; what figures say is taken from records."""

import json
import re

import numpy as np
import pytest

from benchmarks.estimators.__main__ import QUESTIONS, QUICK_BATCHES, main
from benchmarks.estimators.drawing import spans
from benchmarks.estimators.measure import SEED, sampled
from benchmarks.estimators.questions import adaptive, signals, trees
from benchmarks.estimators.rollouts import Independent
from benchmarks.estimators.task import Task

ROWS = {
    "where": 12,
    "adaptive": 3,
    "trees": 15,
    "signals": 3,
    "agents": 13,
}


def finite(record: dict) -> bool:
    """Whether every pair of a figure and its error is of numbers."""
    pairs = [value for value in record.values() if isinstance(value, list) and len(value) == 2]
    return bool(pairs) and all(isinstance(number, (int, float)) for pair in pairs for number in pair)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_short_form_of_every_question_prints_its_table_and_writes_its_evidence(question, tmp_path, capsys):
    main([question, "--quick", "--output", str(tmp_path / "new")])
    printed = capsys.readouterr().out
    assert len(re.findall(r"-?\d\.\d+ ± \d+\.\d+", printed)) >= 2
    assert (tmp_path / "new" / f"estimators_{question}.png").read_bytes().startswith(b"\x89PNG")
    evidence = json.loads((tmp_path / "new" / f"estimators_{question}.json").read_text())
    assert len(evidence["records"]) == ROWS[question]
    assert all(finite(record) for record in evidence["records"])
    origin = evidence["provenance"]
    assert origin["command"] == f"python -m benchmarks.estimators {question} --quick"
    assert origin["batches"] == QUICK_BATCHES and origin["seed"] == 0 and origin["machine"] and origin["torch"]
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", origin["commit"])


def test_the_same_command_gives_the_same_numbers(tmp_path):
    for folder in ("one", "two"):
        main(["where", "--quick", "--output", str(tmp_path / folder)])
    one, two = (json.loads((tmp_path / f / "estimators_where.json").read_text()) for f in ("one", "two"))
    assert one["records"] == two["records"]


def test_random_tasks_are_tasks_and_differ():
    rng = np.random.default_rng(0)
    drawn = [adaptive.random_task(rng, seed) for seed in range(20)]
    assert len({task for task, _ in drawn}) == 20
    assert all(0.05 < task.tree().values[0] < 0.99 for task, _ in drawn)


def test_prefixes_explain_an_early_decision_and_not_a_late_one():
    early, late = (signals.logged(sampled(Task((at,)).tree(), Independent(16), 20, SEED)) for at in (0, 9))
    assert early["prefix_explained"] > 0.9 and late["prefix_explained"] < 0.1
    assert 0 < early["td_share"] < 1 and 0 < late["td_share"] < 1


def test_quarters_hold_every_task_in_order():
    records = [{"td_share": share} for share in (0.5, 0.1, 0.4, 0.2, 0.3)]
    bands = signals.bands(records, "td_share")
    assert [(low, high, len(rows)) for low, high, rows in bands] == [
        (0.1, 0.2, 2),
        (0.3, 0.3, 1),
        (0.4, 0.4, 1),
        (0.5, 0.5, 1),
    ]


def test_the_tasks_above_and_below_are_counted_by_two_standard_errors():
    pairs = [(0.1, 0.04), (0.1, 0.06), (-0.1, 0.04), (-0.2, 0.3)]
    records = [{"X - GRPO cosine": pair, "X gain": (1 + pair[0], 0.1)} for pair in pairs]
    above, below, median, least, worst = adaptive.counts(records, "X")
    assert (above, below, median) == ("1", "1", "1.00")  # the median of 0.8, 0.9, 1.1 and 1.1
    assert least == "0.80 ± 0.10" and worst == "-0.2000 ± 0.3000"


def test_bars_of_ratios_are_factors():
    values, lengths = spans([(2.0, np.log(2))])  # two errors of the logarithm: 2 ln 2 / 2 = ln 2
    assert (values - lengths[0]).item() == pytest.approx(1) and (values + lengths[1]).item() == pytest.approx(4)


def test_an_estimate_is_drawn_as_biased_where_bias_is_a_quarter_of_its_error():
    assert trees.is_biased({"bias": (0.3, 0.1), "error": (1.0, 0.1)})
    assert not trees.is_biased({"bias": (0.2, 0.01), "error": (1.0, 0.1)})
    assert not trees.is_biased({"bias": (0.3, 0.2), "error": (1.0, 0.1)})
