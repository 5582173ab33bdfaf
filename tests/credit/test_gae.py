"""Generalised advantage estimation against its definition in loops, its closed forms, and the critic's loss."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit.gae import at_last_token, gae, mean_and_variance, moments, whiten

FACTORS = st.sampled_from([0.0, 0.3, 0.95, 1.0])
MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])  # a tool token; padding; nothing


def random_rows(width: int, seed: int, rows: int = 3) -> tuple[torch.Tensor, ...]:
    """Rewards, values and a mask with holes and padding."""
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, rows, width, dtype=torch.float64, generator=generator)
    lengths = torch.randint(0, width + 1, (rows, 1), generator=generator)
    mask = (torch.arange(width) < lengths) & (torch.rand(rows, width, generator=generator) < 0.8)
    return rewards, values, mask.long()


def gae_in_loops(rewards, values, mask, gamma, lam) -> tuple[torch.Tensor, torch.Tensor]:
    """Equation 16 row by row: backwards over the tokens of the mask."""
    advantages, returns = torch.zeros_like(values), torch.zeros_like(values)
    for row in range(len(values)):
        next_value = next_advantage = 0.0
        for t in reversed(range(values.shape[1])):
            if mask[row, t]:
                td_error = rewards[row, t] + gamma * next_value - values[row, t]
                advantages[row, t] = next_advantage = td_error + gamma * lam * next_advantage
                returns[row, t] = next_advantage + values[row, t]
                next_value = values[row, t]
    return advantages, returns


@given(st.integers(0, 19), FACTORS, FACTORS, st.integers(0, 99))
def test_gae_is_its_definition(width, gamma, lam, seed):
    rows = random_rows(width, seed)
    for ours, expected in zip(gae(*rows, gamma, lam), gae_in_loops(*rows, gamma, lam), strict=True):
        torch.testing.assert_close(ours, expected)


def test_the_reward_stands_on_the_last_token_of_the_mask():
    rewards = at_last_token(torch.tensor([2.0, 3.0, 5.0]), MASK)
    assert rewards.tolist() == [[0, 0, 0, 0, 2.0], [0, 0, 3.0, 0, 0], [0.0] * 5]
    unscored = at_last_token(torch.tensor([2.0, torch.nan]), torch.tensor([[1, 1], [0, 0]]))
    assert unscored.tolist() == [[0.0, 2.0], [0.0, 0.0]]


@given(st.integers(1, 12), st.integers(0, 99))
def test_whitened_advantages_have_mean_zero_and_variance_one_over_the_mask(width, seed):
    x, _, mask = random_rows(width, seed, rows=6)
    inside = x[mask == 1]
    mean, variance = mean_and_variance(moments(x, mask))
    if len(inside) > 1:
        torch.testing.assert_close(mean, inside.mean())
        torch.testing.assert_close(variance, inside.var())
        whitened = whiten(x, mask, mean, variance)
        assert not whitened[mask == 0].any()
        torch.testing.assert_close(whitened[mask == 1].var(), variance / (variance + 1e-8))
        assert whitened[mask == 1].mean().abs() < 1e-9


def test_moments_of_two_halves_add_up_to_those_of_the_whole():
    x, _, mask = random_rows(9, 0, rows=4)
    halves = moments(x[:2], mask[:2]) + moments(x[2:], mask[2:])
    torch.testing.assert_close(halves, moments(x, mask))


def test_without_a_token_there_is_nothing_to_whiten():
    same, nothing = torch.full(MASK.shape, 0.7), torch.zeros_like(MASK)
    assert not whiten(same, nothing, *mean_and_variance(moments(same, nothing))).any()
