"""Measure `tempo/signal_share` in the backward pass of training: how much of the batch's gradient is signal."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.credit.gradient_signal import WIDTH, group_sketches, random_signs, signal_and_square
from tempo_trl.tree_forward.obstacles import is_compiled, splits_rows
from tempo_trl.tree_forward.paths import Paths

GROUP = "generation_group"  # key in a scored batch: index of each row's group among those of all ranks, `(B,)`


class SignalShare(TrainerCallback):
    """
    Measures the share of signal in the gradient of each optimizer step, if `log_signal_share` is set.

    The gradient is that of a linear map on the policy's last hidden state: the sum over tokens of the outer product of
    the loss's gradient at that state, which the backward pass computes anyway, and the state. Each group's gradient is
    summed as a sketch ([`~tempo_trl.credit.gradient_signal.group_sketches`]) over micro-batches and ranks. Gradients
    of the parameters do not change, and no other pass is made.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`.

    Raises:
        ValueError: if `log_signal_share` is set and the hidden states of whole rows cannot be read, or if an optimizer
            step sees one group only.
    """

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer
        self.on = getattr(trainer.args, "log_signal_share", False)
        if not self.on:
            return
        refuse_hidden_states_that_cannot_be_read(trainer)
        refuse_steps_of_one_group(trainer.args, trainer.num_generations)
        model = trainer.model
        if hasattr(model, "get_base_model"):  # of an adapter
            model = model.get_base_model()
        self._trunk = model.base_model
        self._signs: torch.Tensor | None = None  # until the first gradient shows the size of a hidden state
        device, num_groups = trainer.accelerator.device, trainer.args.generation_batch_size // trainer.num_generations
        self._sketches = torch.zeros(num_groups, WIDTH, device=device)  # of this rank's part of the optimizer step
        self._rows = torch.zeros(num_groups, device=device)
        self._logged = torch.zeros(2, device=device)  # signal and square, summed over the steps since the last log
        trainer.add_callback(self)

    def number_groups(self, output: dict) -> None:
        """Add each row's group, numbered over the generation batch of all ranks, to a scored training batch."""
        if self.on and self.trainer.model.training:
            ids = output["completion_ids"]
            row = torch.arange(len(ids), device=ids.device) + self.trainer.accelerator.process_index * len(ids)
            output[GROUP] = row // self.trainer.num_generations

    @contextmanager
    def watching(self, inputs: dict, kept: torch.Tensor | None) -> Iterator[None]:
        """
        Add a micro-batch to the step when the loss that the block computes is backpropagated.

        Args:
            inputs (`dict`):
                The micro-batch.
            kept (`torch.Tensor` of shape `(B,)`, bool, *optional*):
                Rows that the forward pass sees; by default all.
        """
        if GROUP not in inputs:  # switched off, or an evaluation
            yield
            return
        groups, width = inputs[GROUP], inputs["completion_ids"].shape[1]
        seen = groups if kept is None else groups[kept]

        def watch(module, args, kwargs, output):
            hidden = output.last_hidden_state
            if hidden.requires_grad:  # not in the passes that only compare the tree with TRL's way
                of_position, ambiguous = group_of_positions(seen, width, hidden, kwargs.get("tree"))
                hidden.register_hook(partial(self._add, hidden.detach(), groups, of_position, ambiguous))

        handle = self._trunk.register_forward_hook(watch, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _add(self, hidden, groups, of_position, ambiguous, gradient) -> None:
        """Add a micro-batch, given the gradient at its hidden states. Returns None, so the gradient stays as it is."""
        device, used = self._rows.device, of_position.shape[1]
        if self._signs is None:
            self._signs = random_signs(hidden.shape[2]).to(device)
        states, gradients = (x[:, -used:].flatten(0, 1).to(device) for x in (hidden, gradient))
        with torch.autocast(device.type, enabled=False):
            sketches = group_sketches(gradients, states, of_position.flatten(), len(self._rows), self._signs)
        self._sketches += sketches.masked_fill(ambiguous, torch.nan)
        self._rows.index_add_(0, groups, torch.ones_like(groups, dtype=self._rows.dtype))

    def on_step_end(self, *args, **kwargs) -> None:
        """Finish an optimizer step, over all ranks."""
        sums = signal_and_square(*self.trainer.accelerator.reduce((self._sketches, self._rows), reduction="sum"))
        self._logged += torch.where(sums.isfinite().all(), sums, 0.0)
        self._sketches.zero_()
        self._rows.zero_()

    def log(self) -> None:
        """Add `tempo/signal_share` of the steps since the last log to the metrics that TRL logs next."""
        if self.on and self.trainer.model.training:
            signal, square = self._logged.tolist()
            if square:
                self.trainer._metrics["train"]["tempo/signal_share"].append(signal / square)
            self._logged.zero_()


def group_of_positions(
    groups: torch.Tensor, width: int, hidden: torch.Tensor, tree: Paths | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Group of the last P positions of the hidden states, those before them having no gradient.

    Args:
        groups (`torch.Tensor` of shape `(B,)`, int64):
            Group of each row.
        width (`int`):
            Number T of columns whose tokens are predicted.
        hidden (`torch.Tensor` of shape `(B, L, H)`, or `(1, N, H)` on the tree):
            Hidden states.
        tree ([`~tempo_trl.tree_forward.Paths`], *optional*):
            The rows' paths through a packed stream.

    Returns:
        Groups of the positions, `(B, P)` or `(1, P)`, and whether a position predicts a token of two groups, `()`.
        This happens on the tree if groups have equal prompts; then no gradient belongs to one group.
    """
    if tree is None:
        assert len(hidden) == len(groups), "the forward pass must see these rows of the micro-batch"
        return groups[:, None].expand(-1, width + 1), groups.new_zeros((), dtype=torch.bool)
    predictors = tree.predictors
    of_position = groups.new_zeros(hidden.shape[1] + 1)  # the last entry takes the padding, whose predictor is -1
    of_position[predictors] = groups[:, None].expand_as(predictors)
    ambiguous = (of_position[predictors] != groups[:, None]) & (predictors >= 0)
    return of_position[None, :-1], ambiguous.any()


def refuse_hidden_states_that_cannot_be_read(trainer: GRPOTrainer) -> None:
    """Raise ValueError if the model is compiled, or if ranks share rows."""
    reason = None
    if is_compiled(trainer):
        reason = "torch.compile, which skips hooks on hidden states. Unset torch_compile and dynamo_backend"
    if splits_rows(trainer):
        reason = "context, sequence or tensor parallelism, which split rows. Unset accelerate's parallelism_config"
    if reason is not None:
        raise ValueError(f"`log_signal_share=True` is not supported with {reason}, or set log_signal_share=False.")


def refuse_steps_of_one_group(args: GRPOConfig, num_generations: int) -> None:
    """Raise ValueError if no optimizer step sees two groups, whose gradients could be compared."""
    rows = args.generation_batch_size
    if args.tree_forward != "off":  # then groups stay whole
        rows //= max(1, args.steps_per_generation // args.gradient_accumulation_steps)
    if rows < 2 * num_generations:
        raise ValueError(
            f"`log_signal_share=True` compares the groups of an optimizer step, got {rows} completions in groups of "
            f"{num_generations}, expected at least {2 * num_generations}. Raise gradient_accumulation_steps or "
            "per_device_train_batch_size, or set log_signal_share=False."
        )
