"""The arithmetic of the demo on sums: curves, the comparison and its uncertainty, and where credit fell."""

import json

import numpy as np
import pytest
import torch

from tempo_trl.demo.results import GROUP as ROWS_OF_A_GROUP
from tempo_trl.demo.results import ROWS, accuracy_curve, difference
from tempo_trl.demo.slips import Generation, as_ids, most_varied_group, slip_shares
from tempo_trl.demo.sums_show import comparison, slip_sentence, verdict
from tempo_trl.report.terminal_tree import terminal_tree
from tempo_trl.runs.curves import Curve

from ..report.recorded import HAND_REWARDS, HAND_TREE, HAND_WORKED
from .order_runs import shown

PROMPT = "7+5-3?"
GROUP = Generation([PROMPT] * 4, HAND_WORKED, torch.tensor(HAND_REWARDS))


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


def test_tokens_are_those_of_the_completions_or_of_the_trees_where_a_shared_one_counts_once(tmp_path):
    evaluations = [{"step": 0, "eval_reward": 0.4}, {"step": 2, "eval_reward": 0.5}, {"step": 4, "eval_reward": 0.6}]
    sampled = [{"step": step, "completions/mean_length": 30.0} for step in (1, 3)]
    entries = [evaluations[0], sampled[0], {"step": 2, "loss": 0.0}, evaluations[1], sampled[1], *evaluations[2:]]
    grown = [entry | ({"rollout/generated_tokens": 100.0} if entry in sampled else {}) for entry in entries]
    for history, generation in ((entries, 30 * ROWS), (grown, 100 * ROWS // ROWS_OF_A_GROUP)):
        (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        assert accuracy_curve(tmp_path).tokens.tolist() == [0, generation, 2 * generation]


def test_a_curve_is_cut_between_two_evaluations():
    cut = Curve(*np.array([[0, 1, 2], [0, 100, 200], [0, 10, 20], [0.4, 0.6, 0.9]])).at(150)
    assert cut.value.tolist() == pytest.approx([0.4, 0.6, 0.75])
    assert (cut.steps[-1], cut.seconds[-1]) == (1.5, 15)


def test_the_table_has_a_row_per_method_with_means_over_seeds():
    curves = {
        "grpo": [curve([0.4, 0.65]), curve([0.4, 0.77])],
        "treerpo_entropy": [curve([0.4, 0.8]), curve([0.4, 1.0])],
    }
    printed = shown(comparison(curves, 12_345))
    assert "…" not in printed
    grpo, treerpo = [" ".join(line.split()) for line in printed.splitlines() if "RPO" in line]
    # 1,024 samples. To 70% linearly: 0.30 / 0.31 and 0.3 / 0.5 of 5 steps, two of which are a generation.
    assert grpo == "GRPO 40.0 71.0 (68.1 to 73.7) 2.4 never 10 s"
    assert treerpo == "TreeRPO (hierarchical) 40.0 90.0 (88.1 to 91.7) 1.5 2.5 10 s"


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


def test_the_negative_td_credit_of_the_hand_worked_group_falls_on_its_slips():
    shares = slip_shares(GROUP, 4, max_length=48)
    (td_slip, td_all), (outcome_slip, outcome_all) = shares
    assert td_slip == pytest.approx(1 / 2 + 2 / 3)
    assert td_all == pytest.approx(td_slip)
    assert outcome_slip == pytest.approx(2 * 1 / 2)
    assert outcome_all == pytest.approx(2 * 14 * 1 / 2)  # 13 characters and EOS
    assert slip_sentence(shares).startswith("100% of TEMPO's negative TD credit is on the first slip")
    assert slip_sentence(shares).endswith("it is 7%.")


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
    return [line.rstrip() for line in shown(terminal_tree(pieces, rewards, "root")).splitlines()]


def test_the_terminal_tree_of_the_hand_worked_group():
    printed = drawn([list(answer) for answer in HAND_WORKED], HAND_REWARDS)
    assert printed == ["root   n=4  V=0.50", *HAND_TREE]


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
