"""The interface between TRL's loop and a method: a scored [`Batch`] of whole groups as input, [`Credit`] as output."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.grown_tree import GrownTree, repeated_rows, row_weights
from tempo_trl.credit.prefix_covariance import PairStatistics, pair_statistics
from tempo_trl.credit.prefix_tree import PrefixTree, build_prefix_tree
from tempo_trl.credit.returns import TurnRewards
from tempo_trl.credit.spans import Criteria
from tempo_trl.credit.turns import first_steps


@dataclass(frozen=True, eq=False)
class Batch:
    """
    A scored batch of whole groups: the input of a credit function. Every tensor is on the CPU.

    The R rows are completions; `num_generations` adjacent rows are a group. If a group is split over several ranks,
    each of them gets all of its rows.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`, int64):
            Token ids, right-padded. Padding is never read.
        lengths (`torch.Tensor` of shape `(R,)`, int64):
            True lengths in tokens.
        rewards (`torch.Tensor` of shape `(R,)`):
            TRL's weighted sum of the reward functions, NaN if no function scored the completion.
        rewards_per_func (`torch.Tensor` of shape `(R, F)`):
            Reward of each function, unweighted, NaN where it did not score.
        advantages (`torch.Tensor` of shape `(R,)`):
            GRPO's advantage as computed by TRL, NaN where unscorable.
        outcome (`torch.Tensor` of shape `(R,)`):
            The same, but exactly 0 in groups whose rewards are equal up to rounding
            ([`~tempo_trl.credit.advantages.flat_groups`]), where TRL's is the rounding error over 1e-4.
        num_generations (`int`):
            Rows in a group.
        prompts (`torch.Tensor` of shape `(R,)`, int64):
            Equal where the state before the first token is equal ([`~tempo_trl.trainers.whole_groups.prompt_keys`]).
        loss_mask (`torch.Tensor` of shape `(R, T)`, bool):
            Tokens of the loss: inside a completion, sampled by the policy, and not masked as truncated.
        turns (`torch.Tensor` of shape `(R, T)`, int64):
            Index of the assistant turn of a token, starting at 0; -1 for tokens of tools and environments and for
            padding.
        steps (`torch.Tensor` of shape `(R, T)`, int64):
            Index of the step of a token, where `step_delimiter` cuts turns into steps; without it the same as `turns`.
        counted (`torch.Tensor` of shape `(R,)`, bool):
            The rows that this rank counts in sums that are reduced over ranks: those of groups that begin on it. Each
            row of the whole batch is counted by exactly one rank.
        observations (`torch.Tensor` of shape `(R, N)`, int64, *optional*):
            Key of what the policy saw just before each step: the prompt (column 0), or what tools and environments
            answered. Equal keys mean equal observations after equal prompts, or the same `_state_key` of an
            environment. 0 where a row has no such step. A `credit_func` always gets them; None where no method reads
            them and there are no tools.
        columns (`dict[str, list]`, *optional*):
            The dataset's columns of each row, the prompt among them. A `credit_func` always gets them; empty where no
            method reads them.
        training (`bool`, *optional*, defaults to `True`):
            False in evaluation.
        logps (`torch.Tensor` of shape `(R, T)`, *optional*):
            Log-probabilities of the tokens under the policy that sampled them, if TRL computed them (with several
            updates per generation, or vLLM).
        entropies (`torch.Tensor` of shape `(R, T)`, *optional*):
            Entropies in nats of the policy's distributions at `temperature`, without truncation (such as `top_p`) and
            penalties, if `logps` come from TRL's own forward pass.
        tree_rollouts (`list[GrownTree]`, *optional*):
            The trees whose leaves are the completions, one per group; None for independent samples.
        step_rewards (`torch.Tensor` of shape `(R, N)`, *optional*):
            Weighted sum of the `step_reward_funcs` for each step, NaN where none gave a number; None without them.
        all_rewards ([`~tempo_trl.credit.returns.TurnRewards`], *optional*):
            The rewards of the rows of all ranks, the same on each of them, with `scale_rewards="batch"`. Its `turns`
            have one column per step. None means that the R rows are all there are.
        criteria ([`~tempo_trl.credit.spans.Criteria`], *optional*):
            What the `span_reward_funcs` judged: names, rewards `(R, K)`, places in tokens `(R, K, P)` and weights;
            None without them.
        seen_ids (`torch.Tensor` of shape `(R, T)`, int64, *optional*):
            The tokens as credit compares them, where answers may have images: these have the same tokens whatever
            they show, so that an answer with images begins with a number for what they show. Defaults to
            `completion_ids`.
        reward_sizes (`torch.Tensor` of shape `(R,)`, *optional*):
            Sum of the absolute weighted rewards of each completion, to which the rounding of `rewards` is relative.
        step_sizes (`torch.Tensor` of shape `(R, N)`, *optional*):
            The same of `step_rewards`.
    """

    completion_ids: torch.Tensor
    lengths: torch.Tensor
    rewards: torch.Tensor
    rewards_per_func: torch.Tensor
    advantages: torch.Tensor
    outcome: torch.Tensor
    num_generations: int
    prompts: torch.Tensor
    loss_mask: torch.Tensor
    turns: torch.Tensor
    steps: torch.Tensor
    counted: torch.Tensor
    observations: torch.Tensor | None = None
    columns: dict[str, list] = field(default_factory=dict)
    training: bool = True
    logps: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    tree_rollouts: list[GrownTree] | None = None
    step_rewards: torch.Tensor | None = None
    all_rewards: TurnRewards | None = None
    criteria: Criteria | None = None
    seen_ids: torch.Tensor | None = None
    reward_sizes: torch.Tensor | None = None
    step_sizes: torch.Tensor | None = None

    @property
    def turn_rewards(self) -> TurnRewards:
        """The rewards of the R rows, from which returns are computed."""
        return TurnRewards(self.rewards, self.steps, self.step_rewards, self.reward_sizes, self.step_sizes)

    @property
    def seen_before_turns(self) -> torch.Tensor:
        """
        Key of what was seen before each turn, `(R, N)`, int64; 0 where a row has no such turn.

        Without `observations` a row has one turn, and has seen its prompt.
        """
        if self.observations is None:
            return self.prompts[:, None]
        first = first_steps(self.turns, self.steps)
        return self.observations.gather(1, first.clamp(min=0)).masked_fill(first < 0, 0)

    @property
    def flat_groups(self) -> torch.Tensor:
        """Groups without two completions that differ in a reward, of whole completions, steps or criteria, bool."""
        rewards = [self.outcome[:, None].double()]
        rewards += [self.step_rewards.double().nan_to_num(0.0)] if self.step_rewards is not None else []
        rewards += [self.criteria.rewards.double()] if self.criteria is not None else []
        return flat_groups(torch.cat(rewards, dim=1), self.num_generations).all(dim=1)

    @cached_property
    def tree(self) -> PrefixTree:
        """The prefix trees of the groups."""
        seen = self.completion_ids if self.seen_ids is None else self.seen_ids
        return build_prefix_tree(seen.numpy(), self.lengths.numpy(), self.num_generations, self.prompts.numpy())

    @property
    def weights(self) -> torch.Tensor | None:
        """Weights of the completions in their group, `(R,)`; None if all weights are equal."""
        return None if self.tree_rollouts is None else row_weights(self.tree_rollouts)

    @property
    def counted_groups(self) -> torch.Tensor:
        """The groups that begin on this rank, `(R / num_generations,)`, bool."""
        return self.counted[:: self.num_generations]

    @cached_property
    def pairs(self) -> PairStatistics | None:
        """Statistics of the pairs of counted completions, from which methods learn. None in evaluation.

        They are summed over ranks. Repeated leaves of grown trees are skipped.
        """
        if not self.training:
            return None
        outcome = self.outcome.masked_fill(~self.counted, torch.nan)
        if self.tree_rollouts is not None:
            outcome = outcome.masked_fill(repeated_rows(self.tree_rollouts), torch.nan)
        return pair_statistics(self.tree, outcome)


_OF_TOKENS = {"advantages", "added", "loss_mask"}
_OF_ROWS = _OF_TOKENS | {"outcome", "criteria", "reference"}


@dataclass(frozen=True, eq=False)
class Credit:
    """
    The output of a credit function for a [`Batch`].

    Args:
        advantages (`torch.Tensor` of shape `(R, T)` or `(R,)`):
            Advantage of each token, or one per completion as in GRPO. Values of tokens outside the loss are ignored.
            NaN counts as 0 for completions that no reward function scored.
        added (`torch.Tensor` of shape `(R, T)`, *optional*):
            The part of the advantage that the method adds to the outcome, for metrics, report and recorded trees: to
            `outcome`, if the method gives both, else to `batch.outcome`. It is not used for training. Defaults to 0
            where `advantages` are TRL's own (`batch.advantages`), elsewhere to `advantages` minus `batch.outcome`.
        metrics (`dict[str, tuple[float, float]]`, *optional*):
            Maps a name to (numerator, denominator). The ratio of their sums over ranks is logged under that name, so
            compute both over `batch.counted` rows.
        loss_mask (`torch.Tensor` of shape `(R, T)`, bool, *optional*):
            False removes a token from the loss.
        weights (`torch.Tensor` of shape `(R,)`, *optional*):
            Weights of the completions in their group's prefix values, for recorded trees. They sum to 1 per group.
            Defaults to equal weights.
        outcome (`torch.Tensor` of shape `(R,)`, *optional*):
            Advantage of the whole completion, if the method has another one than TRL: the off-policy mask reads its
            sign. Defaults to `advantages` if these are one per completion, else to `batch.advantages`.
        criteria (`torch.Tensor` of shape `(R, K)`, *optional*):
            Advantage of each of `batch.criteria`, for report, table of completions and recorded trees.
        statistics (`object`, *optional*):
            Data from which a method with a state learns. In training the trainer gathers it from all ranks and calls
            the method's `update(list)` with the same list on every rank.
        reference (`torch.Tensor` of shape `(R,)`, *optional*):
            The outcome that `added` is added to. [`checked`] sets it.
    """

    advantages: torch.Tensor
    added: torch.Tensor | None = None
    metrics: dict[str, tuple[float, float]] = field(default_factory=dict)
    loss_mask: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    outcome: torch.Tensor | None = None
    criteria: torch.Tensor | None = None
    statistics: Any = None
    reference: torch.Tensor | None = None

    def rows(self, own: slice, width: int) -> "Credit":
        """The credit of the rows `own`, and of their first `width` tokens. The weights stay those of whole groups."""
        cut = {name: value[own] for name, value in vars(self).items() if name in _OF_ROWS and value is not None}
        cut |= {name: cut[name][:, :width] for name in _OF_TOKENS & cut.keys() if cut[name].ndim == 2}
        return replace(self, **cut)


def checked(given: Any, batch: Batch) -> Credit:
    """
    Validate the result of a credit function and return it as a [`Credit`]: float32 on the CPU, finite, with `added`.

    Raises:
        ValueError: if it is neither a tensor nor a [`Credit`], has a wrong shape, or has NaN or infinity on loss
            tokens.
    """
    credit = given if isinstance(given, Credit) else Credit(given)
    tokens, rows = batch.completion_ids.shape, batch.lengths.shape
    advantages = _float_tensor("advantages", credit.advantages, tokens, rows)
    per_token = advantages if advantages.ndim == 2 else advantages[:, None].expand(tokens)
    _refuse_what_is_not_finite(per_token, batch)
    outcome, reference = credit.outcome, batch.outcome.float().nan_to_num(0.0)
    if outcome is not None:
        outcome = _float_tensor("outcome", outcome, rows).nan_to_num(0.0)
    added = credit.added
    if added is None:
        added = (per_token - reference[:, None]) * (per_token != batch.advantages[:, None])
    elif outcome is not None:
        reference = outcome
    added = _float_tensor("added", added, tokens).nan_to_num(0.0, 0.0, 0.0)
    mask = credit.loss_mask
    if mask is not None:
        mask = _float_tensor("loss_mask", mask, tokens).bool()
    advantages = torch.where(advantages.isfinite(), advantages, 0.0)
    own = {"advantages": advantages, "added": added, "loss_mask": mask, "outcome": outcome}
    return replace(credit, **own, reference=reference)


def _float_tensor(name: str, value: Any, *shapes: torch.Size) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.shape not in shapes:
        got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        kinds = {1: "completion", 2: "token of `batch.completion_ids`"}
        expected = ", or ".join(f"{tuple(shape)}, one number per {kinds[len(shape)]}" for shape in shapes)
        raise ValueError(f"`{name}` must be a tensor of shape {expected}; got {got}.")
    if value.is_complex():
        raise ValueError(f"`{name}` must have a real dtype, got {value.dtype}.")
    return value.detach().to("cpu", torch.float32)


def _refuse_what_is_not_finite(advantages: torch.Tensor, batch: Batch) -> None:
    """Raise ValueError for NaN or infinity on tokens of the loss, except for NaN on unscorable completions."""
    unscorable = batch.rewards.isnan()[:, None] & advantages.isnan()
    wrong = batch.loss_mask & ~advantages.isfinite() & ~unscorable
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"`advantages` must be finite on every token of the loss (`batch.loss_mask`), got {int(wrong.sum())} "
            f"non-finite values, the first at row {row}, token {column}: {advantages[row, column].item()}."
        )
