"""What every trainer here adds to TRL's `GRPOTrainer`, whatever its method: checks, clear faults, an exact resume."""

import warnings
from contextlib import ExitStack, contextmanager

from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import get_config_model_id

from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.rollout.tree_rollout import TreeRollout, check_trees_can_grow
from tempo_trl.rollout.vllm_server import advice_if_server_stops, samples_on_server, wait_for_server
from tempo_trl.trainers import checks, faults
from tempo_trl.trainers.precision import keep_outputs_in_float32
from tempo_trl.trainers.replaced import replaced
from tempo_trl.trainers.resumable_sampler import ResumableSampler
from tempo_trl.tree_forward.tree_pass import OnTree, TreePass


class BaseTrainer(OnTree, GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that refuses early what cannot train, survives a full disk, names a reward function that hangs
    and a vLLM server that is gone, computes on the prefix tree where asked to, and resumes with the prompts that the
    uninterrupted run would have seen; of a stream (`IterableDataset`) only within its first pass, since nobody knows
    where that ends.

    A subclass sets `_config_cls`, its configuration, which has a method `check()` that raises ValueError for what
    cannot be, and `_name`, which also ends a default `output_dir`.

    Args:
        model, reward_funcs, args, **keywords:
            As for [`~trl.GRPOTrainer`]; `args` is an instance of `_config_cls`.

    Raises:
        ValueError: if `args` is not one.
    """

    _config_cls = GRPOConfig

    def __init__(self, model: str | PreTrainedModel, reward_funcs=None, args: GRPOConfig | None = None, **keywords):
        model_name = model if isinstance(model, str) else get_config_model_id(model.config)
        args = self._checked_config(args, model_name)
        if (rollout := self._tree_rollout(args)) is not None:
            keywords["rollout_func"] = _only_rollout(rollout, keywords.get("rollout_func"))
        wait_for_server(args, model_name)
        with warnings.catch_warnings():
            if rollout is not None:  # TRL warns of an experimental feature that the user did not ask for
                warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
            super().__init__(model, reward_funcs, args, **keywords)
        if isinstance(self.rollout_func, TreeRollout):
            check_trees_can_grow(self, self.rollout_func.grower)
        self._model_name = model_name  # for messages
        checks.check_trainer(self)
        self.tree_pass = TreePass(self, self._tree_obstacle())

    def create_accelerator_and_postprocess(self):
        """Make the accelerator as Trainer does, and let outputs stay in float32 under FSDP2."""
        super().create_accelerator_and_postprocess()
        keep_outputs_in_float32(self.accelerator)

    def _checked_config(self, args: GRPOConfig | None, model_name: str) -> GRPOConfig:
        if args is None:
            method = self._name.replace("_", "-")
            args = self._config_cls(f"{model_name.split('/')[-1]}-{method}")
        if not isinstance(args, self._config_cls):
            raise ValueError(
                f"`args` must be a {self._config_cls.__name__}, got {type(args).__name__}. It takes every field of "
                "GRPOConfig: change the name where you build it."
            )
        checks.check_settings(args)
        args.check()  # again: fields can be set after the configuration was built
        return args

    def _tree_rollout(self, args: GRPOConfig) -> TreeRollout | None:
        """The rollout of a method whose completions are grown as trees; None where TRL samples them."""
        return None

    def _get_train_sampler(self, dataset=None):
        checks.refuse_less_than_a_generation(self)
        # The epoch counts in fractions: 1.9999999 is two whole ones.
        return ResumableSampler(super()._get_train_sampler(dataset), lambda: int((self.state.epoch or 0) + 1e-6))

    def _generate_single_turn(self, *args, **kwargs):
        training = self.model.training
        try:
            with self._watched_server():
                return super()._generate_single_turn(*args, **kwargs)
        finally:
            self.model.train(training)  # TRL's continuous batching leaves it in training mode, in evaluation too

    def _generate(self, prompts):
        if not isinstance(self.rollout_func, TreeRollout):
            return super()._generate(prompts)
        with self._watched_server():
            return super()._generate(prompts)  # sends the weights before trees grow, outside of a single turn

    @contextmanager
    def _watched_server(self):
        """Say what to do if the vLLM server stops, and end the run if that happens while weights are sent to it."""
        place = self.args, self._model_name, self.state.global_step
        with ExitStack() as stack:
            stack.enter_context(advice_if_server_stops(*place))
            if samples_on_server(self.args) and self.accelerator.is_main_process:
                sync_weights = end_if_server_dies(*place)(self.vllm_generation.sync_weights)
                stack.enter_context(replaced(self.vllm_generation, sync_weights=sync_weights))
            yield

    def _tokenize_prompts(self, prompts):
        tokenized = super()._tokenize_prompts(prompts)
        checks.warn_of_long_prompts(tokenized[0], checks.room_for_prompts(self))
        return tokenized

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        patience = self.args.ddp_timeout / 2
        with faults.watch_rewards(patience, self.accelerator.process_index, self.reward_func_names):
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def log(self, logs, start_time=None):
        """Log metrics and the table of completions, as TRL does. A disk that refuses the table does not end a run."""
        self.tree_pass.log()
        try:
            super().log(logs, start_time)
        except OSError as error:
            if not faults.is_of_the_completions_table(error):
                raise
            path = faults.completions_path(self.args, self.state.global_step)
            faults.remove_if_torn(path)
            faults.warn_of_a_refused_table(path.parent, error)

    def _save_rng_state(self, output_dir):
        if self.args.should_save:
            self._save_method(output_dir)
        super()._save_rng_state(output_dir)
        # Rank 0 now writes trainer_state.json, which makes the checkpoint a whole one: only with every rank's files.
        self.accelerator.wait_for_everyone()

    def _save_method(self, checkpoint: str) -> None:
        """Write what a method has learned into a checkpoint, on the main process. Nothing here."""


def _only_rollout(grows_trees: TreeRollout, given: object) -> TreeRollout:
    if given is not None:
        raise ValueError(
            "`rollout_func` must be None: this method grows its completions as trees by one of its own. Leave it out, "
            "or take a method that samples them independently (TEMPOTrainer with rollout='iid')."
        )
    return grows_trees
