"""Metrics on batches that are worked by hand."""

import numpy as np
import pytest
import torch

from benchmarks.estimators.estimators import Credit, Estimator, adaptive, tempo
from benchmarks.estimators.measure import WARM_UP, measure
from benchmarks.estimators.metrics import (
    Measured,
    bias,
    cosines,
    difference,
    error,
    gain,
    gradients,
    scale,
    standard_error,
    variance,
)
from benchmarks.estimators.rollouts import Independent, Sample
from benchmarks.estimators.task import Task

from .trees import HAND

TRUE = np.array([[3.0, 0.0], [0.0, 4.0]])  # of length 5
ACROSS = np.array([[4.0, 0.0], [0.0, -3.0]])


def test_an_estimate_along_the_truth_has_cosine_one_and_one_across_it_zero():
    estimates = np.stack([2 * TRUE, -TRUE, ACROSS, TRUE + ACROSS, 0 * TRUE])
    assert cosines(estimates, TRUE) == pytest.approx([1, -1, 0, 0.5**0.5, 0])


def test_what_every_batch_adds_across_the_truth_is_bias_and_a_longer_step_is_none():
    estimates = np.stack([2 * TRUE + ACROSS] * 4)
    # scale 2; |2 TRUE|^2 = 100 and |ACROSS|^2 = 25
    assert scale(estimates, TRUE) == pytest.approx(2)
    assert bias(estimates, TRUE) == pytest.approx(0.25)
    assert variance(estimates, TRUE) == pytest.approx(0)
    assert error(5 * estimates, TRUE) == pytest.approx(0.25)


def test_what_changes_from_batch_to_batch_is_variance_and_taken_off_the_bias():
    estimates = np.stack([TRUE + ACROSS, TRUE - ACROSS])
    # mean TRUE, so scale 1; sum of squares 25 + 25 over n - 1 = 1, against |TRUE|^2 = 25
    assert variance(estimates, TRUE) == pytest.approx(2)
    # the mean lies on the truth, and two batches of this variance would miss it by 50 / 2 in squares
    assert bias(estimates, TRUE) == pytest.approx(-1)


def test_without_bias_its_estimate_is_zero_on_average_and_with_it_right():
    rng = np.random.default_rng(0)
    for size in (0.0, 0.4):
        noise = rng.standard_normal((400, 20, 2, 2))
        found = np.array([bias(TRUE + size * ACROSS + batches, TRUE) for batches in noise])
        assert found.mean() == pytest.approx(size**2, abs=5 * found.std() / 20)
        assert found.std() < 0.2


def test_the_standard_error_of_a_mean_is_the_textbook_s():
    rows = np.random.default_rng(0).standard_normal(20)
    assert standard_error(lambda r: float(r.mean()), rows) == pytest.approx(rows.std(ddof=1) / 20**0.5)


def test_the_gain_is_the_ratio_of_the_errors_and_a_paired_difference_has_no_common_noise():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 2, 2))
    ours, theirs = (TRUE + factor * noise for factor in (1, 2))
    ours, theirs = (Measured(e, cosines(e, TRUE), np.zeros(200)) for e in (ours, theirs))
    value, its_error = gain(ours, theirs, TRUE)
    assert value == pytest.approx(error(theirs.estimates, TRUE) / error(ours.estimates, TRUE))
    assert 3.5 < value < 4.5 and 0 < its_error < 0.5
    assert difference(ours, ours) == (0.0, 0.0)
    assert difference(ours, theirs)[0] > 5 * difference(ours, theirs)[1] > 0


def two_batches() -> Sample:
    """Two batches of one completion each of the tree by hand: 01 with reward 1, and 10 with reward 0."""
    ids = np.array([[0, 1], [1, 0]])
    return Sample(
        torch.from_numpy(ids), torch.tensor([1.0, 0.0]), HAND.nodes(ids), 1, np.array([0, 1, 2]), np.full(2, 2)
    )


def test_an_estimate_is_the_sum_of_advantage_times_score_over_completions():
    credit = Credit(torch.tensor([[2.0, 3.0], [5.0, 7.0]]))
    # Scores: one-hot less the policy, (3/4, 1/4) at first, (1/2, 1/2) after 0, (1/4, 3/4) after 1.
    expected = [
        [[2 * 1 / 4, -2 * 1 / 4], [-3 / 2, 3 / 2]],
        [[-5 * 3 / 4, 5 * 3 / 4], [7 * 3 / 4, -7 * 3 / 4]],
    ]
    assert gradients(HAND, two_batches(), credit) == pytest.approx(np.array(expected))


def test_a_token_outside_the_loss_adds_nothing_and_the_others_count_for_it():
    inside = torch.tensor([[True, False], [True, True]])
    credit = Credit(torch.tensor([[2.0, 3.0], [5.0, 7.0]]), in_loss=inside)
    # The mean over the one token that is left, times the two tokens of a completion.
    assert gradients(HAND, two_batches(), credit)[0] == pytest.approx(np.array([[1, -1], [0, 0]]))


def test_methods_of_one_rollout_see_the_same_batches_whatever_is_measured_beside_them():
    task, iid = Task((0, 2), depth=4), Independent(4)
    methods = {"GRPO": Estimator(iid, tempo(0.0)), "adaptive": Estimator(iid, adaptive())}
    both = measure(task, methods, 5, 200, 3)
    alone = measure(task, {"adaptive": methods["adaptive"]}, 5, 200, 3)
    other = measure(task, {"adaptive": methods["adaptive"]}, 5, 200, 4)
    np.testing.assert_array_equal(both["adaptive"].estimates, alone["adaptive"].estimates)
    assert np.abs(other["adaptive"].estimates - alone["adaptive"].estimates).max() > 0.01
    assert len(both["GRPO"].cosine) == 5 and WARM_UP > 0
