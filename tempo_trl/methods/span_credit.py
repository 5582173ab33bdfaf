"""Span credit: rewards that say where. Each criterion is a GRPO of its own, on the tokens that decided it."""

import re
import warnings
from collections import Counter
from dataclasses import dataclass

import torch

from tempo_trl.config_help import with_help
from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_number
from tempo_trl.credit.spans import TRACE_LAMBDA, Criteria, criterion_advantages, placed_credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.report import Sums
from tempo_trl.trainers.span_rewards import by_logged_name
from tempo_trl.trainers.token_credit import TokenCreditTrainer

FIRST_BATCHES = 10  # before the trainer warns of a criterion that has trained nothing in any of them


def span_credit(
    batch: Batch, trace_lambda: float = TRACE_LAMBDA, scale: str = "group", with_outcome: bool = True
) -> Credit:
    r"""
    Span credit (ours).

    $$A_{i,t} = o_i + \sum_k w_k \, g_{i,k} \, m_{i,k,t}$$

    o is GRPO's advantage of the ordinary rewards. The second term is
    [`~tempo_trl.credit.spans.span_advantages`] of the batch's criteria.

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups, with criteria.
        trace_lambda (`float`, *optional*, defaults to `0.9`):
            Decay of credit on tokens before a place, 0 to 1, per token that the policy sampled.
        scale (`str`, *optional*, defaults to `"group"`):
            TRL's `scale_rewards`, criterion by criterion.
        with_outcome (`bool`, *optional*, defaults to `True`):
            Whether there is an o. Without `reward_funcs` the batch's rewards are the mean of the criteria, and o is 0.

    Returns:
        [`~tempo_trl.Credit`], with the whole return's advantage as `outcome` and that of each criterion as
        `criteria`.
    """
    spans, width = batch.criteria, batch.completion_ids.shape[1]
    own = spans.weights * criterion_advantages(spans.rewards, batch.num_generations, scale, spans.all_rewards)
    outcome = batch.outcome.double().nan_to_num(0.0) if with_outcome else torch.zeros(len(own), dtype=torch.float64)
    advantages = outcome[:, None].expand(-1, width).clone()
    counted = (batch.loss_mask & batch.counted[:, None]).double()
    of_outcome, sizes = (advantages.abs() * counted).sum(), torch.zeros_like(own)
    places = spans.starts, spans.ends, batch.lengths
    for row, criterion, credit in placed_credit(own, *places, width, trace_lambda, sampled=batch.turns >= 0):
        advantages[row] += credit
        sizes[row, criterion] = (credit.abs() * counted[row]).sum(dim=1)
    metrics = {"spans/placed": (sizes[spans.placed].sum().item(), (sizes.sum() + of_outcome).item())}
    metrics |= _flat_sums(spans, batch) | _credit_sums(spans, batch, sizes)
    return Credit(advantages.float(), metrics=metrics, outcome=outcome + own.sum(dim=1), criteria=own.float())


def _flat_sums(spans: Criteria, batch: Batch) -> Sums:
    """Criteria without two different rewards in their group / criteria that judged at least one of its completions."""
    judged = ~spans.rewards.isnan().unflatten(0, (-1, batch.num_generations)).all(dim=1)
    flat = (flat_groups(spans.rewards, batch.num_generations) & judged)[batch.counted_groups]
    return {"spans/flat": (flat.sum().item(), judged[batch.counted_groups].sum().item())}


def _credit_sums(spans: Criteria, batch: Batch, sizes: torch.Tensor) -> Sums:
    """Size of the credit of each criterion / completions that it judged. A weight of 0 beside others is meant."""
    judged = (spans.rewards.isfinite() & batch.counted[:, None]).sum(dim=0)
    watched = spans.weights.bool() | ~spans.weights.any()
    return by_logged_name("credit", spans, sizes.sum(dim=0), judged * watched)


@with_help
@dataclass
class SpanCreditConfig(TokenCreditConfig):
    r"""
    Configuration class for the [`SpanCreditTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and
    default, those of [`TokenCreditConfig`], and this one. `scale_rewards` scales each criterion by its own standard
    deviation.

    Args:
        trace_lambda (`float`, *optional*, defaults to `0.9`):
            Decay per token of a criterion's credit on the tokens before its place, 0 to 1. With 0.9 half of it is left
            after seven tokens. With 0 the credit lies on the place only: right where no earlier token changes the
            criterion's expected reward. With 1 all tokens up to the end of the place have it: the least bias and the
            most noise.
    """

    trace_lambda: float = TRACE_LAMBDA

    def check(self) -> None:
        """Validate the settings."""
        super().check()
        check_number("trace_lambda", self.trace_lambda, 1)


class SpanCreditTrainer(TokenCreditTrainer):
    """
    Trainer for rewards that say where (ours). The only change with respect to [`~trl.GRPOTrainer`] is the advantage:
    each criterion that a span reward function returns is a GRPO of its own within the group, and its advantage falls
    on the tokens of its place.

    Example:

    ```python
    import re

    from tempo_trl import SpanCreditConfig, SpanCreditTrainer, SpanReward


    def fields(texts, city, **columns):
        rewards = []
        for text, expected in zip(texts, city):
            found = re.search(r'"city": "([^"]*)"', text)
            place = found.span() if found else (None, None)
            right = float(bool(found) and found[1] == expected)
            rewards.append([SpanReward("city", right, *place)])
        return rewards


    trainer = SpanCreditTrainer(
        model="Qwen/Qwen3-0.6B",
        args=SpanCreditConfig(output_dir="run"),
        train_dataset=dataset,
        span_reward_funcs=fields,
    )
    ```

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`SpanCreditConfig`]. `reward_funcs` may be
            left out: the reward that TRL logs is then the weighted mean of the criteria. With both, they add.
        span_reward_funcs (`Callable` or a `list` of them):
            Functions that are called as TRL calls `reward_funcs`, also `async` ones, and with `texts`: `texts[i]` is
            completion i decoded with its special tokens. Each returns, for every completion, a list of
            [`~tempo_trl.SpanReward`] with characters of that text as place. The tokens of a place are all that share a
            character with it; a place that reaches the end of the text has the end-of-sequence token. Tokens of tools
            and environments are in the text and never in the loss. With several functions a criterion is called
            `FUNCTION/NAME`; functions of one name are numbered, such as `json_fields_2`.

    Raises:
        ValueError: if `args` is not a [`SpanCreditConfig`] or there is no span reward function; in training, on every
            rank, if one returns something else, with its name, the row and the criterion.
        RuntimeError: in training, on every rank, if one of the functions raises an error.

    Note:
        The off-policy mask reads the sign of the whole return's advantage: the outcome plus the criteria's weighted
        advantages. Completions are independent: trees are not grown.
    """

    _tag_names = ["trl", "span-credit"]
    _name = "SpanCredit"
    _config_cls = SpanCreditConfig
    method_name = "span_credit"
    reads_criteria = True

    def _prepare_credit(self):
        self._batches_of, self._trained = Counter(), set()  # by names in the log: with the criterion; with credit
        self._without_places = 0  # batches with credit, before the first with a place

    def _learn(self, totals):
        super()._learn(totals)
        self._watch_credit(totals.metrics)
        self._watch_places(totals.metrics)

    def _watch_credit(self, metrics: dict[str, float]) -> None:
        """Warn once of each criterion without credit, on any rank, in the first batches in which it was judged."""
        found = ((re.fullmatch("spans/(.+)/credit", name), size) for name, size in metrics.items())
        sizes = {match[1]: size for match, size in found if match}
        self._batches_of.update(sizes.keys())
        self._trained.update(name for name, size in sizes.items() if size)
        silent = [name for name in sizes if self._batches_of[name] == FIRST_BATCHES and name not in self._trained]
        if silent and self.accelerator.is_main_process:
            message = (
                f"Nothing was trained on {', '.join(silent)} in the first {FIRST_BATCHES} batches that had these "
                "criteria. Either all completions of a group have the same reward: make the criterion finer, or drop "
                "it. Or its `span_reward_weights` is 0. Or no token of its places was sampled by the policy, such as "
                "in a tool's answer: place it on the call, or raise `trace_lambda` above 0."
            )
            warnings.warn(message, UserWarning, stacklevel=2)

    def _watch_places(self, metrics: dict[str, float]) -> None:
        """Warn once if no criterion has had a place in the first batches."""
        if "spans/placed" not in metrics:  # nothing had credit
            return
        self._without_places = float("inf") if metrics["spans/placed"] else self._without_places + 1
        if self._without_places == FIRST_BATCHES and self.accelerator.is_main_process:
            message = (
                f"No criterion with credit had a place in the first {FIRST_BATCHES} batches, so that each trains all "
                "tokens of an answer. Return `start` and `end` with each `SpanReward`, or use GRPOTrainer."
            )
            warnings.warn(message, UserWarning, stacklevel=2)

    def credit(self, batch):
        return span_credit(
            batch,
            trace_lambda=self.args.trace_lambda,
            scale=self.args.scale_rewards,
            with_outcome=not self.span_rewards.are_the_reward,
        )
