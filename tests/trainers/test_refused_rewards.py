"""A reward without a finite variance ends the run at once, with its function and its row."""

import math

import pytest
from datasets import IterableDataset

from tempo_trl import TEMPOTrainer

from .recording import config, moved, parity, questions, train


def with_one(value: float):
    """A reward function that gives `value` to one completion."""

    def odd_one(completion_ids, **columns):
        return [value if row == 5 else float(row % 2) for row in range(len(completion_ids))]

    return odd_one


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e30])
def test_an_infinite_or_overflowing_reward_ends_the_run_before_any_weight_changes(
    value, scale_rewards, tiny_model, tmp_path
):
    args = config(tmp_path, scale_rewards=scale_rewards, td_coef=0.0)
    trainer = TEMPOTrainer(tiny_model, [parity, with_one(value)], args, questions())
    with pytest.raises(ValueError, match=r"'odd_one' returned .* for completion 5 .* Clip the reward, or return None"):
        trainer.train()
    assert not moved(trainer, tiny_model)


def test_a_weight_may_not_make_a_reward_overflow(tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"'odd_one' returned 10000000000.0 .*weight 1e\+10"):
        train(tiny_model, tmp_path, reward_funcs=with_one(1e10), reward_weights=[1e10])


def test_two_functions_of_one_name_have_metrics_of_their_own(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, reward_funcs=[with_one(1.0), with_one(2.0)], max_steps=1)
    assert trainer.reward_func_names == ["odd_one", "odd_one_2"]
    (logged,) = (entry for entry in trainer.state.log_history if "reward" in entry)
    assert logged["rewards/odd_one_2/mean"] - logged["rewards/odd_one/mean"] == pytest.approx(1 / 8)


def test_none_and_nan_mean_not_scored(tiny_model, tmp_path):
    for folder, value in (("none", None), ("nan", math.nan)):
        trainer = train(tiny_model, tmp_path / folder, reward_funcs=with_one(value), max_steps=1)
        assert trainer.state.global_step == 1


@pytest.mark.parametrize("name", ["reward_weights", "step_reward_weights", "span_reward_weights"])
def test_weights_are_finite(name, tmp_path):
    with pytest.raises(ValueError, match=rf"`{name}` must be finite numbers, got \[nan\]"):
        config(tmp_path, **{name: [math.nan]})


# Runs without a step


def test_a_stream_shorter_than_a_generation_ends_in_an_error(tiny_model, tmp_path):
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": "One?"}]))
    with pytest.raises(RuntimeError, match=r"without a step, expected 3: .* takes 2 prompts"):
        train(tiny_model, tmp_path, dataset=stream)
