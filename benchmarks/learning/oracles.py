r"""Credit from perfect knowledge of a task, for `credit_func` in a recipe: how far could better credit go?

An oracle knows V[i, t], the probability that completion i is right given its first t tokens, as far as the task says:

    chain   the worst reward of the batch after a slip; until then the mean reward of those completions of the batch
            that have not slipped by token t
    plan    (1 - f)^k, with k digits to come at the failure rate f of the plan that was written; 0 after a failed
            digit; the mean reward of the group before the first token

and after the last token the reward itself. There are two ways to use it, with the rewards r, and the standard
deviation s of the group's rewards (plus 1e-4, as GRPO scales them):

    TD          A[i, t] = (r[i] - mean(r) + V[i, t + 1] - V[i, t]) / s      TEMPO's equation with another V
    baseline    A[i, t] = (r[i] - V[i, t]) / s

A group with equal rewards has no scale and gets 0, as in GRPO.

Note:
    The chain's oracle is not exact. A later slip cancels an earlier one about one time in ten, which it learns at the
    last token only; and what a completion without a slip is worth depends on the policy, so it is estimated from the
    batch, whose problems are all alike, with the completion's own reward as one of 32 or 256. The plan's oracle is
    exact for a policy that writes well-formed completions and does not know the luck.
"""

from collections.abc import Callable
from functools import cache, partial

import torch

from benchmarks.learning.chain import slip_index
from benchmarks.learning.plan import success_along
from tempo_trl import Batch
from tempo_trl.credit import td_errors
from tempo_trl.credit.advantages import flat_groups, outcome_scale

Values = Callable[[Batch], torch.Tensor]  # float64 (R, T + 1); column t is the state after t tokens


def chain_values(batch: Batch) -> torch.Tensor:
    """V on the chain, with or without wording: `(R, T + 1)`, float64."""
    width, rewards = batch.completion_ids.shape[1], batch.rewards.double()
    slips = [slip_index(*pair) for pair in zip(batch.columns["prompt"], texts(batch), strict=True)]
    slipped_at = torch.tensor([width if slip is None else slip for slip in slips])
    return _to_the_end(batch, hopeful_values(slipped_at, rewards, width))


def hopeful_values(lost_at: torch.Tensor, rewards: torch.Tensor, width: int) -> torch.Tensor:
    """The mean reward of the completions that are not lost after t tokens; the worst of all for those that are."""
    hopeful = torch.arange(width + 1) <= lost_at[:, None]
    mean = (hopeful * rewards[:, None]).sum(0) / hopeful.sum(0).clamp(min=1)
    return torch.where(hopeful, mean, rewards.min())


def plan_values(batch: Batch) -> torch.Tensor:
    """V on the plan: `(R, T + 1)`, float64."""
    values = _group_means(batch)[:, None].repeat(1, batch.completion_ids.shape[1] + 1)
    for own, problem, text in zip(values, batch.columns["prompt"], texts(batch), strict=True):
        own[1 : len(text) + 1] = torch.tensor(success_along(problem, text))
    return _to_the_end(batch, values)


def oracle_td(batch: Batch, values: Values) -> torch.Tensor:
    """The outcome plus the true TD errors, `(R, T)`: `A[i, t] = (r[i] - mean(r) + V[i, t + 1] - V[i, t]) / s`."""
    outcome = batch.rewards.double() - _group_means(batch)
    return scaled(batch, outcome[:, None] + td_errors(values(batch), batch.lengths))


def oracle_baseline(batch: Batch, values: Values) -> torch.Tensor:
    """The outcome minus the true value before the token, `(R, T)`: `A[i, t] = (r[i] - V[i, t]) / s`."""
    return scaled(batch, batch.rewards.double()[:, None] - values(batch)[:, :-1])


# What a recipe's `credit_func` names.
chain_td, chain_baseline = (partial(use, values=chain_values) for use in (oracle_td, oracle_baseline))
plan_td, plan_baseline = (partial(use, values=plan_values) for use in (oracle_td, oracle_baseline))


def texts(batch: Batch) -> list[str]:
    """The completions with one character per token and without EOS. Other special tokens are `<`, always a slip."""
    tokenizer = _tokenizer()
    rows = [ids[:length].tolist() for ids, length in zip(batch.completion_ids, batch.lengths, strict=True)]
    tokens = [
        tokenizer.convert_ids_to_tokens(ids[:-1] if ids[-1:] == [tokenizer.eos_token_id] else ids) for ids in rows
    ]
    return ["".join(token[0] for token in row) for row in tokens]


@cache
def _tokenizer():
    from tempo_trl.demo.policy import character_tokenizer

    return character_tokenizer()


def _group_means(batch: Batch) -> torch.Tensor:
    """Mean reward of each completion's group, `(R,)`, float64."""
    groups = batch.rewards.double().view(-1, batch.num_generations)
    return groups.mean(1).repeat_interleave(batch.num_generations)


def _to_the_end(batch: Batch, values: torch.Tensor) -> torch.Tensor:
    """`values` with the reward itself from the end of each completion on."""
    over = torch.arange(values.shape[1]) >= batch.lengths[:, None]
    return torch.where(over, batch.rewards.double()[:, None], values)


def scaled(batch: Batch, differences: torch.Tensor) -> torch.Tensor:
    """Differences of rewards, `(R, T)`, in units of GRPO's advantages, float32; 0 in groups with equal rewards."""
    size = batch.num_generations
    flat = flat_groups(batch.rewards, size).repeat_interleave(size)
    scale = outcome_scale(batch.rewards.double(), size, "group")
    return (differences / scale[:, None]).masked_fill(flat[:, None], 0.0).float()
