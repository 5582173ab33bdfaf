"""Span credit against its definition in loops, what follows from it, and its expected gradient by enumeration."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit import span_advantages
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.spans import Criteria

from .groups import padded, std

EXACT = {"rtol": 1e-5, "atol": 1e-5}
LAMBDAS = st.sampled_from([0.0, 0.5, 1.0])
SCALES = st.sampled_from(["group", "batch", "none"])
FEW = settings(max_examples=40)
REWARDS = st.sampled_from([0.0, 1.0, 0.7, -2.5, math.nan])
Place = tuple[int, int]


@st.composite
def judged(draw, min_size=1, max_size=5, min_criteria=0, most_places=4, rewards=REWARDS):
    """One to three ragged groups as (rewards, places, lengths, num_generations), rewards and places row by row."""
    size = draw(st.integers(min_size, max_size))
    count, criteria = size * draw(st.integers(1, 3)), draw(st.integers(min_criteria, 3))
    lengths = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    scores = [[draw(rewards) for _ in range(criteria)] for _ in lengths]
    places = [[draw(places_in(length, most_places)) for _ in range(criteria)] for length in lengths]
    return scores, places, lengths, size


@st.composite
def places_in(draw, length: int, most: int) -> list[Place]:
    found = []
    for _ in range(draw(st.integers(0, most if length else 0))):
        start = draw(st.integers(0, length - 1))
        found.append((start, draw(st.integers(start + 1, length))))
    return found


def as_tensors(case, most_places: int = 4, padding: int = 0) -> tuple:
    """The arguments of `span_advantages`, as wide as the longest completion and its padding."""
    scores, places, lengths, size = case
    criteria = len(scores[0])
    filled = [[own + [(-1, -1)] * (most_places - len(own)) for own in row] for row in places]
    bounds = torch.tensor(filled, dtype=torch.long).reshape(len(lengths), criteria, most_places, 2)
    rewards = torch.tensor(scores, dtype=torch.float64).reshape(len(lengths), criteria)
    return rewards, bounds[..., 0], bounds[..., 1], torch.tensor(lengths), max(lengths) + padding, size


def share(places: list[Place], t: int, lam: float, sampled: list[bool]) -> float:
    """m: 1 in the place, lambda^n if it begins n sampled tokens later, 0 after it; 1 everywhere without one."""
    found = [1.0] if not places else [0.0]
    for start, end in places:
        if t < end:
            found.append(1.0 if t >= start else lam ** max(1, sum(sampled[t:start])))
    return max(found)


def relative(scores: list[list[float]], row: int, k: int, size: int, scale_rewards: str) -> float:
    """g: the reward of a criterion over its mean in the group, scaled; 0 if it is not judged or equal there."""
    first = row // size * size
    group = [other[k] for other in scores[first : first + size] if not math.isnan(other[k])]
    batch = [other[k] for other in scores if not math.isnan(other[k])]
    if math.isnan(scores[row][k]) or len(set(group)) < 2:
        return 0.0
    scale = {"none": 1.0, "group": std(group) + 1e-4, "batch": std(batch) + 1e-4}[scale_rewards]
    return (scores[row][k] - sum(group) / len(group)) / scale


def by_definition(case, weights, scale_rewards="group", trace_lambda=0.0, sampled=None) -> torch.Tensor:
    scores, places, lengths, size = case
    sampled = sampled or [[True] * length for length in lengths]
    rows = [
        [
            sum(
                w
                * relative(scores, row, k, size, scale_rewards)
                * share(places[row][k], t, trace_lambda, sampled[row])
                for k, w in enumerate(weights[: len(scores[row])])
            )
            for t in range(length)
        ]
        for row, length in enumerate(lengths)
    ]
    return padded(rows, max(lengths))


@settings(max_examples=200)
@given(
    judged(),
    st.lists(st.sampled_from([1.0, 0.5, 0.0, -2.0]), min_size=3, max_size=3),
    SCALES,
    LAMBDAS,
    st.integers(0, 4),
    st.lists(st.booleans(), min_size=75, max_size=75),
)
def test_advantages_are_those_of_the_definition_and_padding_has_none(
    case, weights, scale_rewards, trace_lambda, padding, sampled
):
    arguments, criteria = as_tensors(case, padding=padding), len(case[0][0])
    sampled = torch.tensor(sampled).reshape(15, 5)[: len(case[0]), : max(case[2])]
    computed = span_advantages(
        *arguments,
        weights=torch.tensor(weights[:criteria]),
        scale_rewards=scale_rewards,
        trace_lambda=trace_lambda,
        sampled=torch.nn.functional.pad(sampled, (0, padding)),
    )
    assert computed.dtype == torch.float32
    expected = by_definition(case, weights, scale_rewards, trace_lambda, sampled.tolist())
    expected = torch.nn.functional.pad(expected, (0, padding))
    torch.testing.assert_close(computed, expected, **EXACT)


# Zeros


# Reductions


@FEW
@given(judged(min_criteria=1, most_places=0), SCALES, LAMBDAS)
def test_one_criterion_without_a_place_is_grpo(case, scale_rewards, trace_lambda):
    rewards, starts, ends, lengths, width, size = as_tensors(case)
    advantages = span_advantages(
        rewards[:, :1], starts[:, :1], ends[:, :1], lengths, width, size,
        scale_rewards=scale_rewards, trace_lambda=trace_lambda,
    )  # fmt: skip
    grpo = outcome_advantages(rewards[:, 0], size, scale_rewards).nan_to_num(0.0)
    inside = torch.arange(width) < lengths[:, None]
    assert torch.equal(advantages, (grpo[:, None] * inside).float())


# Equivariances


@FEW
@given(judged(min_criteria=1), SCALES, LAMBDAS)
def test_groups_see_each_other_only_in_the_scale_of_the_batch(case, scale_rewards, trace_lambda):
    rewards, starts, ends, lengths, width, size = as_tensors(case)
    options = {"scale_rewards": scale_rewards, "trace_lambda": trace_lambda}
    together = span_advantages(rewards, starts, ends, lengths, width, size, **options)
    for first in range(0, len(rewards), size):
        own = slice(first, first + size)
        alone = span_advantages(
            rewards[own], starts[own], ends[own], lengths[own], width, size, all_rewards=rewards, **options
        )
        torch.testing.assert_close(together[own], alone, **EXACT)


# What TRL logs


def test_the_mean_of_the_criteria_is_over_those_that_judged_and_by_the_size_of_their_weights():
    rewards = torch.tensor([[1.0, 0.5, 0.0], [1.0, torch.nan, torch.nan], [torch.nan] * 3])
    none = torch.full((3, 3, 1), -1)
    weights = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    mean = Criteria(("a", "b", "c"), rewards, none, none, weights).mean_reward()
    assert mean.tolist() == pytest.approx([(1.0 + 2 * 0.5 - 0.0) / 4, 1.0, math.nan], nan_ok=True)


# Errors

NONE, LENGTHS, SCORES = torch.full((4, 2), -1), torch.tensor([3, 2, 1, 0]), torch.zeros(4, 2)


def at(row: int, criterion: int, value: int) -> torch.Tensor:
    changed = NONE.clone()
    changed[row, criterion] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((SCORES[0], NONE, NONE, LENGTHS, 3, 2), {}, r"`rewards` must be \(R, K\).*got shape \(2,\)"),
        ((SCORES, NONE, NONE, LENGTHS, 3, 3), {}, "4 rows is not a multiple of num_generations = 3"),
        ((SCORES + math.inf, NONE, NONE, LENGTHS, 3, 2), {}, "finite, or NaN.*got infinity"),
        ((SCORES, NONE, NONE[:, :1], LENGTHS, 3, 2), {}, r"got shapes \(4, 2\) and \(4, 1\)"),
        ((SCORES, NONE[:, :1], NONE[:, :1], LENGTHS, 3, 2), {}, r"2 criteria.*got shape.*\(4, 1\)"),
        ((SCORES, NONE, NONE, LENGTHS, 2, 2), {}, "`lengths` must be between 0 and T = 2, got 0 to 3"),
        ((SCORES, at(1, 1, 0), NONE, LENGTHS, 3, 2), {}, "row 1, criterion 1 .* 2 tokens has start 0 and end -1"),
        ((SCORES, at(2, 0, 0), at(2, 0, 2), LENGTHS, 3, 2), {}, "of 1 tokens has start 0 and end 2"),
        ((SCORES, NONE, NONE, LENGTHS, 3, 2), {"weights": torch.ones(3)}, r"2 finite numbers.*got \[1.0, 1.0, 1.0\]"),
        ((SCORES, NONE, NONE, LENGTHS, 3, 2), {"scale_rewards": "std"}, "must be one of.*got 'std'"),
        ((SCORES, NONE, NONE, LENGTHS, 3, 2), {"trace_lambda": math.nan}, "between 0 and 1, got nan"),
    ],
)
def test_bad_input_is_named_with_what_was_got_and_expected(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        span_advantages(*arguments, **options)


# The expected gradient, by enumeration of all groups of a tabular policy over three binary tokens

TOKENS = 3
COMPLETIONS = list(product((0, 1), repeat=TOKENS))


def first(tokens) -> tuple[float, Place | None]:
    """Decided by the first token, on it."""
    return float(tokens[0]), (0, 1)


def second(tokens) -> tuple[float, Place | None]:
    """Decided by the second token alone."""
    return 2.0 * tokens[1], (1, 2)


def goes_on(tokens) -> tuple[float, Place | None]:
    """The last token is right if it goes on from the first one: a chain."""
    return float(tokens[0] == tokens[2]), (2, 3)


def soon(tokens) -> tuple[float, Place | None]:
    """The sooner a 1 comes, the better, decided where it comes; without a 1 at the end of the completion."""
    where = tokens.index(1) if 1 in tokens else TOKENS - 1
    return (TOKENS - where) / TOKENS, (where, where + 1)


def together(tokens) -> tuple[float, Place | None]:
    """Of the whole completion, without a place."""
    return float(sum(tokens) == 2), None


def logits(seed: int, reads_the_past: bool = True) -> torch.Tensor:
    """Of the token 1 in each state, `(8,)`; the state is the number 1 followed by the tokens so far, in binary."""
    drawn = torch.randn(2**TOKENS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if not reads_the_past:
        drawn[2:4], drawn[4:8] = drawn[2], drawn[4]
    return drawn.requires_grad_()


def token_logps(theta: torch.Tensor, tokens: tuple[int, ...]) -> torch.Tensor:
    states = [1]
    for token in tokens[:-1]:
        states.append(2 * states[-1] + token)
    signs = 2.0 * torch.tensor(tokens, dtype=torch.float64) - 1.0
    return torch.nn.functional.logsigmoid(signs * theta[states])


def expected_gradient(theta, criteria, size: int, trace_lambda: float) -> torch.Tensor:
    """Of the mean over a group of the sum over tokens of A log pi, exactly: over all groups with their chances."""
    total = torch.zeros_like(theta)
    for group in product(COMPLETIONS, repeat=size):
        scored = [[criterion(tokens) for criterion in criteria] for tokens in group]
        places = [[[] if place is None else [place] for _, place in row] for row in scored]
        case = [[reward for reward, _ in row] for row in scored], places, [TOKENS] * size, size
        advantages = span_advantages(*as_tensors(case), scale_rewards="none", trace_lambda=trace_lambda)
        logps = torch.stack([token_logps(theta, tokens) for tokens in group])
        gradient = torch.autograd.grad((advantages.double() * logps).sum() / size, theta)[0]
        total += logps.sum().exp().detach() * gradient
    return total


def true_gradient(theta, criteria) -> torch.Tensor:
    """Of the expected sum of the criteria."""
    expected = sum(
        token_logps(theta, tokens).sum().exp() * sum(criterion(tokens)[0] for criterion in criteria)
        for tokens in COMPLETIONS
    )
    return torch.autograd.grad(expected, theta)[0]


CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # advantages are float32


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("criteria", [[first, second], [goes_on], [soon], [first, goes_on, soon, together]])
def test_with_lambda_one_and_no_scale_the_gradient_is_unbiased(criteria, size):
    theta = logits(seed=1)
    ours = expected_gradient(theta, criteria, size, trace_lambda=1.0)
    torch.testing.assert_close(ours, (size - 1) / size * true_gradient(theta, criteria), **CLOSE)


@pytest.mark.parametrize("trace_lambda", [0.0, 0.5])
@pytest.mark.parametrize("size", [2, 3])
def test_so_it_is_with_any_lambda_where_no_earlier_token_changes_the_expected_reward(size, trace_lambda):
    theta = logits(seed=1, reads_the_past=False)
    ours = expected_gradient(theta, [first, second], size, trace_lambda)
    torch.testing.assert_close(ours, (size - 1) / size * true_gradient(theta, [first, second]), **CLOSE)


def test_without_lambda_the_chain_never_learns_from_its_end_what_the_first_token_should_be():
    """The policy answers 1 in four of five cases at the end, so that a 1 at the beginning is right more often."""
    theta = torch.zeros(2**TOKENS, dtype=torch.float64)
    theta[4:] = math.log(4)
    theta.requires_grad_()
    true = true_gradient(theta, [goes_on])
    # d/dtheta of sigmoid(theta) is 1/4 at theta = 0. A first 1 is right with chance 4/5, a first 0 with chance 1/5.
    assert true[1].item() == pytest.approx(0.25 * (4 / 5 - 1 / 5))
    biased, halved, whole = (2 * expected_gradient(theta, [goes_on], 2, trace_lambda) for trace_lambda in (0, 0.5, 1))
    assert biased[1].item() == pytest.approx(0.0, abs=1e-7)  # all of it is lost
    assert halved[1].item() == pytest.approx(0.5**2 * true[1].item())  # two tokens before the place
    assert whole[1].item() == pytest.approx(true[1].item())
    for gradient in (biased, halved, whole):  # what the end learns is right with any lambda
        torch.testing.assert_close(gradient[4:], true[4:], **CLOSE)
