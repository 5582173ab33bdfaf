"""Eligibility traces against their definition in loops, and what takes time in them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit.gae import at_last_token, gae
from tempo_trl.credit.spans import placed_credit
from tempo_trl.credit.traces import LARGEST_LOG_RATIO, STYLES, eligibility_trace, trace_weights, traced_reference

DECAYS = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])
MASK = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]])  # a tool token in the first row, padding in the second


def decay_of(t: int, lag: int, decay: float, style: str) -> float:
    """tr(t, l), equations 1 and 2 of the paper."""
    return decay**lag if style == "recent" else max(decay**lag, decay ** (t - lag))


def trace_in_loops(x: torch.Tensor, decay: float, style: str) -> torch.Tensor:
    y = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for lag in range(t + 1):
            y[:, t] += decay_of(t, lag, decay, style) * x[:, t - lag]
    return y


@given(st.integers(0, 19), DECAYS, st.sampled_from(STYLES), st.integers(0, 99))
def test_the_trace_is_its_definition(width, decay, style, seed):
    x = torch.randn(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(eligibility_trace(x, decay, style), trace_in_loops(x, decay, style))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("width", [1, 6, 7])
def test_the_gradient_is_the_trace_transposed(width, style):
    x = torch.randn(1, width, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(1, width, dtype=torch.float64)
    eligibility_trace(x, 0.9, style).backward(upstream)
    for j in range(width):
        expected = sum(decay_of(t, t - j, 0.9, style) * upstream[0, t] for t in range(j, width))
        torch.testing.assert_close(x.grad[0, j], expected)


@pytest.mark.parametrize("style", STYLES)
def test_a_long_trace_is_exact_in_float32(style):
    x = torch.randn(1, 4097, generator=torch.Generator().manual_seed(0))
    lag = torch.arange(4097)[:, None] - torch.arange(4097)
    weights = 0.99 ** lag.clamp(min=0).double()
    if style == "both":
        weights = torch.maximum(weights, 0.99 ** torch.arange(4097).double())
    expected = x.double() @ weights.masked_fill(lag < 0, 0.0).T
    torch.testing.assert_close(eligibility_trace(x, 0.99, style).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("style", STYLES)
def test_autocast_leaves_the_trace_in_float32(style):
    x = torch.randn(2, 33)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = eligibility_trace(x, 0.9, style)
    assert torch.equal(inside, eligibility_trace(x, 0.9, style))


@pytest.mark.parametrize("style", STYLES)
def test_the_reference_makes_the_ratio_the_traced_one_and_skips_what_is_masked(style):
    logps = torch.randn(2, 5)
    old = logps + 0.1 * torch.randn(2, 5)
    logps[MASK == 0] = torch.nan
    log_ratio = (logps - old).masked_fill(MASK == 0, 0.0)
    ours = (logps - traced_reference(logps, old, MASK, 0.9, style))[MASK == 1]
    steps = [row[mask == 1] for row, mask in zip(log_ratio, MASK, strict=True)]  # masked tokens take no time
    expected = torch.cat([trace_in_loops(row[None], 0.9, style)[0] for row in steps])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def credit_of_a_call(method: str, answer: int) -> torch.Tensor:
    """Of the 3 tokens of a call before a tool's answer and a last turn of 2 tokens, with lambda 0.9."""
    own = torch.tensor([[True] * 3 + [False] * answer + [True] * 2])
    ones, width = own.float(), own.shape[1]
    if method == "span credit":  # a criterion of the last token, and one of the answer
        starts = torch.tensor([[[width - 1], [3]]])
        placed = placed_credit(torch.ones(1, 2), starts, starts + 1, torch.tensor([width]), width, 0.9, own)
        return torch.cat([credit[:, :3] for _, _, credit in placed])
    if method == "PPO":
        return gae(at_last_token(torch.ones(1), ones), torch.zeros(1, width), ones, 0.9, 0.9)[0][own]
    if method == "GRPO-lambda, weight":
        return torch.cat([trace_weights(ones, 0.9, style)[own] for style in STYLES])
    logps = torch.zeros(1, width).masked_scatter(own, torch.arange(5.0))
    return torch.cat([traced_reference(logps, torch.zeros(1, width), ones, 0.9, style)[own] for style in STYLES])


@pytest.mark.parametrize("method", ["span credit", "PPO", "GRPO-lambda, weight", "GRPO-lambda, trace"])
def test_a_tools_answer_of_any_length_takes_no_time(method):
    long = credit_of_a_call(method, answer=200)
    assert torch.equal(long, credit_of_a_call(method, answer=1))
    assert (long != 0).any()


def test_a_ratio_that_exp_cannot_hold_has_a_finite_gradient():
    logps = torch.zeros(1, 3, requires_grad=True)
    reference = traced_reference(logps, torch.full((1, 3), -50.0), torch.ones(1, 3), 0.99)
    ratio = (logps - reference).exp()
    torch.min(ratio, ratio.clamp(max=1.2)).sum().backward()
    assert ratio.max().log().item() == pytest.approx(LARGEST_LOG_RATIO)
    assert logps.grad.isfinite().all()
