"""The base of all trainers: TRL's `GRPOTrainer` with early checks, clear errors and an exact resume."""

import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer
from trl.trainer.utils import get_config_model_id

from tempo_trl.rollout.completion_rules import end_token_ids
from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.rollout.tree_rollout import TreeRollout, check_trees_can_grow
from tempo_trl.rollout.vllm_server import advice_if_server_stops, samples_on_server, wait_for_server
from tempo_trl.runs.messages import valid_text
from tempo_trl.runs.printing import replacing_unprintable
from tempo_trl.trainers import checks, faults
from tempo_trl.trainers.completion_table import readable_table
from tempo_trl.trainers.credit_log import keep_td_share
from tempo_trl.trainers.given_rollout import checked_rollout
from tempo_trl.trainers.logged_names import refuse_reserved_columns, refuse_reserved_metrics
from tempo_trl.trainers.precision import keep_outputs_in_float32
from tempo_trl.trainers.replaced import replaced
from tempo_trl.trainers.resumable_sampler import ResumableSampler
from tempo_trl.trainers.reward_extras import refuse_missing_extras
from tempo_trl.trainers.signal_share import SignalShare
from tempo_trl.trainers.subclasses import warnings_at_the_caller
from tempo_trl.tree_forward.tree_pass import OnTree, TreePass


class BaseTrainer(OnTree, GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] with additions that do not depend on the method: it validates the run before training, goes on
    if the disk is full, reports which reward function hangs or that the vLLM server stopped, computes on the prefix
    tree with `tree_forward`, and resumes with the prompts that the uninterrupted run would have used. A stream
    (`IterableDataset`) resumes exactly only within its first pass, because its length is unknown.

    A subclass sets `_config_cls`, a configuration whose method `check()` raises ValueError for invalid settings, and
    `_name`, which is also the suffix of the default `output_dir`.

    Args:
        model, reward_funcs, args, **keywords:
            As for [`~trl.GRPOTrainer`]; `args` is an instance of `_config_cls`.

    Raises:
        ValueError: if `args` is not an instance of `_config_cls`.
    """

    _config_cls = GRPOConfig

    def __init__(self, model: str | PreTrainedModel, reward_funcs=None, args: GRPOConfig | None = None, **keywords):
        model_name = model if isinstance(model, str) else get_config_model_id(model.config)
        args = self._checked_config(args, model_name)
        refuse_missing_extras(reward_funcs if isinstance(reward_funcs, list) else [reward_funcs])
        if (rollout := self._tree_rollout(args)) is not None:
            keywords["rollout_func"] = _only_rollout(rollout, keywords.get("rollout_func"))
        wait_for_server(args, model_name)
        with warnings_at_the_caller(), warnings.catch_warnings():
            if rollout is not None:  # TRL warns that `rollout_func` is experimental, but the user did not set it
                warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
            super().__init__(model, reward_funcs, args, **keywords)
        # TRL does not know the end tokens of `generation_kwargs`: it would train on the padding behind them, and count
        # completions that end with them as truncated.
        self.eos_token_ids = [*self.eos_token_ids, *(end_token_ids(self) - {*self.eos_token_ids})]
        if isinstance(self.rollout_func, TreeRollout):
            check_trees_can_grow(self, self.rollout_func.grower)
        self._model_name = model_name  # for messages
        checks.check_trainer(self)
        self.tree_pass = TreePass(self, self._tree_obstacle())
        self.signal_share = SignalShare(self)

    def create_accelerator_and_postprocess(self):
        """Create the accelerator as Trainer does, and keep model outputs in float32 under FSDP2."""
        super().create_accelerator_and_postprocess()
        keep_outputs_in_float32(self.accelerator)

    def _checked_config(self, args: GRPOConfig | None, model_name: str) -> GRPOConfig:
        if args is None:
            method = self._name.replace("_", "-")
            args = self._config_cls(f"{model_name.split('/')[-1]}-{method}")
        if not isinstance(args, self._config_cls):
            raise ValueError(
                f"`args` must be a {self._config_cls.__name__}, got {type(args).__name__}. Create a "
                f"{self._config_cls.__name__} instead: it has every field of GRPOConfig."
            )
        checks.check_settings(args)
        args.check()  # again, because fields can be set after the configuration was created
        return args

    def _tree_rollout(self, args: GRPOConfig) -> TreeRollout | None:
        """The rollout of a method that grows completions as trees; None if TRL samples the completions."""
        return None

    def _get_train_sampler(self, dataset=None):
        checks.refuse_less_than_a_generation(self)
        # The epoch is a fraction with rounding errors: 1.9999999 means two whole epochs.
        return ResumableSampler(super()._get_train_sampler(dataset), lambda: int((self.state.epoch or 0) + 1e-6))

    def train(self, *args, **kwargs):
        """[`~trl.GRPOTrainer.train`]. Raises RuntimeError if no step was trained although there should be some."""
        result = super().train(*args, **kwargs)
        checks.refuse_a_run_without_a_step(self)
        return result

    def _run_epoch(self, *args, **kwargs):
        # Trainer asks whether the run is at its end after each step only: resumed at its end, it would train one more.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)

    def _generate_single_turn(self, *args, **kwargs):
        training = self.model.training
        try:
            with self._watched_server():
                return super()._generate_single_turn(*args, **kwargs)
        finally:
            self.model.train(training)  # TRL's continuous batching always leaves the model in training mode

    def _generate(self, prompts):
        prompts[:] = valid_text(prompts)  # in place, because rewards and logs read the same list
        parse, rollout = grpo_trainer.parse_response, self.rollout_func
        grows = isinstance(rollout, TreeRollout)
        if not (grows or rollout is None):
            rollout = checked_rollout(rollout)
        with (
            replaced(grpo_trainer, parse_response=lambda *args, **keywords: valid_text(parse(*args, **keywords))),
            replaced(self, rollout_func=rollout),
            self._watched_server() if grows else nullcontext(),  # TRL sends the weights before trees are grown
        ):
            return super()._generate(prompts)

    def _get_tool_suffix_ids(self, tool_messages):
        for message in tool_messages:
            message["content"] = valid_text(message["content"])
        return super()._get_tool_suffix_ids(tool_messages)

    @contextmanager
    def _watched_server(self):
        """Add advice to the error if the vLLM server stops, and end the run if it stops while weights are sent."""
        place = self.args, self._model_name, self.state.global_step
        with ExitStack() as stack:
            stack.enter_context(advice_if_server_stops(*place))
            if samples_on_server(self.args) and self.accelerator.is_main_process:
                sync_weights = end_if_server_dies(*place)(self.vllm_generation.sync_weights)
                stack.enter_context(replaced(self.vllm_generation, sync_weights=sync_weights))
            yield

    def _tokenize_prompts(self, prompts):
        tokenized = super()._tokenize_prompts(prompts)
        change = "Drop the row, or begin the prompt with a token, such as that of the beginning of a sequence"
        checks.refuse_empty_rows(tokenized[0], "prompt", change)
        checks.warn_of_long_prompts(tokenized[0], checks.room_for_prompts(self))
        return tokenized

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        patience = self.args.ddp_timeout / 2
        with faults.watch_rewards(patience, self.accelerator.process_index, self.reward_func_names):
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        checks.refuse_rewards_without_a_variance(rewards, self.reward_weights, self.reward_func_names)
        refuse_reserved_metrics(self._pending_metrics)
        refuse_reserved_columns(self._pending_extra_logs, self.reward_func_names)
        return rewards

    def log(self, logs, start_time=None):
        """Log metrics and the table of completions, as TRL does. A failure to write the table does not end the run."""
        self.tree_pass.log()
        self.signal_share.log()
        keep_td_share(self._metrics["train" if self.model.training else "eval"])
        shown = self.log_completions and self.accelerator.is_main_process
        try:
            with replacing_unprintable(), readable_table(self) if shown else nullcontext():
                super().log(logs, start_time)
        except OSError as error:
            if not faults.is_of_the_completions_table(error):
                raise
            path = faults.completions_path(self.args, self.state.global_step)
            faults.remove_if_torn(path)
            faults.warn_of_a_refused_table(path.parent, error)

    def _save_checkpoint(self, model, trial):
        # First, because the checkpoint counts as complete, and may be pushed, once TRL has written its part.
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            self._save_method(folder)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        # Trainer calls this in every resumed run, before any batch. It restores generators in an epoch only, which a
        # finished run does not begin.
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_method(Path(checkpoint))

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        # Rank 0 writes trainer_state.json next, which marks the checkpoint as complete: wait for every rank's files.
        self.accelerator.wait_for_everyone()

    def _save_method(self, checkpoint: Path) -> None:
        """Write the method's learned state to a checkpoint, on the main process. Does nothing here."""

    def _load_method(self, checkpoint: Path) -> None:
        """Read what [`_save_method`] wrote, on every rank. Does nothing here."""


def _only_rollout(grows_trees: TreeRollout, given: object) -> TreeRollout:
    if given is not None:
        raise ValueError(
            "`rollout_func` must be None, got a function: this method grows its completions as trees, with its "
            "own rollout. Remove it, or use a method that samples independently (TEMPOTrainer with rollout='iid')."
        )
    return grows_trees
