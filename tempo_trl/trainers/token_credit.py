"""TRL's training loop with a credit function: it gets each scored batch, and returns the advantages to train on."""

import json
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainerCallback
from trl.trainer.grpo_trainer import EnvironmentFactory, RewardFunc, RolloutFunc

from tempo_trl.credit.importance import gspo_token_reference
from tempo_trl.credit.level_covariance import PairStatistics
from tempo_trl.credit.prefix_covariance import PrefixCovariance
from tempo_trl.trainers.base import BaseTrainer
from tempo_trl.trainers.batch import Batch, Credit, checked
from tempo_trl.trainers.checks import warn_of_what_was_not_saved
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.credit_arguments import (
    checked_functions,
    refuse_a_state_that_cannot_be_loaded,
    refuse_a_wrong_credit_func,
    refuse_missing_span_functions,
)
from tempo_trl.trainers.credit_log import log_credit
from tempo_trl.trainers.failures import Failures
from tempo_trl.trainers.merged_states import MergedStates
from tempo_trl.trainers.observations import ObservationKeyFunc
from tempo_trl.trainers.rank_reports import RankReport, gather_reports
from tempo_trl.trainers.recorder import Recorder
from tempo_trl.trainers.replaced import recorded_calls, replaced
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask
from tempo_trl.trainers.span_rewards import SpanRewardFunc, SpanRewards, drop_first_reward, mean_of_criteria
from tempo_trl.trainers.state_keys import StateKeys
from tempo_trl.trainers.step_rewards import StepRewardFunc, StepRewards
from tempo_trl.trainers.subclasses import keep_assigned, refuse_unknown_arguments, signature_without, watch_columns
from tempo_trl.trainers.whole_groups import batch_of
from tempo_trl.trainers.zero_advantages import over_rows, rows_with_credit

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from transformers import BitsAndBytesConfig

CreditFunc = Callable[[Batch], torch.Tensor | Credit]
COVARIANCE_FILE, STATE_FILE = "prefix_covariance.json", "credit_state.pt"  # in a checkpoint


class TokenCreditTrainer(BaseTrainer):
    """
    [`~trl.GRPOTrainer`] with advantages from your own function: one per token, or one per completion.

    `credit_func` is called with each scored [`Batch`], in training and in evaluation. It always gets whole groups,
    even if a group is split over several ranks. Generation, rewards, loss, logging and saving are TRL's.

    Example:

    ```python
    def length_discounted(batch: Batch) -> torch.Tensor:
        until_end = batch.lengths[:, None] - torch.arange(batch.completion_ids.shape[1])
        return batch.outcome.nan_to_num(0.0)[:, None] * 0.99 ** until_end.clamp(min=0)


    trainer = TokenCreditTrainer(model, reward_funcs, args, train_dataset, credit_func=length_discounted)
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
        ValueError: if `args` is not a [`TokenCreditConfig`] or `credit_func` is not callable; in training, on every
            rank, if it returns a wrong shape, or NaN or infinity on tokens of the loss, and if another of these
            functions or a `_state_key` returns something else than what is described here, or a state has other types.
        RuntimeError: in training, on every rank, if one of these functions or a `_state_key` raises an error.

    Note:
        Three parts of TRL are changed to keep the credit of each token:

        - Sequence-level importance ratios (`importance_sampling_level="sequence"`) become GSPO-token's, which have the
          same value and keep each token's advantage. A KL term that TRL multiplies by the ratio (`beta` with
          `use_bias_correction_kl`) also keeps its value, with the gradient of each token's own ratio.
        - The off-policy mask uses the sign of the outcome (`Credit.outcome`), not that of each token's advantage.
        - The table of completions shows the mean advantage over the tokens of a completion.

        To add a method, override [`_credit_function`] in a subclass; docs/contributing/new_method.md shows how.
    """

    _tag_names = ["trl", "token-credit"]
    _name = "TokenCredit"
    _config_cls = TokenCreditConfig
    method_name = "token_credit"  # its key in the table of methods
    reads_step_rewards = False  # whether a method's own credit function reads `Batch.step_rewards`
    reads_criteria = False  # ... and `Batch.criteria`
    reads_observations = False  # ... and `Batch.observations`

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        watch_columns(cls)
        own_credit = cls._credit_function is not TokenCreditTrainer._credit_function
        read = {"step_reward_funcs": cls.reads_step_rewards, "span_reward_funcs": cls.reads_criteria}
        unread = {"credit_func", *(name for name, is_read in read.items() if not is_read)} if own_credit else set()
        cls.__signature__ = signature_without(cls, unread if cls.__init__ is TokenCreditTrainer.__init__ else set())

    def __new__(cls, *args, **kwargs):
        refuse_unknown_arguments(cls, kwargs)  # else Python names this class, whatever was built
        return super().__new__(cls)

    def __init__(
        self,
        model: "str | PreTrainedModel | PeftModel",
        reward_funcs: RewardFunc | list[RewardFunc] | None = None,
        args: TokenCreditConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset
        | IterableDataset
        | DatasetDict
        | IterableDatasetDict
        | dict[str, Dataset | IterableDataset]
        | None = None,
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
        name, own = type(self).__name__, type(self)._credit_function is not TokenCreditTrainer._credit_function
        refuse_a_wrong_credit_func(credit_func, own, name)
        step_reward_funcs = checked_functions(
            "step_reward_funcs", step_reward_funcs, self.reads_step_rewards or not own, name
        )
        span_reward_funcs = checked_functions(
            "span_reward_funcs", span_reward_funcs, self.reads_criteria or not own, name
        )
        if self.reads_criteria:
            refuse_missing_span_functions(span_reward_funcs, name)
        if are_the_reward := bool(span_reward_funcs and reward_funcs in (None, [])):
            reward_funcs = [mean_of_criteria]
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
        self.prefix_covariance = PrefixCovariance()  # learned in every run: how well prefixes predict rewards
        self._given_credit_func = credit_func
        self.observation_key_func = observation_key_func
        self.step_rewards = StepRewards(self, step_reward_funcs) if step_reward_funcs else None
        if are_the_reward and len(self.reward_funcs) > 1:  # an environment has a reward of its own
            are_the_reward = False
            drop_first_reward(self)
        self.span_rewards = SpanRewards(self, span_reward_funcs, are_the_reward) if span_reward_funcs else None
        self.credit_func = self._credit_function()
        self._recorder, self._merged_states = Recorder(self), MergedStates(self)

    def _credit_function(self) -> CreditFunc:
        """The function from a [`Batch`] to its credit. This is the only method that a new method must override."""
        return self._given_credit_func

    @property
    def credit_name(self) -> str:
        """Name of the credit function, for messages and records."""
        function = self.credit_func
        function = getattr(function, "func", function)  # unwraps a functools.partial
        if function is None:  # PPO's credit needs more than a batch
            return type(self).__name__
        return getattr(function, "__qualname__", type(function).__name__)

    # Credit: when a batch has been sampled and scored

    def _generate_and_score_completions(self, inputs):
        due = self._recorder.is_due()
        names = ("_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies")
        forward = self._get_per_token_logps_and_entropies
        if due or self._given_credit_func is not None:
            forward = self._with_entropies(forward)
        failures = Failures(self.accelerator.process_index)
        keys = StateKeys(self, failures)
        judged = self.span_rewards.recorded(failures) if self.span_rewards else nullcontext([None])
        with (
            replaced(self, _get_per_token_logps_and_entropies=forward),
            keys.recorded(),
            judged as spans,
            recorded_calls(self, *names) as calls,
        ):
            output = super()._generate_and_score_completions(inputs)
        rows = ScoredRows.of(self, output, calls, keys.found, spans[0])
        self._assign_credit(rows, failures, due)
        self.tree_pass.number_rows(output)
        self.signal_share.number_groups(output)
        keep_assigned(output, type(self))
        return output

    def _with_entropies(self, forward: Callable) -> Callable:
        """TRL's forward pass over the sampled completions, with entropies as well if the model is the policy."""

        def with_entropies(model, *args, **kwargs):
            return forward(model, *args, **kwargs | ({"compute_entropy": True} if model is self.model else {}))

        return with_entropies

    def _assign_credit(self, rows: ScoredRows, failures: Failures, due: bool) -> None:
        """Replace GRPO's advantages in a scored batch by the method's; then learn, log and record."""
        batch, steps = batch_of(self, rows, failures)
        scores = [steps, rows.spans] if rows.spans else [steps]
        credit, report = None, RankReport()
        pairs = batch.pairs if batch.training else None
        with self._kept(failures):
            credit = self._own_credit(batch, rows)
            report = RankReport.of(credit, pairs, scores)
        reports = gather_reports(report, failures)
        self._use(rows.output, credit, any(report.drops_tokens for report in reports))
        self._learn(reports)
        self._log_credit(batch, rows, credit, reports)
        if due:
            self._recorder.record(batch, rows, credit)

    def _log_credit(
        self, batch: Batch, rows: ScoredRows, credit: Credit, reports: list[RankReport]
    ) -> dict[str, tuple[float, float]]:
        """[`~tempo_trl.trainers.credit_log.log_credit`]. A method may override this to read the sums."""
        sums = log_credit(self, batch, rows, credit, reports)
        if self._given_credit_func is not None or self.reads_observations:
            self._merged_states.warn(batch, rows, sums)
        return sums

    def _kept(self, failures: Failures) -> AbstractContextManager:
        """What keeps an error of the credit function until all ranks meet, after a block without collectives."""
        return failures.of(f"`credit_func` {self.credit_name}")

    def _own_credit(self, batch: Batch, rows: ScoredRows) -> Credit:
        """The credit of this rank's rows."""
        return checked(self.credit_func(batch), batch).rows(rows.place.own, rows.output["completion_ids"].shape[1])

    def _use(self, output: dict, credit: Credit, recount: bool) -> None:
        """Put the advantages and the loss mask into TRL's batch, and keep the outcome for the off-policy mask.

        `recount` is whether any rank removes tokens from the loss.
        """
        if credit.advantages.ndim == 2:
            outcome = output["advantages"] if credit.outcome is None else credit.outcome
            output["outcome_advantages"] = outcome.to(output["advantages"])
        output["advantages"] = credit.advantages.to(output["advantages"].device)
        if credit.loss_mask is not None:
            mask = output["completion_mask"]
            kept = credit.loss_mask.to(mask.device, mask.dtype)
            output["tool_mask"] = output.get("tool_mask", torch.ones_like(mask)) * kept
        if recount:
            output["num_items_in_batch"] = self.accelerator.gather(loss_mask(output).sum()).sum()

    def _learn(self, reports: list[RankReport]) -> None:
        """Learn from a batch after its credit was computed, so that a baseline does not depend on its own rewards."""
        if not self.model.training:
            return
        self.prefix_covariance.update(sum((report.pairs for report in reports), PairStatistics()))
        if hasattr(self.credit_func, "update"):
            self.credit_func.update([pickle.loads(report.statistics) for report in reports])
            if self.state.global_step == 0:
                refuse_a_state_that_cannot_be_loaded(self.credit_func, self.credit_name)
        for name, value in self._learned_metrics().items():
            self._metrics["train"][name].append(value)

    def _learned_metrics(self) -> dict[str, float]:
        """Metrics of the learned state, to be logged."""
        return {"tempo/prefix_explained": self.prefix_covariance.explained}

    # Loss

    def _compute_loss(self, model, inputs):
        forward, inputs = self._get_per_token_logps_and_entropies, dict(inputs)  # a copy: TRL reuses buffered batches
        kept = None
        if self.args.skip_zero_advantages and self.model.training and not self.tree_pass.is_untried:
            kept = rows_with_credit(inputs["advantages"])
            forward = over_rows(kept, forward, inputs)
        with self.signal_share.watching(inputs, kept), replaced(self, _get_per_token_logps_and_entropies=forward):
            return self._loss(model, inputs, super()._compute_loss)

    def _loss(self, model, inputs: dict, compute_loss: Callable) -> torch.Tensor:
        """
        TRL's loss of a micro-batch, with ratios and masks that keep each token's own advantage.

        Args:
            model (`torch.nn.Module`): The policy.
            inputs (`dict`): The micro-batch; it may be changed.
            compute_loss (`Callable`): TRL's own loss, a function of model and inputs.
        """
        forward = self._get_per_token_logps_and_entropies
        per_token, changes = inputs["advantages"].ndim == 2, {}
        if per_token:
            outcome, theirs = inputs["outcome_advantages"].unsqueeze(1), self.get_off_policy_mask

            def off_policy_mask(advantages, **kwargs):
                return theirs(outcome, **kwargs)

            changes = {"get_off_policy_mask": off_policy_mask}
            if self.importance_sampling_level == "sequence":  # TRL raises an error for any other level
                changes["importance_sampling_level"] = "token"

        def forward_with_reference(*args, **kwargs):
            logps, entropies, aux_loss = forward(*args, **kwargs)
            if per_token:
                self._put_reference(inputs, logps)
            return logps, entropies, aux_loss

        with replaced(self, _get_per_token_logps_and_entropies=forward_with_reference, **changes):
            return compute_loss(model, inputs)

    def _put_reference(self, inputs: dict, logps: torch.Tensor) -> None:
        """Replace the old log-probabilities so that TRL's token ratios become the method's, `(B, T)`."""
        if self.args.importance_sampling_level == "sequence" and "old_per_token_logps" in inputs:
            old = inputs["old_per_token_logps"]
            inputs["old_per_token_logps"] = gspo_token_reference(logps, old, loss_mask(inputs))

    # Checkpoints

    def _save_method(self, checkpoint):
        super()._save_method(checkpoint)
        (checkpoint / COVARIANCE_FILE).write_text(json.dumps(self.prefix_covariance.state_dict()))
        if hasattr(self.credit_func, "state_dict"):
            torch.save(self.credit_func.state_dict(), checkpoint / STATE_FILE)

    def _load_method(self, checkpoint):
        super()._load_method(checkpoint)
        covariance, state = checkpoint / COVARIANCE_FILE, checkpoint / STATE_FILE
        has_state = hasattr(self.credit_func, "load_state_dict")
        if covariance.exists():
            self.prefix_covariance.load_state_dict(json.loads(covariance.read_text()))
        if state.exists() and has_state:
            self.credit_func.load_state_dict(torch.load(state, map_location="cpu", weights_only=True))
        if self.accelerator.is_main_process:
            warn_of_what_was_not_saved([covariance, state] if has_state else [covariance])


TokenCreditTrainer.__signature__ = signature_without(TokenCreditTrainer, set())
