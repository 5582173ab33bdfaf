"""TRL's training loop with a credit function: it gets each scored batch, and returns the advantages to train on."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

import torch
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainerCallback
from trl.trainer.grpo_trainer import EnvironmentFactory, RewardFunc, RolloutFunc
from trl.trainer.utils import get_callable_name

from tempo_trl.credit.batch import Batch, Credit, checked
from tempo_trl.credit.importance import gspo_token_reference
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers import checks
from tempo_trl.trainers.agents import ObservationKeyFunc, refuse_a_key_of_nothing, sees_answers, state_keys_read
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.credit_func import (
    refuse_a_state_that_cannot_be_loaded,
    refuse_a_state_that_would_be_lost,
    refuse_a_wrong_credit_func,
)
from tempo_trl.trainers.datasets import by_argument, check_datasets
from tempo_trl.trainers.recorder import Recorder
from tempo_trl.trainers.report import Report, Sums, Totals, log_totals, sums_of
from tempo_trl.trainers.reward_functions import checked_functions, refuse_reserved_columns, refuse_reserved_metrics
from tempo_trl.trainers.run import RunTrainer, refuse_missing_extras
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask, witnessed
from tempo_trl.trainers.span_rewards import (
    SpanRewardFunc,
    SpanRewards,
    drop_first_reward,
    mean_of_criteria,
    refuse_weights_of_no_reward,
)
from tempo_trl.trainers.step_rewards import StepRewardFunc, StepRewards
from tempo_trl.trainers.whole_groups import batch_of
from tempo_trl.trainers.zero_advantages import of_rows_with_credit
from tempo_trl.tree_forward.tree_pass import State

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from transformers import BitsAndBytesConfig

CreditFunc = Callable[[Batch], torch.Tensor | Credit]


class TokenCreditTrainer(RunTrainer):
    """
    [`~trl.GRPOTrainer`] with advantages from your own function: one per token, or one per completion.

    `credit_func` is called with each scored [`Batch`], in training and in evaluation. It always gets whole groups,
    even if a group is split over several ranks. Generation, rewards, loss, logging and saving are TRL's.

    Example:

    ```python
    def length_discounted(batch: Batch) -> torch.Tensor:
        positions = torch.arange(batch.completion_ids.shape[1])
        until_end = (batch.lengths[:, None] - positions).clamp(min=0)
        return batch.advantages.nan_to_num(0.0)[:, None] * 0.99**until_end


    trainer = TokenCreditTrainer(
        model, reward_funcs, args, train_dataset, credit_func=length_discounted
    )
    ```

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TokenCreditConfig`].
        credit_func (`Callable[[Batch], torch.Tensor | Credit]`):
            Takes a [`Batch`] and returns `(R, T)` or `(R,)` advantages, or a [`Credit`]. A credit function with a
            state is a callable object with `state_dict()` and `load_state_dict(state)`, which are saved in each
            checkpoint and restored by a resumed run, and `update(statistics)`, which is called in training with the
            `Credit.statistics` of all ranks. A state has tensors, numbers and strings, in lists, tuples and dicts.
        step_reward_funcs (`Callable`, `str`, `PreTrainedModel` or a `list` of them, *optional*):
            Rewards inside a completion, for `Batch.step_rewards`. A function is called as TRL calls `reward_funcs`
            and returns, for every completion, a list with a number or None for each turn (each step with
            `step_delimiter`). A process reward model is a path, or a model for token classification with the policy's
            vocabulary; it scores each step at its last token.
        span_reward_funcs (`Callable` or a `list` of them, *optional*):
            Rewards with a place, for `Batch.criteria`. A function is called as TRL calls `reward_funcs`, and with
            `texts`, the completions decoded with their special tokens. It returns, for every completion, a list of
            [`~tempo_trl.SpanReward`]. `reward_funcs` may then be left out: TRL logs the weighted mean of the criteria.
        observation_key_func (`Callable[[str], str]`, *optional*):
            Maps the text of a tool's or an environment's answer to the part that identifies the state, for
            `Batch.observations`: it may drop timestamps and ids. It gets the answer alone, without the chat template;
            the answers to several calls of a turn are joined by line breaks. By default answers are compared token by
            token. An environment with a method `_state_key() -> str | int` has its own keys, read just before each
            turn that is sampled. Keys are equal where Python says so: 1 and True are, 1 and "1" are not. Where a
            method does not read observations, such as GRPO-lambda, keys change metrics only.

    Raises:
        ValueError: if `args` is not a [`TokenCreditConfig`] or `credit_func` is not callable, or learns without a
            state to save and load; in training, on every rank, if it returns a wrong shape, or NaN or infinity on
            tokens of the loss, and if another of these functions or a `_state_key` returns something else than what is
            described here, or a state has other types.
        RuntimeError: in training, on every rank, if one of these functions or a `_state_key` raises an error.

    Note:
        Three parts of TRL are changed to keep the credit of each token:

        - Sequence-level importance ratios (`importance_sampling_level="sequence"`) become GSPO-token's, which have the
          same value and keep each token's advantage. A KL term that TRL multiplies by the ratio (`beta` with
          `use_bias_correction_kl`) also keeps its value, with the gradient of each token's own ratio.
        - The off-policy mask uses the sign of the whole completion's advantage (`Credit.outcome`), not that of each
          token's.
        - The table of completions shows the mean advantage over the tokens of a completion.

        With `importance_sampling_level="sequence"` and a `top_entropy_quantile` below 1, advantages per token train
        the tokens of high entropy only, where TRL's one ratio spreads their loss over all tokens.

        A run is also checked before it trains, goes on if the disk is full, says that the vLLM server has stopped, and
        resumes with the prompts of the uninterrupted run; a generation that was cut off is sampled again. With a
        stream (`IterableDataset`), whose length is unknown, this holds only within its first pass.

        To add a method, override [`credit`] in a subclass; docs/contributing/new_method.md shows how.
    """

    _tag_names = ["trl", "token-credit"]
    _name = "TokenCredit"
    _config_cls = TokenCreditConfig
    method_name = "token_credit"  # its key in the table of methods
    reads_step_rewards = False  # whether a method's own credit function reads `Batch.step_rewards`
    reads_criteria = False  # ... and `Batch.criteria`
    reads_observations = False  # ... and `Batch.observations`
    reads_columns = False  # ... and `Batch.columns`
    reads_trees = False  # ... and `Batch.tree_rollouts`

    def __init__(
        self,
        model: "str | PreTrainedModel | PeftModel",
        reward_funcs: RewardFunc | list[RewardFunc] | None = None,
        args: TokenCreditConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | dict[str, Dataset | IterableDataset] | None = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
        quantization_config: "BitsAndBytesConfig | None" = None,
        peft_config: "PeftConfig | None" = None,
        tools: list[Callable] | None = None,
        rollout_func: RolloutFunc | None = None,
        environment_factory: EnvironmentFactory | dict[str, EnvironmentFactory] | None = None,
        *,
        credit_func: CreditFunc | None = None,
        step_reward_funcs: StepRewardFunc | list[StepRewardFunc] | None = None,
        span_reward_funcs: SpanRewardFunc | list[SpanRewardFunc] | None = None,
        observation_key_func: ObservationKeyFunc | None = None,
    ):
        of_places = step_reward_funcs, span_reward_funcs
        step_reward_funcs, span_reward_funcs = self.check_functions(args, credit_func, *of_places, rollout_func)
        if are_the_reward := bool(span_reward_funcs and reward_funcs in (None, [])):
            refuse_weights_of_no_reward(args)
            reward_funcs = [mean_of_criteria]
        functions = by_argument(reward_funcs, step_reward_funcs, span_reward_funcs)
        refuse_missing_extras(functions["reward_funcs"])
        check_datasets(args, train_dataset, eval_dataset, functions, environment_factory is not None)
        super().__init__(
            model,
            reward_funcs,
            args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_processing_classes=reward_processing_classes,
            callbacks=callbacks,
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
            tools=tools,
            rollout_func=rollout_func,
            environment_factory=environment_factory,
        )
        self.credit_func, self.observation_key_func = credit_func, observation_key_func
        self.sees_answers = sees_answers(self)
        refuse_a_key_of_nothing(self)
        self.step_rewards = StepRewards(self, step_reward_funcs) if step_reward_funcs else None
        if are_the_reward and len(self.reward_funcs) > 1:  # an environment has a reward of its own
            are_the_reward = False
            drop_first_reward(self)
        self.span_rewards = SpanRewards(self, span_reward_funcs, are_the_reward) if span_reward_funcs else None
        self.learned = credit_func
        self._awaits_loss = False  # whether the loss below has still to see the advantages per token
        self._prepare_credit()
        refuse_a_state_that_would_be_lost(self.learned, self.credit_label)
        self._recorder = Recorder(self)

    # A method: what a subclass overrides

    def credit(self, batch: Batch) -> torch.Tensor | Credit:
        """The credit of whole groups, as described for `credit_func`. This is all that a new method must override."""
        return self.credit_func(batch)

    def _prepare_credit(self) -> None:
        """
        Create what credit needs beyond a batch, at the end of `__init__`. Does nothing here.

        A method that learns sets `learned`: an object with `update`, `state_dict` and `load_state_dict`, as described
        for `credit_func`, and `learned_metrics() -> dict[str, float]` for the log.
        """

    @classmethod
    def _has_own_credit(cls) -> bool:
        """Whether the trainer is a method, and not one for a function of the user's."""
        return cls.credit is not TokenCreditTrainer.credit

    @classmethod
    def check_functions(
        cls, args, credit_func=None, step_reward_funcs=None, span_reward_funcs=None, rollout_func=None, **others
    ) -> tuple[list, list]:
        """
        Functions of steps and spans as lists. Raises ValueError for functions, steps or trees that the method does not
        read, for functions that it lacks, and for another number of weights than of functions.
        """
        name, own = cls.__name__, cls._has_own_credit()
        refuse_a_wrong_credit_func(credit_func, own, name)
        if own and not cls.reads_trees and isinstance(rollout_func, TreeRollout):
            raise ValueError(f"`rollout_func` grows trees, which {name} does not read. Use TEMPOTrainer, for example.")
        if own and not cls.reads_step_rewards and getattr(args, "step_delimiter", None) is not None:
            raise ValueError(f"`step_delimiter` is {args.step_delimiter!r}, but {name} has no steps. Leave it out.")
        of_steps = step_reward_funcs, getattr(args, "step_reward_weights", None), not own or cls.reads_step_rewards
        of_spans = span_reward_funcs, getattr(args, "span_reward_weights", None), not own or cls.reads_criteria
        steps = checked_functions("step_reward_funcs", *of_steps, name)
        return steps, checked_functions("span_reward_funcs", *of_spans, name, cls.reads_criteria)

    def _check_first_batch(self, sums: Sums) -> None:
        """Look at the sums of the metrics of the first batch, over all ranks. Does nothing here."""

    @property
    def _advantage_floor(self) -> float | None:
        """Lower bound of the advantages that the credit function returns."""
        return self.args.advantage_floor

    @property
    def credit_name(self) -> str:
        """Name of the method or of the user's function, for records."""
        return type(self).__name__ if self.credit_func is None else get_callable_name(self.credit_func)

    @property
    def credit_label(self) -> str:
        """The same in an error: whose credit it is."""
        return f"{'the credit of' if self.credit_func is None else '`credit_func`'} {self.credit_name}"

    # A batch: what TRL samples and scores

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        """[`~trl.GRPOTrainer.evaluate`], whose first groups are recorded."""
        self._recorder.begin_evaluation(metric_key_prefix)
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def _prepare_inputs(self, generation_batch):
        theirs = super()._prepare_inputs
        if self.tree_pass.state is State.OFF:
            return theirs(generation_batch)
        return self.tree_pass.prepared(theirs, generation_batch)

    def _generate_and_score_completions(self, inputs):
        due = self.args.log_trees_steps > 0 and self._recorder.is_due()
        report, rows = Report(self.accelerator.process_index), ScoredRows()
        judge = None if self.span_rewards is None else partial(self._judged, report)
        keys = nullcontext()
        if self.environment_factories is not None and self.rollout_func is None:  # whose turns nobody counts
            keys = state_keys_read(self, rows.state_keys, report)
        with keys, witnessed(self, rows, judge):
            output = super()._generate_and_score_completions(inputs)
        self._assign_credit(rows.completed(self, output), report, due)
        return output

    def _judged(self, report: Report, rows: ScoredRows, rewards: torch.Tensor) -> torch.Tensor:
        """Let the `span_reward_funcs` judge the rows. Their mean is the reward that TRL gets if there is no other."""
        rows.criteria = self.span_rewards(rows, report)
        if self.span_rewards.are_the_reward:
            return self.span_rewards.mean_everywhere(rows.criteria, rewards.device)
        return rewards

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        checks.refuse_columns(inputs[0], self.span_rewards is not None)  # a stream has told its columns only now
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        checks.refuse_rewards_without_a_variance(rewards, self.reward_weights, self.reward_func_names)
        if self._pending_metrics or self._pending_extra_logs:
            refuse_reserved_metrics(self._pending_metrics)
            refuse_reserved_columns(self._pending_extra_logs, self.reward_func_names)
        return rewards

    # A batch: credit

    def _assign_credit(self, rows: ScoredRows, report: Report, due: bool) -> None:
        """Replace GRPO's advantages in a scored batch by the method's; then log, learn and record."""
        batch, credit = batch_of(self, rows, report), None
        with self._kept(report):
            credit = self._own_credit(batch, rows)
            if self.credit_func is not None:
                refuse_reserved_metrics(credit.metrics, "The credit function returned a metric {!r}")
            self._use(rows.output, credit)
            report.add_credit(rows, credit)
        with report.keeps_errors_of("the report of a batch"):
            report.add(sums_of(self, batch))
        totals = report.over_ranks(len(rows.inputs))
        rows.output["num_items_in_batch"] = torch.tensor(totals.tokens, device=self.accelerator.device)
        log_totals(self, totals)
        if batch.training:
            self._learn(totals)
        if due:
            self._recorder.record(batch, rows, credit)

    def _kept(self, report: Report) -> AbstractContextManager:
        """What keeps an error of the credit function until all ranks meet, after a block without collectives."""
        return report.keeps_errors_of(self.credit_label)

    def _own_credit(self, batch: Batch, rows: ScoredRows) -> Credit:
        """The credit of this rank's rows."""
        # What the credit adds is told from what it was given, even if it changes that in place.
        given = replace(batch, advantages=batch.advantages.clone(), outcome=batch.outcome.clone())
        return checked(self.credit(batch), given).rows(rows.place.own, rows.output["completion_ids"].shape[1])

    def _use(self, output: dict, credit: Credit) -> None:
        """Put the advantages and the loss mask into TRL's batch, and keep the outcome for the off-policy mask."""
        advantages, floor = credit.advantages, self._advantage_floor
        self._awaits_loss = advantages.ndim == 2
        if self._awaits_loss or credit.outcome is not None:
            outcome = output["advantages"] if credit.outcome is None else credit.outcome
            output["outcome"] = outcome.to(output["advantages"])
        if floor is not None:
            advantages = advantages.clamp(min=floor)
        output["advantages"] = advantages.to(output["advantages"].device)
        if credit.loss_mask is not None:
            mask = output["completion_mask"]
            kept = credit.loss_mask.to(mask.device, mask.dtype)
            output["tool_mask"] = output.get("tool_mask", torch.ones_like(mask)) * kept

    def _learn(self, totals: Totals) -> None:
        """Learn from a batch after its credit was computed, so that a baseline does not depend on its own rewards."""
        if hasattr(self.learned, "update"):
            self.learned.update(totals.statistics)
        if self.state.global_step == 0:
            refuse_a_state_that_cannot_be_loaded(self.learned, self.credit_label)
            self._check_first_batch(totals.sums)
        for name, value in getattr(self.learned, "learned_metrics", dict)().items():
            self._metrics["train"][name].append(value)

    # A micro-batch: the loss

    def training_step(self, model, inputs, num_items_in_batch):
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._awaits_loss:
            checks.refuse_a_loss_without_ours(type(self).__name__)
        self._after_backward()
        return loss

    def _after_backward(self) -> None:
        """What a method does after TRL's step on a micro-batch. Does nothing here."""

    def _compute_loss(self, model, inputs):
        self._awaits_loss = False
        return self._loss(model, dict(inputs), partial(self._trls_loss, super()._compute_loss))  # TRL reuses batches

    def _trls_loss(self, theirs: Callable, model, inputs: dict) -> torch.Tensor:
        """TRL's loss, whose one forward pass is [`_logps_of_the_loss`]. Other passes of a `_loss` are as in TRL."""
        forward = partial(self._logps_of_the_loss, inputs, self._get_per_token_logps_and_entropies)
        with patch.multiple(self, _get_per_token_logps_and_entropies=forward, **self._per_token(inputs)):
            return theirs(model, inputs)

    def _loss(self, model, inputs: dict, compute_loss: Callable) -> torch.Tensor:
        """TRL's loss of a micro-batch, `compute_loss(model, inputs)`. A method may override this to add to it."""
        return compute_loss(model, inputs)

    def _per_token(self, inputs: dict) -> dict:
        """What TRL's loss reads of the trainer that would not keep each token's own advantage."""
        changes, theirs = {}, self.get_off_policy_mask
        if "outcome" in inputs:  # else the mask reads the advantages themselves
            outcome = inputs["outcome"].unsqueeze(1)
            changes["get_off_policy_mask"] = lambda advantages, **kwargs: theirs(outcome, **kwargs)
        if inputs["advantages"].ndim == 2 and self.importance_sampling_level == "sequence":  # TRL refuses any other
            changes["importance_sampling_level"] = "token"
        return changes

    def _logps_of_the_loss(self, inputs: dict, forward: Callable, model, *args, **kwargs) -> tuple:
        """The one forward pass of a loss: of the rows with an advantage, then what their ratios are taken to."""
        is_tried = self.tree_pass.state is not State.UNTRIED  # which needs a batch like those to come
        if self.args.skip_zero_advantages and self.model.training and is_tried:
            forward = partial(of_rows_with_credit, forward, inputs)
        result = forward(model, *args, **kwargs)
        if inputs["advantages"].ndim == 2:
            inputs |= self._reference(inputs, result[0])
        return result

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        theirs = super()._get_per_token_logps_and_entropies
        if self.tree_pass.state is State.OFF:
            return theirs(*args, **kwargs)
        return self.tree_pass.logps(theirs, *args, **kwargs)

    def _reference(self, inputs: dict, logps: torch.Tensor) -> dict[str, torch.Tensor]:
        """Entries of the micro-batch with which TRL's token ratios become the method's: `old_per_token_logps`."""
        if self.args.importance_sampling_level != "sequence" or "old_per_token_logps" not in inputs:
            return {}
        return {"old_per_token_logps": gspo_token_reference(logps, inputs["old_per_token_logps"], loss_mask(inputs))}
