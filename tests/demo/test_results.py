"""The demonstration's arithmetic: curves, the comparison and its uncertainty, and where credit fell."""

import json

import numpy as np
import pytest
import torch
from rich.console import Console

from tempo_trl.demo.results import accuracy_curve, difference, wilson
from tempo_trl.demo.show import slip_sentence, verdict
from tempo_trl.demo.slips import Generation, as_ids, most_varied_group, slip_shares
from tempo_trl.report.terminal_tree import terminal_tree
from tempo_trl.runs.curves import Curve

PROMPT = "7+5-3?"
ANSWERS = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]
GROUP = Generation([PROMPT] * 4, ANSWERS, torch.tensor([1.0, 0.0, 0.0, 1.0]))


def curve(accuracy):
    points = np.arange(len(accuracy), dtype=float)
    return Curve(5 * points, 7 * points, 10 * points, np.array(accuracy))


def test_a_curve_counts_steps_and_seconds_of_training_but_not_of_evaluation(tmp_path):
    history = [
        {"step": 0, "eval_reward": 0.4, "eval_runtime": 100.0},
        {"step": 1, "step_time": 2.0},
        {"step": 2, "step_time": 1.0},
        {"step": 2, "eval_reward": 0.5},
        {"step": 2, "eval_reward": 0.9},  # the evaluation after training, at the same step
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    read = accuracy_curve(tmp_path)
    assert (read.steps.tolist(), read.seconds.tolist(), read.value.tolist()) == ([0, 2], [0, 3], [0.4, 0.5])


def test_the_time_to_an_accuracy_lies_between_the_evaluations_around_it():
    rising = curve([0.4, 0.6, 0.5, 0.8])
    assert rising.time_to(0.5, "steps") == pytest.approx(2.5)
    assert rising.time_to(0.7, "seconds") == pytest.approx(20 + 10 * 2 / 3)
    assert rising.time_to(0.3, "steps") == 0.0
    assert rising.time_to(0.9, "steps") is None


def test_the_difference_of_one_seed_has_the_noise_of_sampling_alone():
    mean, low, high = difference([curve([0.5, 0.8])], [curve([0.5, 0.7])], n=100)
    assert mean == pytest.approx(0.1)
    assert high - mean == pytest.approx(1.96 * np.sqrt(0.8 * 0.2 / 100 + 0.7 * 0.3 / 100), rel=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_the_difference_of_several_seeds_is_paired_and_has_students_interval():
    ours, baseline = [curve([0.9]), curve([0.7]), curve([0.8])], [curve([0.8]), curve([0.65]), curve([0.65])]
    mean, low, high = difference(ours, baseline, n=512)
    assert mean == pytest.approx(0.1)
    # differences 0.10, 0.05, 0.15: standard deviation 0.05; Student's 97.5% quantile with two degrees of freedom
    assert high - mean == mean - low == pytest.approx(4.3027 * 0.05 / np.sqrt(3), rel=1e-4)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        ((0.1, 0.02, 0.18), "TEMPO is ahead by more than noise"),
        ((-0.1, -0.18, -0.02), "GRPO is ahead by more than noise"),
        ((0.1, -0.02, 0.22), "not more than noise"),
    ],
)
def test_the_verdict_follows_the_interval(gain, words):
    assert words in verdict("TEMPO", gain, seeds=3)


def test_wilson_interval_of_a_hand_worked_share():
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_the_negative_td_credit_of_the_hand_worked_group_falls_on_its_slips():
    (td_slip, td_all), (outcome_slip, outcome_all) = slip_shares(GROUP, 4, max_length=48)
    assert td_slip == pytest.approx(1 / 2 + 2 / 3)
    assert td_all == pytest.approx(td_slip)
    assert outcome_slip == pytest.approx(2 * 1 / 2)
    assert outcome_all == pytest.approx(2 * 14 * 1 / 2)  # 13 characters and EOS
    assert "100% of TEMPO's negative TD credit is on the first slip" in slip_sentence(
        np.array([[td_slip, td_all], [outcome_slip, outcome_all]])
    )
    assert "it is 7%" in slip_sentence(np.array([[td_slip, td_all], [outcome_slip, outcome_all]]))


def test_a_truncated_completion_has_no_end_token():
    ids, lengths = as_ids(["12", "123"], max_length=3)
    assert lengths.tolist() == [3, 3]
    assert ids.tolist() == [[49, 50, 0], [49, 50, 51]]


def test_the_group_that_is_shown_has_right_and_wrong_answers_of_many_kinds():
    dull = Generation([PROMPT] * 4, ["7+5=2;2-3=9#9"] * 4, torch.ones(4))
    both = Generation(
        dull.prompts + GROUP.prompts, dull.completions + GROUP.completions, torch.cat([dull.rewards, GROUP.rewards])
    )
    assert most_varied_group(both, 4) == slice(4, 8)


def drawn(pieces, rewards):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal_tree(pieces, rewards, "root"))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_terminal_tree_of_the_hand_worked_group():
    assert drawn([list(answer) for answer in ANSWERS], GROUP.rewards.tolist()) == [
        "root   n=4  V=0.50",
        "└── 7+5=   n=4  V=0.50",
        "    ├── 2;2-3=   n=3  V=0.67  TD=+0.17",
        "    │   ├── 8#8   n=1  V=0.00  TD=-0.67",
        "    │   └── 9#9   n=2  V=1.00  TD=+0.33",
        "    └── 3;3-3=0#0   n=1  V=0.00  TD=-0.50",
    ]


def test_the_terminal_tree_shows_where_one_ends_and_another_goes_on():
    assert drawn([["a"], ["a", "b"], []], [1.0, 0.0, 1.0]) == [
        "root   n=3  V=0.67",
        "├── (end)   n=1  V=0.67",  # of the state, which the others share
        "└── a   n=2  V=0.50  TD=-0.17",
        "    ├── (end)   n=1  V=0.50",
        "    └── b   n=1  V=0.00  TD=-0.50",
    ]


def test_the_terminal_tree_takes_token_text_for_text():
    assert "[red]" in drawn([["[red]", "[/]"]], [1.0])[1]
