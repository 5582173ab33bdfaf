"""Span credit: every criterion of a completion is a GRPO of its own, and its advantage falls on its place.

Indices: criteria are the K columns of `(R, K)` tensors; a place is the tokens `start` to `end`, the last one excluded.
A criterion with several places has them along a third dimension, `(R, K, P)`; -1 stands for no place.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from tempo_trl.credit.advantages import EPSILON, SCALES, nanstd, outcome_advantages
from tempo_trl.credit.checks import check_choice, check_groups, check_lengths, check_number

TRACE_LAMBDA = 0.9  # the default of the trainer and of `tempo-trl credit`; that of [`span_advantages`] is 0


class Criteria(NamedTuple):
    """
    The criteria that the `span_reward_funcs` judged in the completions of a batch.

    Args:
        names (`tuple[str, ...]` of length K): Their names; with several functions `FUNCTION/NAME`.
        rewards (`torch.Tensor` of shape `(R, K)`): NaN where a completion was not judged by a criterion.
        starts, ends (`torch.Tensor` of shape `(R, K, P)`, int64): Their places in tokens; -1 for no place.
        weights (`torch.Tensor` of shape `(K,)`, float64): Weight of each criterion.
        all_rewards (`torch.Tensor` of shape `(N, K)`, *optional*): Rewards of the rows of all ranks, with
            `scale_rewards="batch"`. None means that the R rows are all there are.
    """

    names: tuple[str, ...]
    rewards: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor
    weights: torch.Tensor
    all_rewards: torch.Tensor | None = None

    @property
    def placed(self) -> torch.Tensor:
        """Whether a criterion has a place in a completion, `(R, K)`, bool."""
        return (self.starts >= 0).any(dim=-1)

    def mean_reward(self) -> torch.Tensor:
        """Mean of the judged criteria by the size of their weights, `(R,)`, float64; NaN without any."""
        judged = self.rewards.isfinite()
        weights = self.weights.expand(judged.shape).masked_fill(~judged, 0.0)
        return (weights * self.rewards.nan_to_num(0.0)).sum(dim=1) / weights.abs().sum(dim=1)


def criteria_of(
    judged: Sequence[Mapping[str, tuple[float, Sequence[tuple[int, int]]]]], weights: Mapping[str, float], most: int
) -> Criteria:
    """
    The criteria of R completions.

    Args:
        judged: For each completion its reward and its places by criterion.
        weights (`dict[str, float]`): Weight of each criterion. Its order is that of the columns.
        most (`int`): The most places P of a criterion in a completion.
    """
    column = {name: k for k, name in enumerate(weights)}
    found = [(row, column[name], *own) for row, of_row in enumerate(judged) for name, own in of_row.items()]
    rewards = torch.full((len(judged), len(weights)), torch.nan)
    places = torch.full((*rewards.shape, most, 2), -1)
    if found:
        row, criterion, reward, own = zip(*found, strict=True)
        rewards[row, criterion] = torch.tensor(reward, dtype=rewards.dtype)
        places[row, criterion] = torch.tensor([[*each, *[(-1, -1)] * (most - len(each))] for each in own])
    weight = torch.tensor(list(weights.values()), dtype=torch.float64)
    return Criteria(tuple(weights), rewards, places[..., 0], places[..., 1], weight)


def span_advantages(
    rewards: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
    num_generations: int,
    *,
    weights: torch.Tensor | None = None,
    scale_rewards: str = "group",
    trace_lambda: float = 0.0,
    all_rewards: torch.Tensor | None = None,
    sampled: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Advantages of tokens from rewards with a place (ours).

    $$A_{i,t} = \sum_k w_k \, g_{i,k} \, m_{i,k,t}, \qquad
    g_{i,k} = \frac{r_{i,k} - \mathrm{mean}_k(r)}{\mathrm{scale}_k}$$

    The mean and the scale are over the completions that criterion k judged. m is 1 on the tokens of the place,
    $\lambda^n$ on a token n steps before it, and 0 after it; it is 1 on every token if the criterion has no place.
    Steps are the tokens that the policy sampled: a tool's answer takes no time. With several places m is the largest
    of theirs. A criterion whose rewards are all equal in a group, or that judged fewer than two of its completions,
    adds exactly 0. One criterion without a place is GRPO's advantage.

    With $\lambda = 1$ and `scale_rewards="none"` the gradient is unbiased, up to the factor (G - 1) / G that GRPO has,
    too, if every completion is judged and no token after a place changes its reward. With $\lambda = 0$ it is unbiased
    if, in addition, no token before a place changes the expected reward there: neither what is right nor the policy's
    chance of it. Where one does, what it should learn from that place is lost.

    Args:
        rewards (`torch.Tensor` of shape `(R, K)`):
            Reward of each criterion; NaN where a completion was not judged. The rows of a group are adjacent.
        starts, ends (`torch.Tensor` of shape `(R, K)` or `(R, K, P)`, integer):
            Places in tokens, -1 for no place.
        lengths (`torch.Tensor` of shape `(R,)`, integer):
            True lengths of the completions in tokens.
        width (`int`):
            Columns T of the result.
        num_generations (`int`):
            Completions in a group.
        weights (`torch.Tensor` of shape `(K,)`, *optional*):
            Weights w of the criteria. Defaults to 1 each.
        scale_rewards (`str`, *optional*, defaults to `"group"`):
            `"group"`, `"batch"` or `"none"`: TRL's meaning, criterion by criterion. The scale is the standard
            deviation (ddof 1) plus 1e-4, or 1.
        trace_lambda (`float`, *optional*, defaults to `0.0`):
            The decay lambda of credit before a place, 0 to 1. 0 is no credit there, 1 is full credit.
        all_rewards (`torch.Tensor` of shape `(N, K)`, *optional*):
            Rewards of the rows of all ranks, for `"batch"`. Defaults to `rewards`.
        sampled (`torch.Tensor` of shape `(R, width)`, bool, *optional*):
            Tokens that the policy sampled: not those of tools and environments. Defaults to all.

    Returns:
        `torch.Tensor` of shape `(R, width)`, float32, on the device of `rewards`; 0 past each row's length.

    Raises:
        ValueError: if a shape, a place, the scale or lambda does not fit, or a reward is infinite.
    """
    advantages = criterion_advantages(rewards, num_generations, scale_rewards, all_rewards)
    if starts.shape[:2] != rewards.shape:
        raise ValueError(
            f"`starts` and `ends` must be (R, K) or (R, K, P) for `rewards` of {len(rewards)} rows and "
            f"{rewards.shape[1]} criteria, got shape {tuple(starts.shape)}."
        )
    if weights is not None:
        advantages = advantages * _checked_weights(weights, rewards.shape[1])
    total = torch.zeros(len(rewards), width, dtype=torch.float64)
    for row, _, credit in placed_credit(advantages, starts, ends, lengths, width, trace_lambda, sampled):
        total[row] += credit
    return total.float().to(rewards.device)


def criterion_advantages(
    rewards: torch.Tensor,
    num_generations: int,
    scale_rewards: str = "group",
    all_rewards: torch.Tensor | None = None,
) -> torch.Tensor:
    """
    The advantage g of each criterion within its group: `(R, K)`, float64, on the CPU; 0 where it was not judged.

    Arguments and errors are those of [`span_advantages`].
    """
    rewards = _checked_rewards(rewards, num_generations)
    check_choice("scale_rewards", scale_rewards, SCALES)
    if not rewards.numel():
        return rewards
    by_group = "none" if scale_rewards == "batch" else scale_rewards
    advantages = outcome_advantages(rewards.T.reshape(-1), num_generations, by_group).view(-1, len(rewards))
    if scale_rewards == "batch":
        everyone = rewards if all_rewards is None else all_rewards.cpu().double()
        advantages = advantages / (nanstd(everyone.T.contiguous()) + EPSILON)
    return advantages.T.contiguous().nan_to_num(0.0)


def placed_credit(
    advantages: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    width: int,
    trace_lambda: float,
    sampled: torch.Tensor | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """
    What each criterion adds to the tokens of each completion: its advantage, `(R, K)`, times the share m.

    The work does not depend on how many criteria a batch has, but on how many of them credit a completion: first come
    the first ones of all rows, then the second ones, and so on. Arguments and errors are those of [`span_advantages`].

    Yields:
        Rows and criteria, `(n,)` each, no row twice, and the credit of their tokens, `(n, width)`, float64.
    """
    check_number("trace_lambda", trace_lambda, 1)
    check_lengths(lengths, len(starts), width, "lengths")
    starts, ends, lengths = _checked_places(starts, ends, lengths)
    inside = torch.arange(width) < lengths[:, None]
    steps = torch.ones_like(inside) if sampled is None else sampled.cpu()
    steps = torch.nn.functional.pad(steps.long().cumsum(dim=1), (1, 0))  # steps of time before each column
    teaches = advantages != 0
    nth = teaches.cumsum(dim=1)  # among those of its row, from 1
    for n in range(1, int(teaches.sum(dim=1).amax()) + 1):
        row, criterion = (teaches & (nth == n)).nonzero(as_tuple=True)
        share = _share_of_places(starts[row, criterion], ends[row, criterion], steps[row], trace_lambda)
        yield row, criterion, advantages[row, criterion, None] * share * inside[row]


def _share_of_places(start: torch.Tensor, end: torch.Tensor, steps: torch.Tensor, trace_lambda: float) -> torch.Tensor:
    """The share m of one criterion of n rows, whose places are `(n, P)`; `steps` are those before each column."""
    width, given = steps.shape[1] - 1, (start >= 0).long()
    begins = torch.zeros(len(start), width + 1, dtype=torch.long).scatter_add_(1, start.clamp(min=0), given)
    stops = torch.zeros_like(begins).scatter_add_(1, end.clamp(min=0), given)
    inside = (begins - stops).cumsum(dim=1)[:, :-1] > 0
    here_or_later = torch.where(begins > 0, torch.arange(width + 1), width + 1).flip(1).cummin(dim=1).values.flip(1)
    upcoming = here_or_later[:, :-1]  # the first token of the next place
    distance = steps.gather(1, upcoming.clamp(max=width)) - steps[:, :-1]
    distance = distance.clamp(min=1).masked_fill(inside, 0).double()  # a tool's answer just before it is a step away
    shares = torch.full_like(distance, trace_lambda) ** distance  # 0 ** 0 is 1: on the tokens of a place
    shares = shares.masked_fill(~inside & (upcoming > width), 0.0)
    return shares.masked_fill((given == 0).all(dim=1, keepdim=True), 1.0)


def _checked_rewards(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    if rewards.ndim != 2:
        raise ValueError(f"`rewards` must be (R, K), one column per criterion, got shape {tuple(rewards.shape)}.")
    check_groups("rewards", len(rewards), num_generations)
    if rewards.isinf().any():
        raise ValueError("`rewards` must be finite, or NaN where a completion was not judged, got infinity.")
    return rewards.detach().cpu().double()


def _checked_weights(weights: torch.Tensor, criteria: int) -> torch.Tensor:
    if weights.shape != (criteria,) or not weights.isfinite().all():
        raise ValueError(f"`weights` must be {criteria} finite numbers, one per criterion, got {weights.tolist()}.")
    return weights.detach().cpu().double()


def _checked_places(
    starts: torch.Tensor, ends: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places as `(R, K, P)`, and the lengths, on the CPU. Raises ValueError for a place outside of its completion."""
    if starts.shape != ends.shape or starts.ndim not in (2, 3) or any(p.is_floating_point() for p in (starts, ends)):
        raise ValueError(
            "`starts` and `ends` must be (R, K) or (R, K, P) integers, got shapes "
            f"{tuple(starts.shape)} and {tuple(ends.shape)}, dtypes {starts.dtype} and {ends.dtype}."
        )
    starts, ends, lengths = (tensor.detach().cpu() for tensor in (starts, ends, lengths))
    limit = lengths.view(-1, *[1] * (starts.ndim - 1))
    wrong = ~(((starts == -1) & (ends == -1)) | ((starts >= 0) & (starts < ends) & (ends <= limit)))
    if wrong.any():
        row, criterion = wrong.nonzero()[0][:2].tolist()
        got = starts[row, criterion].tolist(), ends[row, criterion].tolist()
        raise ValueError(
            f"a place must have 0 <= start < end <= length, or -1 for both; row {row}, criterion {criterion} of a "
            f"completion of {lengths[row]} tokens has start {got[0]} and end {got[1]}."
        )
    return (starts, ends, lengths) if starts.ndim == 3 else (starts[..., None], ends[..., None], lengths)
