"""Rewards that are equal up to rounding teach nothing, with any method and wherever they are compared."""

import pytest
import torch

from tempo_trl import SpanReward
from tempo_trl.credit import tempo_advantages
from tempo_trl.credit.advantages import flat_groups, outcome_advantages
from tempo_trl.credit.anchors import relative_returns
from tempo_trl.credit.gae import mean_and_variance, moments, whiten
from tempo_trl.credit.prefix_covariance import PrefixCovariance
from tempo_trl.credit.siblings import sibling_advantages
from tempo_trl.credit.spans import criterion_advantages

from ..credit.groups import prefix_baseline_advantages
from .every_method import EVERY_METHOD, FUNCTIONS, trainer_of

NAN = torch.nan
THEIRS = ("grpo", "hepo", "token_credit")  # TRL's own outcome, or what the user's function makes of it


def rising(completions, **columns) -> list[float]:
    return [123456.7 * (1 + i % 4) for i in range(len(completions))]


def falling(completions, **columns) -> list[float]:
    """With weights 0.1 and 0.7 the sum of both is a million, but for rounding."""
    return [(1e6 - 0.1 * reward) / 0.7 for reward in rising(completions)]


def cancelling(k: int):
    """The rewards of function k: half of the completions have three that add up to 0, but for rounding."""

    def reward(completions, **columns) -> list[float]:
        return [(1000.1, 2000.2, -3000.3)[k] if i % 2 else 0.0 for i in range(len(completions))]

    return reward


CANCELLING = "of terms that cancel"
SUMS_OF_REWARDS = {
    "of large terms": ([rising, falling], [0.1, 0.7]),
    CANCELLING: ([cancelling(k) for k in range(3)], [1.0] * 3),
}


def judged(texts, **columns) -> list[list[SpanReward]]:
    return [[SpanReward("large", 1e6 * (0.1 + 0.2 if i % 2 else 0.3))] for i in range(len(texts))]


OURS = [method for method in EVERY_METHOD if method not in THEIRS]
# PPO compares no completions: its critic learns each sum as TRL computed it.
COMPARISONS = [(method, of) for method in OURS for of in SUMS_OF_REWARDS if (method, of) != ("ppo", CANCELLING)]


@pytest.mark.parametrize(("method", "of"), COMPARISONS)
def test_weighted_sums_that_differ_by_rounding_have_advantages_of_zero(method, of, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "span_credit", {"span_reward_funcs": judged})
    rewards, weights = SUMS_OF_REWARDS[of]
    options = {"reward_weights": weights, "max_steps": 1, "num_iterations": 1, "beta": 0.0}
    trainer = trainer_of(method, tiny_model, tmp_path, reward=rewards, **options)
    trainer.train()
    (batch,) = trainer.batches
    sums = (batch.rewards_per_func * trainer.reward_weights).sum(dim=1)
    assert len(set(sums.tolist())) > 1
    mask = batch.output["completion_mask"]
    assert not (batch.output["advantages"].view(len(mask), -1) * mask).any()


def a_hundredth(completions, **columns) -> list[float]:
    """In float32 their mean is another number."""
    return [0.01] * len(completions)


@pytest.mark.parametrize("method", THEIRS[:2])
def test_rounding_in_trls_own_advantages_is_not_what_a_method_adds(method, tiny_model, tmp_path):
    options = {"num_generations": 6, "per_device_train_batch_size": 12, "max_steps": 1, "num_iterations": 1}
    trainer = trainer_of(method, tiny_model, tmp_path, reward=a_hundredth, **options)
    trainer.train()
    assert trainer.batches[0].output["advantages"].any()
    logged = trainer.state.log_history[0]
    assert "tempo/added_share" not in logged  # a share of nothing
    assert logged["tempo/branch_tokens"] == 0


def on_one_token(rewards: torch.Tensor) -> tuple:
    return torch.arange(len(rewards))[:, None] % 2, torch.ones(len(rewards), dtype=torch.long), rewards, len(rewards)


def of_siblings(rewards: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(rewards))
    return sibling_advantages(rows[:, None], torch.full_like(rows, len(rows)), rows, rewards, scale="std")


def of_visits(rewards: torch.Tensor) -> torch.Tensor:
    return relative_returns(rewards[:, None], torch.zeros(len(rewards), 1).long().numpy(), normalize=True)


def whitened(rewards: torch.Tensor) -> torch.Tensor:
    every = torch.ones(len(rewards), 1)
    return whiten(rewards[:, None], every, *mean_and_variance(moments(rewards[:, None], every)))


COMPARED = {
    "completions": lambda rewards: outcome_advantages(rewards, len(rewards)),
    "completions, scale of the batch": lambda rewards: outcome_advantages(rewards, len(rewards), "batch"),
    "completions, no scale": lambda rewards: outcome_advantages(rewards, len(rewards), "none"),
    "prefixes": lambda rewards: tempo_advantages(*on_one_token(rewards)),
    "others": lambda rewards: prefix_baseline_advantages(*on_one_token(rewards), PrefixCovariance()),
    "criteria": lambda rewards: criterion_advantages(rewards[:, None], len(rewards)),
    "siblings": of_siblings,
    "visits of a state": of_visits,
    "tokens of a critic": whitened,
}


# Two steps of 0.1 and 0.2 million, and one of 0.3: rewards are float32, their returns float64.
SUMS = (torch.tensor([[0.1, 0.2], [0.3, 0.0]]).double() * 1e6).sum(dim=1).tolist()


@pytest.mark.parametrize("compare", COMPARED.values(), ids=COMPARED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rewards", [[0.7] * 7, [1 / 3] * 7, [1e6 + 0.1] * 7, [0.1 + 0.2, 0.3], [*SUMS, *SUMS]])
def test_equal_numbers_have_advantages_of_zero_wherever_they_are_compared(rewards, dtype, compare):
    assert not compare(torch.tensor(rewards, dtype=dtype)).any()


@pytest.mark.parametrize("compare", COMPARED.values(), ids=COMPARED)
@pytest.mark.parametrize("rewards", [[1e6, 1e6 + 1], [1.0, 1.0 - 1e-6], [-1e-8, 1e-8]])
def test_numbers_that_differ_by_more_than_rounding_do_not(rewards, compare):
    assert compare(torch.tensor(rewards, dtype=torch.float64)).any()


def test_terms_that_cancel_are_judged_by_their_own_size():
    sums = torch.tensor([1000.1, 500.1]) - torch.tensor([1000.0, 500.0])
    assert sums.tolist() == pytest.approx([0.1, 0.1], abs=1e-4)
    assert flat_groups(sums, 2).tolist() == [False]
    assert flat_groups(sums, 2, size=torch.tensor([2000.1, 1000.1])).tolist() == [True]


@pytest.mark.parametrize("rewards", [[0.7] * 7, [NAN] * 7, [0.7, *[NAN] * 6], [1.0, *[NAN] * 5, 1.0]], ids=str)
def test_unscorable_completions_are_not_compared(rewards):
    assert flat_groups(torch.tensor(rewards)[:, None], 7).tolist() == [[True]]
    assert flat_groups(torch.tensor([*rewards[:-1], 0.1])[:, None], 7).tolist() == [[rewards[0] != rewards[0]]]
