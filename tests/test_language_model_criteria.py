"""The studies of tasks with criteria: all arms see the same checks, and their credit is what its loops say."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.language_model import credit_functions
from benchmarks.language_model.__main__ import main
from benchmarks.language_model.cells import Cells
from benchmarks.language_model.criteria import CRITERIA, functions
from benchmarks.language_model.figure import MORE_STYLES, draw
from benchmarks.language_model.runs import command
from benchmarks.language_model.study import ORDERS, STUDIES
from benchmarks.learning.figures import STYLES
from tempo_trl import Batch
from tempo_trl.credit.spans import Criteria
from tempo_trl.data import load_prompts
from tempo_trl.methods.span_credit import span_credit

from .test_language_model_study import shown

TASKS = [study.task for study in STUDIES.values() if study.has_criteria]


# Checks


@pytest.fixture(params=TASKS)
def answered(request):
    """A task, and the keywords of its functions for three answers to each of two prompts: right, cut and none."""
    rows = load_prompts(request.param, "test[:2]").to_list()
    keywords = {name: [row[name] for row in rows for _ in range(3)] for name in rows[0] if name != "prompt"}
    right = [row["solution"] for row in rows]
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


def test_completions_of_a_prompt_are_compared_in_one_criterion_by_each_function(answered):
    task, keywords = answered
    texts = [completion[0]["content"] for completion in keywords["completions"]]
    names = [sorted({span.name for span in row}) for row in functions(task)[task](texts=texts, **keywords)]
    assert names[0] == names[1] == names[2]
    assert names[3] == names[4] == names[5]


def test_gdpo_gets_as_many_functions_as_there_are_criteria(tmp_path):
    words = command(ORDERS, ORDERS.cell("gdpo", 4e-5, 0), tmp_path)
    own = [word for word in words if word.startswith("benchmarks.language_model.criteria.orders_")]
    assert own == [f"benchmarks.language_model.criteria.orders_{k}" for k in range(9)]


# Credit

REWARDS = torch.tensor(
    [[1, 0, 1], [0, 0, 1], [1, 1, 1], [1, 0, 0], [0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 1]]
).float()
STARTS = torch.tensor([[0, 1, 2], [0, 1, -1], [0, 2, 3], [1, 2, 0]] * 2)
IDS = torch.arange(32).reshape(8, 4)


def batch(rewards=REWARDS, starts=STARTS):
    """Two groups of four completions of four tokens, whose criteria have a place of one token, or none."""
    criteria = Criteria(
        tuple("abc")[: rewards.shape[1]],
        rewards,
        starts[..., None],
        torch.where(starts < 0, -1, starts + 1)[..., None],
        torch.ones(rewards.shape[1], dtype=torch.float64),
    )
    ones, outcome = torch.ones_like(IDS), torch.tensor([1.0, -0.05, 0.5, -1.5, 0.0, 0.0, 0.0, 0.0])
    numbers = {"rewards": outcome, "rewards_per_func": outcome[:, None], "advantages": outcome}
    masks = {"loss_mask": ones.bool(), "counted": ones[:, 0].bool(), "turns": 0 * ones, "steps": 0 * ones}
    return Batch(
        completion_ids=IDS,
        lengths=torch.full((8,), 4),
        num_generations=4,
        prompts=torch.arange(2).repeat_interleave(4),
        observations=ones[:, :1],
        columns={},
        training=True,
        criteria=criteria,
        **numbers,
        **masks,
    )


def in_loops(rewards, places, scale_of):
    """The sum over criteria of deviations over a scale, on each criterion's place, or everywhere without one."""
    found = torch.zeros(len(rewards), 4)
    for first in (0, 4):
        group = rewards[first : first + 4]
        for i in range(first, first + 4):
            for k in range(rewards.shape[1]):
                advantage = (rewards[i, k] - group[:, k].mean()) / scale_of(group, k)
                for t in range(4):
                    if places[i][k] in (-1, t):
                        found[i, t] += advantage
    return found


def test_one_scale_is_the_standard_deviation_of_all_criteria_of_a_group():
    def scale(group, _):
        deviations = group - group.mean(dim=0)
        return (deviations.square().sum() / (3 * group.shape[1])).sqrt() + 1e-4

    expected = in_loops(REWARDS, STARTS.tolist(), scale)
    torch.testing.assert_close(credit_functions.one_scale(batch()).advantages, expected, rtol=1e-5, atol=1e-5)


def test_one_scale_of_one_criterion_is_span_credit():
    one = batch(REWARDS[:, :1], STARTS[:, :1])
    expected = span_credit(one, 0.0, with_outcome=False).advantages
    torch.testing.assert_close(credit_functions.one_scale(one).advantages, expected, rtol=1e-4, atol=1e-4)


def test_one_scale_counts_criteria_that_judged_and_is_defined_for_one_completion():
    unjudged = torch.cat([REWARDS, torch.full((8, 1), torch.nan)], dim=1)
    with_none = batch(unjudged, torch.cat([STARTS, STARTS[:, :1]], dim=1))
    with_none = replace(with_none, criteria=with_none.criteria._replace(names=tuple("abcd")))
    expected = credit_functions.one_scale(batch()).advantages
    torch.testing.assert_close(credit_functions.one_scale(with_none).advantages, expected)
    alone = replace(batch(), num_generations=1)
    assert not credit_functions.one_scale(alone).advantages.any()


def test_shuffled_places_are_those_of_the_completion_in_another_order():
    one = batch()
    orders = [credit_functions._permutation(*row).tolist() for row in zip(REWARDS, IDS.tolist(), strict=True)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len({tuple(order) for order in orders}) > 2
    shuffled = [[STARTS[row, k].item() for k in order] for row, order in enumerate(orders)]
    expected = in_loops(REWARDS, shuffled, lambda group, k: group[:, k].std() + 1e-4)
    found = credit_functions.shuffled_places(one).advantages
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(found, credit_functions.shuffled_places(one).advantages)
    other = replace(one, completion_ids=IDS + 1)
    assert not torch.equal(found, credit_functions.shuffled_places(other).advantages)


def test_criteria_that_did_not_judge_keep_out_of_the_permutation():
    rewards = REWARDS.clone()
    rewards[:, 1] = torch.nan
    for row, ids in zip(rewards, IDS.tolist(), strict=True):
        assert credit_functions._permutation(row, ids)[1] == 1


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
    cells.rows = [cell_row(ORDERS.cell("grpo", rate, seed), 0.9 - abs(rate - 2e-5)) for rate, seed in rows]
    assert cells.rates() == dict.fromkeys(("grpo", "grpo all or nothing", "grpo with floor"), 2e-5)


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


def test_tasks_with_criteria_have_no_controls():
    with pytest.raises(SystemExit):
        main(["controls", "--task", "orders"])


# Tables and figure


def cell_row(cell, reward):
    """A cell whose rewards rise to a given one."""
    rise = [reward * (1 - 0.25**step) for step in range(1, ORDERS.steps + 1)]
    flat = {"seconds": 20.0, "length": 45.0, "entropy": 0.25, "signal_share": 0.125, "td_share": None}
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
    assert ["span_credit", "62", "50", "56", "25", "+6.2 [+6.2, +6.2]", "+0.0 [+0.0, +0.0]"] in lines
    assert ["span_credit", "0.25", "0.125", "45", "0.25", "0.125"] in lines


def test_the_figure_has_a_style_for_each_arm_and_is_drawn(measured, tmp_path):
    for study in STUDIES.values():
        known = STYLES | MORE_STYLES
        assert len({known[arm] for arm in study.arms}) == len(study.arms)
    assert draw(measured, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
