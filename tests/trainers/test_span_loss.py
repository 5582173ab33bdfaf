"""Span credit in TRL's loss: the off-policy mask, GSPO, what saves time, and resumed runs."""

import pytest
import torch

from tempo_trl import GiGPOTrainer, HGPOTrainer, SpanCreditTrainer
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.tree_forward.tree_pass import State

from .agents import rooms_of
from .credit_functions import door_rewards
from .recording import assert_same_weights, moved, share_of_threes
from .spans import FlatAnswers, assert_close, counted_by_hand, swapped, train, whole_advantages
from .test_agents import play


@pytest.fixture
def masks(monkeypatch):
    """(advantages, mask) of each call of TRL's off-policy mask."""
    seen = []
    theirs = SpanCreditTrainer.get_off_policy_mask

    def recorded(advantages, **keywords):
        mask = theirs(advantages=advantages, **keywords)
        seen.append((advantages.flatten(), mask.flatten()))
        return mask

    for cls in (SpanCreditTrainer, GiGPOTrainer, HGPOTrainer):
        monkeypatch.setattr(cls, "get_off_policy_mask", staticmethod(recorded))
    return seen


# Every completion is further from the policy than that: those with a negative advantage are dropped.
ALL_OFF_POLICY = {"off_policy_mask_threshold": -10.0, "num_iterations": 2, "max_steps": 2}


@pytest.mark.parametrize("reward_funcs", [None, share_of_threes])
def test_the_off_policy_mask_reads_the_sign_of_the_whole_return(reward_funcs, masks, tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, reward_funcs=reward_funcs, **ALL_OFF_POLICY)
    batch = trainer.batches[0]
    whole = whole_advantages(counted_by_hand(batch.completion_ids))
    if reward_funcs:
        whole = whole + outcome_advantages(batch.rewards_per_func[:, 0], 4)
    assert len(masks) == 2
    for advantages, mask in masks:  # TRL shuffles rows among the updates
        assert_close(advantages.sort().values, whole.sort().values)
        assert mask.tolist() == [float(advantage >= 0) for advantage in advantages.tolist()]
        assert 0 < mask.sum() < len(mask)


def nothing(completions, **columns) -> list[float]:
    return [0.0] * len(completions)


@pytest.mark.parametrize("cls", [GiGPOTrainer, HGPOTrainer])
def test_so_it_does_where_all_reward_is_per_turn(cls, masks, tiny_model, tmp_path):
    """TRL's own outcome is 0 there: with its sign nothing would be dropped."""
    options = ALL_OFF_POLICY | {"reward_funcs": nothing, "beta": 0.0}
    play(tiny_model, tmp_path, cls, trainer={"step_reward_funcs": door_rewards}, **options)
    returns = torch.tensor([float(sum(rooms_of(script)[1:])) for script in range(4)] * 2)
    whole = outcome_advantages(returns, 4)
    assert len(masks) == 2
    for advantages, mask in masks:
        assert_close(advantages.sort().values, whole.sort().values)
        assert mask.sum() == (whole >= 0).sum() < len(whole)


OPTIONS = {"optim": "sgd", "learning_rate": 0.1, "max_steps": 2, "num_iterations": 2, "trace_lambda": 0.5}


@pytest.mark.parametrize("reward_funcs", [None, share_of_threes])
def test_what_saves_time_changes_nothing_that_is_learned(reward_funcs, tiny_model, tmp_path):
    keywords = {"cls": FlatAnswers, "reward_funcs": reward_funcs}
    plain = train(tiny_model, tmp_path / "plain", **keywords, **OPTIONS)
    ours = train(tiny_model, tmp_path / "ours", **keywords, **OPTIONS, skip_zero_advantages=True, tree_forward="on")
    assert ours.tree_pass.state is State.IN_USE
    assert moved(plain, tiny_model)
    assert_same_weights(ours, plain, rtol=1e-4, atol=1e-6)


def test_groups_that_differ_in_criteria_alone_are_not_left_out(tiny_model, tmp_path):
    plain, ours = (
        train(tiny_model, tmp_path, swapped, skip_zero_advantages=skip, **OPTIONS) for skip in (False, True)
    )
    assert moved(ours, tiny_model)
    assert_same_weights(ours, plain, rtol=1e-4, atol=1e-6)
