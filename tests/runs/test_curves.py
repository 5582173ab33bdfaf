"""Learning curves: read from Trainer's log, and averaged over seeds."""

import numpy as np
from scipy import stats

from tempo_trl.runs.curves import band, read_curve


def test_a_curve_has_a_point_for_each_step_at_which_the_metric_is_a_number():
    log = [
        {"step": 2, "reward": 0.1},
        {"step": 4, "eval_reward": 0.3},
        {"step": 4, "eval_reward": 0.5},  # of the weights with which the run ends
        {"step": 4, "reward": 0.2, "other": None},
        {"step": 5, "reward": float("nan")},
    ]
    curve = read_curve(log, "reward")
    assert (curve.steps.tolist(), curve.value.tolist()) == ([2, 4], [0.1, 0.2])
    assert read_curve(log, "eval_reward").value.tolist() == [0.5]
    assert read_curve([], "reward") is read_curve(log[4:], "reward") is read_curve(log, "other") is None


def test_the_band_is_students_interval_of_the_mean_over_seeds():
    values = np.random.default_rng(0).random((3, 5))
    logs = [[{"step": s + 1, "reward": v} for s, v in enumerate(row)] for row in values]
    mean, low, high = band([read_curve(log, "reward") for log in logs])
    expected = stats.t.interval(0.95, 2, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    np.testing.assert_allclose(mean.value, values.mean(axis=0))
    np.testing.assert_allclose([low, high], expected)
    assert np.isnan(band([read_curve(logs[0], "reward")])[1]).all()  # one run tells nothing of how runs vary
