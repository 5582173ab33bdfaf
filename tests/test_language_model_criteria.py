"""The studies of tasks with criteria: all arms see the same checks."""

import json
from collections import Counter

import numpy as np
import pytest

from benchmarks.language_model.__main__ import main
from benchmarks.language_model.cells import Cells
from benchmarks.language_model.criteria import CRITERIA, functions, kept_open
from benchmarks.language_model.figure import MORE_STYLES, draw
from benchmarks.language_model.study import ORDERS, STUDIES
from benchmarks.learning.figures import STYLES
from benchmarks.tasks import prompts_of
from tempo_trl.rewards import SpanReward
from tests.tasks.answers import answer_of

from .test_language_model_study import shown

TASKS = [study.task for study in STUDIES.values() if study.has_criteria and not study.start]


# Checks


@pytest.fixture(params=TASKS)
def answered(request):
    """A task, and the keywords of its functions for three answers to each of two prompts: right, cut and none."""
    rows = prompts_of(request.param, "test").to_list()[:2]
    keywords = {name: [row[name] for row in rows for _ in range(3)] for name in rows[0] if name != "prompt"}
    right = [answer_of(request.param, row) for row in rows]
    texts = [text for own in right for text in (own, own[: len(own) // 2], "no idea")]
    return request.param, keywords | {"completions": [[{"role": "assistant", "content": text}] for text in texts]}


def logged(function, keywords):
    """What a function returns, and what it logs."""
    metrics = {}
    return function(**keywords, log_metric=metrics.__setitem__), metrics


def test_all_arms_get_the_same_checks_and_log_the_same_metrics(answered):
    task, keywords = answered
    own = functions(task)
    texts = [completion[0]["content"] for completion in keywords["completions"]]
    spans, metrics = logged(own[task], keywords | {"texts": texts})
    by_name = [{span.name: span.reward for span in row} for row in spans]
    means = [np.mean([*row.values()]) for row in by_name]
    assert {len(row) for row in by_name} == {CRITERIA[task]}
    assert [row.keys() for row in by_name] == [by_name[0].keys()] * 3 + [by_name[3].keys()] * 3  # two prompts
    assert metrics["fields/mean"] == pytest.approx(np.mean(means))
    assert metrics["fields/all"] == pytest.approx(1 / 3)
    for name in by_name[0]:
        assert metrics[f"fields/{name}"] == pytest.approx(np.mean([row[name] for row in by_name if name in row]))
    paid, same = logged(own[f"{task}_mean"], keywords)
    assert paid == pytest.approx(means)
    assert same == metrics
    paid, same = logged(own[f"{task}_all"], keywords)
    assert paid == [1.0, 0.0, 0.0] * 2
    assert same == metrics
    each = [logged(own[f"{task}_{k}"], keywords) for k in range(CRITERIA[task])]
    assert np.mean([paid for paid, _ in each], axis=0) == pytest.approx(means)
    assert [same for _, same in each] == [metrics] + [{}] * (len(each) - 1)


def test_what_is_kept_open_counts_solved_prompts_and_different_right_texts():
    right, wrong = [SpanReward("a", 1.0), SpanReward("b", None)], [SpanReward("a", 1.0), SpanReward("b", 0.5)]
    judged, prompts = [right, right, right, wrong, right, wrong], ["one"] * 4 + ["two"] * 2
    found = kept_open(judged, ["x", "x", "y", "z", "x", "y"], prompts)
    assert found == {"pass": 1.0, "distinct": 3 / 6}
    assert kept_open(judged[3:4], ["z"], ["one"]) == {"pass": 0.0, "distinct": 0.0}


# Which cell runs


def test_the_arms_that_matter_most_come_first_with_all_of_their_rates_and_seeds(tmp_path):
    cells = Cells(ORDERS, tmp_path / "cells.json")
    cells.rows = [cell_row(ORDERS.cell("grpo", rate, 100), 0.9 - abs(rate - 2e-5)) for rate in (1e-5, 2e-5, 4e-5)]
    planned = [cell for cell in ORDERS.sweep(cells.to_try, cells.best_two) if cell not in cells]
    assert planned[0] == ORDERS.cell("grpo", 2e-5, 101)
    assert [cell.arm for cell in planned[:4]] == ["grpo", "grpo", "span_credit", "span_credit"]
    assert all(not ORDERS.arms[cell.arm].rated_as for cell in planned)
    assert [*ORDERS.arms][:6] == ["grpo", "span_credit", "tempo", "gdpo", "prefix_baseline", "span_credit lambda 1"]


def test_an_arm_that_differs_in_one_thing_has_the_rate_of_the_arm_that_it_differs_from(tmp_path):
    cells = Cells(ORDERS, tmp_path / "cells.json")
    rows = [(rate, seed) for rate in (1e-5, 2e-5, 4e-5) for seed in (100, 101)]
    cells.rows = [cell_row(ORDERS.cell("span_credit", rate, seed), 0.9 - abs(rate - 2e-5)) for rate, seed in rows]
    assert cells.rates() == dict.fromkeys(("span_credit", "span_credit lambda 0.9"), 2e-5)


def test_a_failed_run_does_not_stop_the_others_and_no_cell_runs_twice(tmp_path, monkeypatch, capsys):
    ran = []

    def train(study, cell, *_):
        ran.append(cell)
        if cell.arm == "grpo":
            raise RuntimeError(f"{cell.name} failed.")

    monkeypatch.setattr("benchmarks.language_model.__main__.train", train)
    monkeypatch.setattr(
        "benchmarks.language_model.__main__.numbers",
        lambda study, cell, _: cell_row(cell, 0.9 - 1000 * abs(cell.learning_rate - 2e-5)),
    )
    path = tmp_path / "cells.json"
    arguments = ["sweep", "--task", "orders", "--arms", "grpo,tempo", "--jobs", "2"]
    assert main([*arguments, "--numbers", str(path), "--output", str(tmp_path)]) == 1
    assert "2 runs failed. Repeat the command to resume them." in capsys.readouterr().out
    rates = Counter((row["arm"], row["seed"]) for row in json.loads(path.read_text())["cells"])
    assert rates == {("tempo", 100): 3, ("tempo", 101): 2}
    assert len(ran) == len(set(ran)) == 2 + 5
    assert main([*arguments, "--numbers", str(path), "--output", str(tmp_path)]) == 1  # what failed runs again
    assert len(ran) == 7 + 2
    assert json.loads(path.read_text())["provenance"]["weights"].startswith("SmolLM2-135M-Instruct in 4 bits")


def test_runs_that_end_after_the_study_was_stopped_are_added(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    here = "benchmarks.language_model.__main__"
    monkeypatch.setattr(f"{here}.train", lambda *_: None)
    monkeypatch.setattr(f"{here}.numbers", lambda study, cell, _: cell_row(cell, 0.5))
    monkeypatch.setattr(f"{here}.wait", stop)
    path = tmp_path / "cells.json"
    arguments = ["sweep", "--task", "orders", "--jobs", "2", "--numbers", str(path), "--output", str(tmp_path)]
    assert main(arguments) == 130
    assert len(json.loads(path.read_text())["cells"]) == 2


# Tables and figure


def cell_row(cell, reward):
    """A cell whose rewards rise to a given one."""
    rise = [reward * (1 - 0.25**step) for step in range(1, ORDERS.steps + 1)]
    flat = {"seconds": 20.0, "length": 45.0, "entropy": 0.25, "td_share": None}
    names = {"arm": cell.arm, "learning_rate": cell.learning_rate, "seed": cell.seed, "steps": cell.steps}
    series = {name: [value] * ORDERS.steps for name, value in flat.items()}
    held_out = {"city": reward, "date": 0.5, "mean": (reward + 0.5) / 2, "all": 0.25}
    fields = {"city": rise, "date": [0.5] * ORDERS.steps}
    return names | series | {"reward": rise, "all": rise, "fields": fields, "held_out": held_out, "commit": "a" * 40}


@pytest.fixture
def measured(tmp_path):
    """Cells of a whole study of three arms, in which span credit earns more, and the last one less than GRPO."""
    cells = Cells(ORDERS, tmp_path / "cells.json")
    for arm, gain in {"grpo": 0.0, "span_credit": 0.125, "prefix_baseline": -0.125}.items():
        for seed in (*ORDERS.sweep_seeds, *ORDERS.seeds):
            rates = [4e-5] if seed in ORDERS.seeds else [2e-5, 4e-5, 8e-5]
            for rate in rates:
                row = cell_row(ORDERS.cell(arm, rate, seed), 0.5 + gain - (rate != 4e-5) / 8)
                cells.add(row, {"machine": "two cores"})
    return cells


def test_the_tables_say_what_an_arm_is_ahead_by_phase_by_criterion_and_held_out(measured):
    assert set(measured.rates().values()) == {4e-5}
    lines = [line.split("  ") for line in shown(measured) if line.startswith("  span_credit ")]
    lines = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    ahead = "+12.5 [+12.5, +12.5]"  # in the last four steps, where 1 - 0.25 ** step is nearly 1
    (phases,) = [line for line in lines if line.count(ahead) == 2]
    assert phases[-4:] == ["62.5", ahead, "62.5", ahead]
    (by_field,) = [line for line in lines if line[-2:] == ["1", "0"]]
    assert by_field[2] == "+0.0 [+0.0, +0.0]"
    assert ["span_credit", "62", "50", "56", "25"] in lines
    (short,) = [line for line in lines if line[1] == "4e-05"]
    assert short[4:] == ["56", "+6.2 [+6.2, +6.2]", "25", "+0.0 [+0.0, +0.0]"]
    assert ["span_credit", "0.25", "45", "0.25"] in lines


def test_the_figure_has_a_style_for_each_arm_and_is_drawn(measured, tmp_path):
    for study in STUDIES.values():
        known = STYLES | MORE_STYLES
        assert len({known[arm] for arm in study.arms}) == len(study.arms)
    assert draw(measured, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
