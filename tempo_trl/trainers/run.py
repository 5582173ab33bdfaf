"""A run of TRL's `GRPOTrainer` whose settings and samples are checked, and that resumes exactly."""

import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel
from transformers.trainer_pt_utils import get_dataloader_sampler
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer
from trl.trainer.utils import get_config_model_id

from tempo_trl.rewards.mean_reward import without_options
from tempo_trl.rollout.completion_rules import end_token_ids
from tempo_trl.rollout.tree_rollout import TreeRollout, check_trees_can_grow, only_rollout
from tempo_trl.rollout.vllm_server import wait_for_server
from tempo_trl.runs.log import refuse_a_torn_checkpoint
from tempo_trl.runs.messages import content_parts, valid_text
from tempo_trl.trainers import checks, settings
from tempo_trl.trainers.faults import surviving_table, watched_server
from tempo_trl.trainers.reward_functions import distinct_names
from tempo_trl.trainers.rollout_func import checked_rollout
from tempo_trl.trainers.turns_together import every_rank_in_every_turn
from tempo_trl.trainers.zero_advantages import refuse_models_that_see_all_rows
from tempo_trl.tree_forward.tree_pass import TreePass

PACKAGES = ("trl.rewards.", "tempo_trl.rewards.")
# Functions by name, with the number of lists that they take.
NEED_AN_EXTRA = {"math_reward": 2, "accuracy_reward": 2, "reasoning_accuracy_reward": 2}
STATE_FILE, REFERENCE_FILE = "credit_state.pt", "reference_model.pt"  # in a checkpoint


class RunTrainer(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] with additions to a whole run, for any method. A stream (`IterableDataset`) resumes exactly
    only within its first pass, because its length is unknown.

    A subclass sets `_config_cls`, a configuration whose method `check()` raises ValueError for invalid settings, and
    `_name`, which is also the suffix of the default `output_dir`.

    Args:
        model, reward_funcs, args, **keywords:
            As for [`~trl.GRPOTrainer`]; `args` is an instance of `_config_cls`.

    Raises:
        ValueError: if `args` is not an instance of `_config_cls`.
    """

    _config_cls = GRPOConfig
    learned: object = None  # what a method, or a function of the user, learns; it may have a state to save

    def __init__(self, model: str | PreTrainedModel, reward_funcs=None, args: GRPOConfig | None = None, **keywords):
        self._model_name = model if isinstance(model, str) else get_config_model_id(model.config)  # for messages
        args = settings.checked_config(args, self._config_cls, self._model_name, self._name)
        if (rollout := self._tree_rollout(args)) is not None:
            keywords["rollout_func"] = only_rollout(rollout, keywords.get("rollout_func"))
        wait_for_server(args, self._model_name)
        # Copies, because TRL adds the rewards of environments to the lists that it is given.
        reward_funcs = [*reward_funcs] if isinstance(reward_funcs, list) else reward_funcs
        keywords = {name: [*given] if isinstance(given, list) else given for name, given in keywords.items()}
        with warnings.catch_warnings():
            if rollout is not None:  # TRL warns that `rollout_func` is experimental, but the user did not set it
                warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
            super().__init__(model, reward_funcs, args, **keywords)
        self.reward_func_names = distinct_names(self.reward_func_names)  # TRL merges metrics and columns of one name
        # TRL does not know the end tokens of `generation_kwargs`: it would train on the padding behind them, and count
        # completions that end with them as truncated.
        self.eos_token_ids = [*self.eos_token_ids, *(end_token_ids(self) - {*self.eos_token_ids})]
        if isinstance(self.rollout_func, TreeRollout):
            check_trees_can_grow(self.args, self.rollout_func.grower, self)
        checks.refuse_tools_without_a_length(self)
        checks.refuse_a_missing_end_token(self)
        checks.refuse_stop_strings_that_are_not_found(self)
        checks.refuse_one_seed_for_single_completions(self)
        if getattr(args, "skip_zero_advantages", False):
            refuse_models_that_see_all_rows(self)
        self.tree_pass = TreePass(self, self._tree_obstacle())

    def _tree_rollout(self, args: GRPOConfig) -> TreeRollout | None:
        """The rollout of a method that grows completions as trees; None if TRL samples the completions."""
        return None

    def _tree_obstacle(self) -> str | None:
        """The method's own reason why it cannot compute on the tree, or None."""
        return None

    def create_accelerator_and_postprocess(self):
        """Create the accelerator as Trainer does, and keep model outputs in float32 under FSDP2."""
        super().create_accelerator_and_postprocess()
        keep_outputs_in_float32(self.accelerator)

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        """
        [`~trl.GRPOTrainer.train`].

        Raises:
            ValueError: a file of the checkpoint breaks off.
            RuntimeError: no step was trained although there should be some.
        """
        last = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        if last:
            refuse_a_torn_checkpoint(Path(last))
        result = super().train(resume_from_checkpoint, *args, **kwargs)
        checks.refuse_a_run_without_a_step(self)
        return result

    def _run_epoch(self, *args, **kwargs):
        if kwargs["epoch"] == kwargs["epochs_trained"]:  # the first of a run
            # Checkpoints lack the generator of TRL's sampler: draw the orders of the epochs that were trained before.
            sampler = get_dataloader_sampler(kwargs["train_dataloader"])
            for _ in range(kwargs["epochs_trained"]):
                next(iter(sampler), None)
            # TRL counts batches of the trainer, not of the run: a resumed run's generations would span the prompts of
            # two, and a second `train()` would begin with what is left of the first one's last generation.
            skipped = 0 if self.args.ignore_data_skip else kwargs["steps_trained_in_current_epoch"]
            self._step, self._buffered_inputs = skipped, None
        # Trainer asks whether the run is at its end after each step only: resumed at its end, it would train one more.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)

    def _generate(self, prompts):
        prompts[:] = valid_text(prompts)  # in place, because rewards and logs read the same list
        rollout, around = self.rollout_func, ExitStack()
        if not isinstance(prompts[0], str):  # TRL parses what the model wrote into messages
            parse = grpo_trainer.parse_response
            around.enter_context(
                patch.object(grpo_trainer, "parse_response", lambda *a, **k: valid_text(parse(*a, **k)))
            )
        if isinstance(rollout, TreeRollout):
            around.enter_context(self._watched_server())  # TRL sends the weights before trees are grown
        elif rollout is not None:
            around.enter_context(patch.object(self, "rollout_func", checked_rollout(rollout)))
        with around:
            return super()._generate(prompts)

    def _generate_single_turn(self, *args, **kwargs):
        training = self.model.training
        try:
            with self._watched_server():
                return super()._generate_single_turn(*args, **kwargs)
        finally:
            self.model.train(training)  # TRL's continuous batching always leaves the model in training mode

    def _tool_call_loop(self, prompts, prompt_ids, completion_ids, completions, logprobs, images, *fields):
        with every_rank_in_every_turn(self, prompt_ids[0], images and images[0]):
            return super()._tool_call_loop(prompts, prompt_ids, completion_ids, completions, logprobs, images, *fields)

    def _watched_server(self) -> AbstractContextManager:
        return watched_server(self, self._model_name) if self.use_vllm else nullcontext()

    def _get_tool_suffix_ids(self, tool_messages):
        for message in tool_messages:
            message["content"] = valid_text(message["content"])
        suffix_ids = super()._get_tool_suffix_ids(tool_messages)
        for message in tool_messages:  # after it, because the policy sees what the template makes of any list
            if isinstance(message["content"], list):
                message["content"] = content_parts(message["content"])
        return suffix_ids

    def _tokenize_prompts(self, prompts):
        tokenized = super()._tokenize_prompts(prompts)
        if [] in tokenized[0]:
            raise ValueError(
                f"The prompt in row {tokenized[0].index([])} has no tokens, expected at least one. Drop the row, or "
                "begin the prompt with a token, such as that of the beginning of a sequence."
            )
        return tokenized

    def log(self, logs, start_time=None):
        """Log metrics and the table of completions, as TRL does. A failure to write the table does not end the run."""
        self.tree_pass.log()
        with surviving_table(self):
            super().log(logs, start_time)

    def _save_checkpoint(self, model, trial):
        # First, because the checkpoint counts as complete, and may be pushed, once TRL has written its part.
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            self._save_method(folder)
            if self.args.sync_ref_model and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
                torch.save(self.ref_model.state_dict(), folder / REFERENCE_FILE)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        # Trainer calls this in every resumed run, before any batch. It restores generators in an epoch only, which a
        # finished run does not begin.
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_method(Path(checkpoint))
            if self.args.sync_ref_model:
                reference = Path(checkpoint, REFERENCE_FILE)
                checks.refuse_a_missing_reference(reference)
                self.ref_model.load_state_dict(torch.load(reference, map_location="cpu", weights_only=True))

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        # Rank 0 writes trainer_state.json next, which marks the checkpoint as complete: wait for every rank's files.
        self.accelerator.wait_for_everyone()

    def _save_method(self, checkpoint: Path) -> None:
        """Write what was learned to a checkpoint, on the main process."""
        if hasattr(self.learned, "state_dict"):
            torch.save(self.learned.state_dict(), checkpoint / STATE_FILE)

    def _load_method(self, checkpoint: Path) -> None:
        """Read what [`_save_method`] wrote, on every rank."""
        if not hasattr(self.learned, "load_state_dict"):
            return
        state = checkpoint / STATE_FILE
        if state.exists():
            self.learned.load_state_dict(torch.load(state, map_location="cpu", weights_only=True))
        elif self.accelerator.is_main_process:
            checks.warn_of_what_was_not_saved(state)


def keep_outputs_in_float32(accelerator: Accelerator) -> None:
    """
    Keep the log-probabilities that a model returns in float32 under FSDP2 with mixed precision.

    accelerate's mixed-precision policy for FSDP2 casts the outputs of the model to half precision, after accelerate's
    own conversion to float32. That rounds the log-probabilities (by 0.008 nats on average on a small model in
    bfloat16), and with them all ratios, KL terms and entropies. The computation inside the model does not change.

    Call this before any model is prepared: accelerate reads the policy then, for the reference model, too.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None or plugin.fsdp_version != 2 or plugin.mixed_precision_policy is None:
        return
    if plugin.mixed_precision_policy.output_dtype in (torch.bfloat16, torch.float16):
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, output_dtype=None)


def refuse_missing_extras(reward_funcs: Iterable) -> None:
    """
    Call each known reward function without completions, before a model is loaded and a batch is sampled.

    Raises:
        ImportError: the package that a function needs is not installed; the message is that of the function.
    """
    for function in map(without_options, reward_funcs):
        lists = NEED_AN_EXTRA.get(getattr(function, "__name__", None))
        if lists and f"{function.__module__}.".startswith(PACKAGES):
            function(*[[]] * lists)
