"""Curves of a study's runs run over sampled tokens and seconds, too."""

from benchmarks.learning.curves import read_curve


def test_a_curve_runs_over_steps_tokens_and_seconds():
    log = [
        {"step": 2, "reward": 0.1, "num_tokens": 50, "step_time": 3.0},  # the mean of two steps
        {"step": 4, "eval_reward": 0.5},
        {"step": 4, "reward": 0.2, "num_tokens": 90, "step_time": 1.0},
        {"step": 4, "train_runtime": 99.0},
    ]
    curve = read_curve(log, "reward")
    assert curve.steps.tolist() == [2, 4]
    assert curve.tokens.tolist() == [50, 90]
    assert curve.seconds.tolist() == [6.0, 8.0]
    assert curve.value.tolist() == [0.1, 0.2]
    assert read_curve(log, "eval_reward").value.tolist() == [0.5]
    assert read_curve([], "reward") is None
