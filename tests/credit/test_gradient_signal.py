"""The share of signal: products of sketches are those of whole gradients, and agreeing groups are all signal."""

import pytest
import torch

from tempo_trl.credit import gradient_signal
from tempo_trl.credit.gradient_signal import group_sketches, random_signs, signal_and_square


def every_pair(size: int) -> torch.Tensor:
    """P and Q with which a sketch is the gradient itself, entry by entry."""
    one = torch.eye(size)
    return torch.stack([one.repeat_interleave(size, dim=1), one.repeat(1, size)])


def share(sketches: torch.Tensor, rows: torch.Tensor | None = None) -> float:
    signal, square = signal_and_square(sketches, torch.ones(len(sketches)) if rows is None else rows).tolist()
    return signal / square


@pytest.fixture
def tokens():
    """Gradients, states and groups of 50 tokens, and the sum of outer products of each of 3 groups."""
    generator = torch.Generator().manual_seed(1)
    gradients, states = torch.randn(2, 50, 6, generator=generator)
    groups = torch.arange(50) % 3
    exact = torch.zeros(3, 6, 6)
    for d, h, g in zip(gradients, states, groups.tolist(), strict=True):
        exact[g] += torch.outer(d, h)
    return gradients, states, groups, exact.flatten(1)


def test_with_every_pair_of_coordinates_a_sketch_is_the_gradient(tokens):
    *given, exact = tokens
    torch.testing.assert_close(group_sketches(*given, 3, every_pair(6)), exact)


def test_the_tokens_may_be_projected_in_parts(tokens, monkeypatch):
    *given, _ = tokens
    whole = group_sketches(*given, 3, random_signs(6))
    monkeypatch.setattr(gradient_signal, "TOKENS", 7)
    torch.testing.assert_close(group_sketches(*given, 3, random_signs(6)), whole)


def test_products_of_random_sketches_are_those_of_the_gradients_in_the_mean(tokens):
    *given, exact = tokens
    for width, tolerance in ((1_024, 3 / 1_024**0.5), (400_000, 3 / 400_000**0.5)):
        sketches = group_sketches(*given, 3, random_signs(6, width))
        norms = exact.norm(dim=1)
        error = (sketches @ sketches.T - exact @ exact.T) / torch.outer(norms, norms)
        assert error.abs().max() < 2 * tolerance


def test_half_precision_is_projected_in_float32(tokens):
    gradients, states, groups, _ = tokens
    half = group_sketches(gradients.bfloat16(), states.bfloat16(), groups, 3, random_signs(6))
    full = group_sketches(gradients.bfloat16().float(), states.bfloat16().float(), groups, 3, random_signs(6))
    assert half.dtype == torch.float32
    assert torch.equal(half, full)


def test_the_signal_is_the_mean_product_of_two_groups_and_the_square_the_definition():
    sketches = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    pairs = [sketches[f] @ sketches[g] for f in range(5) for g in range(5) if f != g]
    signal, total = sum(pairs) / len(pairs), sketches.square().sum(dim=1).mean()
    expected = torch.stack([signal, signal + (total - signal) / 5]) * 5**2  # of the sum of the groups, not their mean
    torch.testing.assert_close(signal_and_square(sketches, torch.full((5,), 4.0)), expected)


def test_groups_of_unequal_size_with_equal_gradients_per_completion_are_all_signal():
    one, rows = torch.randn(8, generator=torch.Generator().manual_seed(4)), torch.tensor([1.0, 3.0, 8.0, 2.0])
    assert share(torch.outer(rows, one), rows) == pytest.approx(1, abs=1e-5)


def test_a_group_without_rows_does_not_count_and_a_group_without_gradient_does():
    sketches, rows = torch.tensor([[1.0], [1.0], [0.0]]), torch.tensor([4.0, 4.0, 0.0])
    assert share(sketches, rows) == pytest.approx(1)
    # Three groups with gradients 1, 1, 0: products across groups sum to 2, of 6 pairs. (2 / 6) / (2 / 3) ** 2 = 3 / 4.
    assert share(sketches, torch.full((3,), 4.0)) == pytest.approx(3 / 4)


def test_independent_gradients_without_a_mean_are_no_signal_on_average():
    generator = torch.Generator().manual_seed(5)
    steps = [signal_and_square(torch.randn(8, 64, generator=generator), torch.ones(8)) for _ in range(2_000)]
    signal, square = torch.stack(steps).mean(dim=0).tolist()
    assert abs(signal / square) < 0.01
    assert square == pytest.approx(8 * 64, rel=0.02)


def test_the_noise_scale_follows_from_the_share():
    """Mean 1 and standard deviation 3 in each coordinate, so a noise scale of 9 groups; a batch has 4."""
    generator = torch.Generator().manual_seed(6)
    steps = [signal_and_square(1 + 3 * torch.randn(4, 16, generator=generator), torch.ones(4)) for _ in range(4_000)]
    signal, square = torch.stack(steps).mean(dim=0).tolist()
    assert 4 * (1 - signal / square) / (signal / square) == pytest.approx(9, rel=0.1)


@pytest.mark.parametrize("rows", [[0.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
def test_fewer_than_two_groups_have_no_signal_that_is_a_number(rows):
    rows = torch.tensor(rows)
    assert not signal_and_square(torch.outer(rows, torch.randn(8)), rows)[0].isfinite()
