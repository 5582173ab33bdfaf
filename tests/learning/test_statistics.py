"""Interquartile means, bands and ratios, by hand; and the numbers that a result has of runs made by hand."""

import numpy as np
import pytest

from benchmarks.learning.arms import SWEEP_SEEDS, Arm
from benchmarks.learning.chain import Chain
from benchmarks.learning.curves import Curve
from benchmarks.learning.experiment import Experiment, Tried, at_edge, best_rate
from benchmarks.learning.results import Measured, Result
from benchmarks.learning.statistics import interval, iqm, mean_accuracy, ratio_to
from benchmarks.learning.studies import STUDIES


def curve(tokens, accuracy):
    steps = np.arange(len(accuracy), dtype=float)
    return Curve(steps, np.array(tokens, dtype=float), 10 * steps, np.array(accuracy))


def straight(ends, last=100):
    """A run a seed that climbs from 0 to its end in a line."""
    return [curve([0, last], [0.0, end]) for end in ends]


def test_the_interquartile_mean_of_five_is_the_mean_of_the_middle_three():
    assert iqm([0.0, 0.1, 0.2, 0.6, 1.0]) == pytest.approx(0.3)
    assert iqm([0.2, 0.4]) == pytest.approx(0.3)
    assert iqm(np.array([[0.0, 5.0], [3.0, 5.0], [9.0, 5.0], [3.0, 5.0]])).tolist() == [3.0, 5.0]


def test_a_band_resamples_whole_curves():
    """Two seeds that cross: at each point the band is their range."""
    low, high = interval(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert low.tolist() == [0.0, 0.0]
    assert high.tolist() == [1.0, 1.0]


def test_the_mean_accuracy_is_the_area_under_the_curve_up_to_the_budget():
    one = curve([0, 100, 300], [0.4, 0.6, 1.0])
    assert mean_accuracy(one, 100) == pytest.approx(0.5)
    assert mean_accuracy(one, 200) == pytest.approx((50 + 70) / 200)  # 0.8 at 200


def test_pairs_stay_together_where_seeds_are_resampled():
    """Seeds differ by a factor of ten and each pair by exactly two: a paired interval has no width."""
    ours = [curve([0, 100 * 10**i], [0.0, 1.0]) for i in range(2)]
    theirs = [curve([0, 200 * 10**i], [0.0, 1.0]) for i in range(2)]
    ratio = ratio_to(ours, theirs, 0.5, 2000)
    assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(0.5),) * 3
    assert str(ratio) == "0.50 [0.50, 0.50]"


def test_runs_that_never_arrive_are_counted_and_make_the_ratio_a_bound():
    never, half, all_ = straight([0.4, 0.4]), straight([0.4, 1.0]), straight([1.0, 1.0])
    late = ratio_to(half, all_, 0.5, 100)
    assert (late.sign, late.reached, late.baseline_reached, late.seeds) == (">", 1, 2, 2)
    assert late.value == pytest.approx((100 + 50) / 2 / 50)  # the one that never arrived counts as the whole budget
    assert str(late) == ">1.50 [1.00, 2.00] (1, 2 of 2)"
    early = ratio_to(all_, half, 0.5, 100)
    assert (early.sign, early.value) == ("<", pytest.approx(50 / 75))
    neither = ratio_to(never, half, 0.5, 100)
    assert (neither.sign, neither.value, str(neither)) == ("?", None, "never (0, 1 of 2)")


def result(ends, label="tempo"):
    return Result(Arm(label, Chain(), label), 1e-3, tuple(range(len(ends))), tuple(straight(ends)), 100)


def test_a_result_is_over_grpo_by_the_difference_of_paired_runs():
    over = result([0.6, 0.8]).over(result([0.4, 0.6], "grpo"))
    assert (over.iqm, over.low, over.high) == (pytest.approx(0.1),) * 3  # mean heights: half of the ends
    assert over.percent(signed=True) == "+10.0 [10.0, 10.0]"
    assert Measured.of([0.5]).percent() == "50.0"


def test_the_best_rate_is_that_of_the_highest_mean_and_an_edge_is_said():
    tried = [
        Tried("tempo", rate, means) for rate, means in ((1e-4, (0.5, 0.6)), (1e-3, (0.4, 0.9)), (1e-2, (0.6,) * 2))
    ]
    assert best_rate(tried, "tempo") == 1e-3
    assert not at_edge(tried, "tempo")
    assert at_edge(tried[:2], "tempo")


def test_a_seed_does_not_choose_and_report(tmp_path):
    with pytest.raises(ValueError, match="seed 100 is used to choose"):
        Experiment(tmp_path, 1, None, seeds=(0, *SWEEP_SEEDS)).study("chain")


@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_takes_its_rate_from_an_arm_that_is_swept(name):
    one = STUDIES[name]
    swept = [arm.tuned_as for arm in (one if one.swept else STUDIES["chain"]).arms]
    assert {arm.tuned_as for arm in one.arms} <= set(swept)
    assert len(set(swept)) == len(swept)  # no arm is tuned by another's runs
    cells = [(arm.panel, arm.label) for arm in one.arms]
    assert len(set(cells)) == len(cells)
