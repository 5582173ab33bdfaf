"""Compute on the tree: the log-probabilities of TRL's GRPO with each token that completions share computed once."""

import time
import warnings
from collections import defaultdict
from enum import Enum

import torch
from trl.models.utils import disable_gradient_checkpointing

from tempo_trl.tree_forward import pack_rows, register_tree_attention
from tempo_trl.tree_forward.config import TreeForwardFields
from tempo_trl.tree_forward.first_batch import FirstBatch, inattention
from tempo_trl.tree_forward.group_shuffle import ROW, keep_groups_together, warn_of_groups_cut_by_micro_batches
from tempo_trl.tree_forward.obstacles import obstacle

OF_TEXT = ("batch_size", "compute_entropy", "compute_aux_loss")  # arguments of a pass that are not of its images
NO_PASS = (0.0, 0.0, 0.0, 0.0)  # tokens, packed tokens, seconds, passes


class State(Enum):
    OFF = "off"
    UNTRIED = "to be measured on the first batch"
    IN_USE = "in use"


class TreeForward:
    """
    Computes policy, old and reference log-probabilities, and entropies, on the prefix tree of a micro-batch: a prompt
    once for all its completions, and whatever else these share once. Goes before [`~trl.GRPOTrainer`] among the bases
    of a trainer, and [`~tempo_trl.tree_forward.config.TreeForwardFields`] before [`~trl.GRPOConfig`]:

    ```python
    @dataclass
    class TreeGRPOConfig(TreeForwardFields, GRPOConfig): ...


    class TreeGRPOTrainer(TreeForward, GRPOTrainer): ...
    ```

    The numbers are TRL's, up to rounding. With `tree_forward="auto"` the log-probabilities of the first batch that
    trains, over all ranks, are measured against TRL's own. Where they differ by more than rounding, where the model or
    an option is not one that the tree computes, or where it would save too little, TRL's way is taken for the whole
    run, with one warning. With `"on"` each of the three is refused with a ValueError. A resumed run measures its own
    first batch.

    Micro-batches hold whole groups: TRL shuffles the rows of a generation batch before it splits them into
    micro-batches, which would scatter the completions of a prompt; here its groups are shuffled. An optimizer step
    over a whole generation batch has the same gradient. With several steps a generation, a step sees all completions
    of some prompts, instead of some completions of all prompts.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._tree_sums = defaultdict(lambda: NO_PASS)  # by mode, since it was last logged
        self._tree_state = State.OFF
        if isinstance(self.args, TreeForwardFields):
            self.args.check_tree_forward()  # again: fields can be set after the configuration was built
        if self._tree_forward != "off":
            register_tree_attention()
            self._tree_state = State.UNTRIED
            if (reason := self._tree_obstacle()) is not None:
                self._leave_the_tree(reason)
            elif self.accelerator.is_main_process:
                warn_of_groups_cut_by_micro_batches(self.args.per_device_train_batch_size, self.num_generations)

    @property
    def _tree_forward(self) -> str:
        return getattr(self.args, "tree_forward", "auto")  # whoever takes this class wants it

    def _tree_obstacle(self) -> str | None:
        """Why this trainer cannot compute on the tree, if it cannot. A subclass may know more reasons."""
        return obstacle(self)

    def _leave_the_tree(self, reason: str) -> None:
        if self._tree_forward == "on":
            raise ValueError(
                f"tree_forward='on' cannot be: {reason}. Change that, or set tree_forward='auto' or 'off'."
            )
        self._tree_state = State.OFF
        if self.accelerator.is_main_process:
            warnings.warn(f"tree_forward='auto' is off for this run: {reason}.", UserWarning, stacklevel=2)

    # Log-probabilities

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        batch = (model, input_ids, attention_mask, logits_to_keep)
        # Evaluation, where a prompt may have one completion, says nothing about the batches that train.
        early = self._tree_state is State.UNTRIED and self._tree_mode == "eval"
        if self._tree_state is State.OFF or early or _has_images(kwargs):
            return super()._get_per_token_logps_and_entropies(*batch, *args, **kwargs)
        if self._tree_state is State.IN_USE:
            return self._tree_logps(*batch, *args, **kwargs)
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            theirs = super()._get_per_token_logps_and_entropies(*batch, *args, **kwargs)
        # With its gradient, as this batch trains on the tree too: so a resumed run repeats the one that never stopped.
        ours = self._tree_logps(*batch, *args, **kwargs)
        tokens, packed, *_ = self._tree_sums[self._tree_mode]
        mask = attention_mask[:, -logits_to_keep:]
        self._judge(model, FirstBatch.of(ours[:2], theirs[:2], mask, tokens, packed))
        if self._tree_state is State.IN_USE:
            return ours
        return super()._get_per_token_logps_and_entropies(*batch, *args, **kwargs)

    def _tree_logps(
        self, model, input_ids, attention_mask, width, batch_size=None, compute_entropy=False, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """TRL's `(log-probabilities (B, T), entropies (B, T) or None, None)`, in its chunks of `batch_size` rows."""
        rows = batch_size or len(input_ids)
        chunks = zip(input_ids.split(rows), attention_mask.split(rows), strict=True)
        passes = [self._tree_pass(model, *chunk, width, compute_entropy) for chunk in chunks]
        logps, entropies = zip(*passes, strict=True)
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None

    def _tree_pass(self, model, input_ids, attention_mask, width, compute_entropy) -> tuple[torch.Tensor, ...]:
        start = time.perf_counter()
        packed = pack_rows(input_ids, attention_mask, width)
        self._first_paths = packed.paths if self._tree_state is State.UNTRIED else None
        # A mask of four dimensions is taken as it is: without one, transformers would guess from the positions that
        # independent sequences were packed, and mask one row's tokens from the next.
        unread = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=input_ids.device)
        config = self.accelerator.unwrap_model(model).config.get_text_config()
        # A router's loss would be computed, to be left aside, from a mask that is none.
        router = {"output_router_logits": False} if hasattr(config, "output_router_logits") else {}
        with self.accelerator.autocast():
            outputs = model(
                input_ids=packed.input_ids,
                position_ids=packed.position_ids,
                attention_mask=unread,
                shift_labels=packed.labels,
                fused_lm_head=True,
                tree=packed.paths,
                **router,
            )
        logps = packed.unpack(outputs.log_probs[0])
        entropies = packed.unpack(outputs.entropy[0]) if compute_entropy else None
        self._count_pass(packed.num_tokens, packed.input_ids.shape[1], time.perf_counter() - start)
        return logps, entropies

    def _count_pass(self, tokens: int, packed: int, seconds: float) -> None:
        counted = (tokens, packed, seconds, 1)
        sums = self._tree_sums[self._tree_mode]
        self._tree_sums[self._tree_mode] = [a + b for a, b in zip(sums, counted, strict=True)]

    @property
    def _tree_mode(self) -> str:
        return "train" if self.model.training else "eval"

    def _judge(self, model, own: FirstBatch) -> None:
        """Use the tree or leave it, on all ranks alike."""
        numbers = torch.tensor([own], dtype=torch.float64, device=self.accelerator.device)
        batch = FirstBatch.of_all_ranks(self.accelerator.gather(numbers))
        unwrapped = self.accelerator.unwrap_model(model)
        half = self.accelerator.mixed_precision != "no" or next(unwrapped.parameters()).dtype != torch.float32
        wrong = inattention(self._first_paths, unwrapped.config.get_text_config())
        wrong = batch.mistake(half or torch.backends.cuda.matmul.allow_tf32) or wrong or batch.too_little()
        self._tree_state = State.IN_USE
        if wrong is not None:
            self._leave_the_tree(wrong)

    # Micro-batches of whole groups

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if self._tree_state is not State.OFF and self.model.training:
            ids = output["completion_ids"]
            output[ROW] = torch.arange(len(ids), device=ids.device) + self.accelerator.process_index * len(ids)
        return output

    def _prepare_inputs(self, generation_batch):
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before or ROW not in self._buffered_inputs[0]:
            return inputs
        self._buffered_inputs = keep_groups_together(self._buffered_inputs, self.num_generations)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    # Metrics

    def log(self, logs, start_time=None):
        """Log metrics as TRL does, with `tempo/packing_ratio` and `tempo/tree_pass_seconds` over all ranks."""
        if self._tree_state is State.IN_USE:
            mode = self._tree_mode
            sums = torch.tensor(
                self._tree_sums.pop(mode, NO_PASS), dtype=torch.float64, device=self.accelerator.device
            )
            tokens, packed, seconds, passes = self.accelerator.reduce(sums, reduction="sum").tolist()
            if passes:
                self._metrics[mode]["tempo/packing_ratio"].append(tokens / packed)
                self._metrics[mode]["tempo/tree_pass_seconds"].append(seconds / passes)
        super().log(logs, start_time)


def _has_images(arguments: dict) -> bool:
    return any(value is not None and name not in OF_TEXT for name, value in arguments.items())
