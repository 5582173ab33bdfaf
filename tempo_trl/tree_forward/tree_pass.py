"""The part of a trainer that computes TRL's log-probabilities on the tree: each shared token once."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from unittest.mock import patch

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer import grpo_trainer
from trl.trainer.utils import shuffle_sequence_dict

from tempo_trl.tree_forward.first_batch import (
    Difference,
    FirstBatch,
    RandomStates,
    attention_beside_the_tree,
    shares_too_little,
)
from tempo_trl.tree_forward.group_shuffle import shuffled_groups
from tempo_trl.tree_forward.obstacles import first_obstacle
from tempo_trl.tree_forward.packed_rows import PackedRows, pack_rows
from tempo_trl.tree_forward.paths import Paths
from tempo_trl.tree_forward.tree_attention import UNREAD, register_tree_attention, watched

OF_TEXT = ("compute_aux_loss",)  # other arguments of a forward pass that are not about images
COUNTED = ("tokens", "packed")


class State(Enum):
    OFF = "off"
    UNTRIED = "to be measured on the first batch"
    IN_USE = "in use"


class TreePass:
    """
    Computes policy, old and reference log-probabilities, and entropies, on the prefix tree of a micro-batch, for one
    trainer: a prompt once for all its completions, and whatever else these share once.

    The numbers are TRL's, up to rounding. With `tree_forward="auto"` the log-probabilities of the first batch that
    trains, over all ranks, are measured against TRL's own. If they differ by more than rounding, if the tree does not
    support the model or an option, or if it would save too little, TRL's way is taken for the whole run, with one
    warning. With `"on"` the first two raise an error. A resumed run measures its own first batch.

    Micro-batches hold whole groups. TRL shuffles the rows of a generation batch before it splits them into
    micro-batches, which would scatter the completions of a prompt; here its groups are shuffled. An optimizer step
    over a whole generation batch has the same gradient, except for what TRL averages or ranks within a micro-batch
    (`loss_type="bnpo"`, the entropy bonus, `top_entropy_quantile`). With several steps per generation, a step sees all
    completions of some prompts, instead of some completions of all prompts.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, after its own `__init__`. Its configuration has the field `tree_forward`.
        obstacle (`str`, *optional*):
            The trainer's own reason why it cannot compute on the tree.

    Raises:
        ValueError: with `tree_forward="on"`, if the tree is not supported. [`logps`] raises it if the first batch
            fails the test.
    """

    def __init__(self, trainer: GRPOTrainer, obstacle: str | None = None):
        self.trainer = trainer
        self.state = State.OFF
        # Counts by mode since the last log.
        self._counted: dict[str, Counter] = defaultdict(Counter)
        if trainer.args.tree_forward == "off":
            return
        register_tree_attention()
        self.state = State.UNTRIED
        if (reason := obstacle or first_obstacle(trainer)) is not None:
            self._leave(reason)

    @property
    def _mode(self) -> str:
        return "train" if self.trainer.model.training else "eval"

    def _leave(self, reason: str) -> None:
        if self.trainer.args.tree_forward == "on":
            raise ValueError(
                f"tree_forward='on' is not supported here: {reason}. Change that, or set tree_forward='auto' or 'off'."
            )
        self.state = State.OFF
        if self.trainer.accelerator.is_main_process:
            warnings.warn(f"tree_forward='auto' is off for this run: {reason}.", UserWarning, stacklevel=2)

    # Log-probabilities

    def logps(
        self,
        theirs,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        batch_size=None,
        compute_entropy=False,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """
        TRL's `(log-probabilities (B, T), entropies (B, T) or None, auxiliary loss or None)`.

        Args:
            theirs (`Callable`):
                TRL's bound method, `super()._get_per_token_logps_and_entropies`.
            model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, ...:
                Its arguments.
        """
        rows = (input_ids, attention_mask, logits_to_keep, batch_size)

        def trls_way(pads: int = 0) -> tuple:
            padded = (F.pad(columns, (pads, 0)) for columns in rows[:2])
            return theirs(model, *padded, *rows[2:], compute_entropy, **kwargs)

        # An evaluation, in which a prompt may have one completion, is not representative of training batches.
        early = self.state is State.UNTRIED and self._mode == "eval"
        if self.state is State.OFF or early or _has_images(kwargs):
            return trls_way()
        size = batch_size or len(input_ids)
        chunks = zip(input_ids.split(size), attention_mask.split(size), strict=True)
        packed = [pack_rows(*chunk, logits_to_keep) for chunk in chunks]
        if self.state is State.UNTRIED and self.trainer.args.tree_forward == "auto" and not self._pays(packed):
            return trls_way()
        if self.state is State.UNTRIED:
            seen = attention_mask[:, -logits_to_keep:]
            return self._first_logps(trls_way, model, packed, seen, compute_entropy)
        return self._on_the_tree(model, packed, compute_entropy)

    def _pays(self, packed: list[PackedRows]) -> bool:
        """Whether the rows of the first batch share enough, on all ranks together. Asked before any forward pass."""
        accelerator = self.trainer.accelerator
        counts = [(chunk.num_tokens, chunk.input_ids.shape[1]) for chunk in packed]
        own = torch.tensor(counts, device=accelerator.device).sum(dim=0)
        too_little = shares_too_little(*accelerator.reduce(own, reduction="sum").tolist())
        if too_little is not None:
            self._leave(too_little)
        return too_little is None

    def _first_logps(
        self, trls_way: Callable, model, packed: list[PackedRows], mask: torch.Tensor, compute_entropy: bool
    ) -> tuple:
        checkpointing = self.trainer.args.gradient_checkpointing_kwargs
        before = RandomStates.of(mask)
        with torch.no_grad(), disable_gradient_checkpointing(self.trainer.model, checkpointing):
            expected = trls_way()
            is_noisy = before.have_moved()
            rounding = Difference.of(trls_way(pads=1)[:2], expected[:2], mask)
        # With gradient, because this batch is trained on the tree, too. So a resumed run equals an uninterrupted one.
        result = self._on_the_tree(model, packed, compute_entropy)
        paths = packed[-1].paths
        difference = Difference.of(result[:2], expected[:2], mask)
        first = FirstBatch(difference, rounding, is_noisy, paths.by_row)
        self._judge(model, first, paths)
        if self.state is not State.OFF:
            return result
        del result  # frees the tree's graph before TRL's computation creates its own
        before.restore()
        return trls_way()

    def _judge(self, model, own: FirstBatch, paths: Paths) -> None:
        """
        Decide whether to use the tree. All ranks decide in the same way. It is in use after the first pass with a
        gradient, which is the policy's: before it may come those of a reference and of the old policy.
        """
        accelerator = self.trainer.accelerator
        config = accelerator.unwrap_model(model).config.get_text_config()
        firsts, beside = zip(*gather_object([(own, attention_beside_the_tree(paths, config))]), strict=True)
        batch = FirstBatch.of_all_ranks(firsts)
        reason = next(filter(None, beside), None) or batch.mistake()
        if self.trainer.args.tree_forward == "auto":
            reason = reason or batch.slowness()
        if torch.is_grad_enabled() and batch.tree.compared:  # no token of a truncated completion may be in the loss
            self.state = State.IN_USE
        if reason is not None:
            self._leave(reason)

    def _on_the_tree(self, model, packed: list[PackedRows], compute_entropy: bool) -> tuple:
        """A forward pass on the tree for each of TRL's chunks of rows, in the form of TRL's method."""
        logps, entropies = zip(*(self._chunk(model, rows, compute_entropy) for rows in packed), strict=True)
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None

    def _chunk(self, model, packed: PackedRows, compute_entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        accelerator = self.trainer.accelerator
        # Without a mask, transformers would conclude from the positions that independent sequences are packed, and
        # mask them from each other.
        unread = UNREAD.to(packed.input_ids.device)
        config = accelerator.unwrap_model(model).config.get_text_config()
        # The router's loss, which is not used, cannot be computed from this mask.
        router = {"output_router_logits": False} if hasattr(config, "output_router_logits") else {}
        with profiling_context(self.trainer, "tree_forward"), accelerator.autocast(), watched(packed.paths):
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
        self._counted[self._mode].update(tokens=packed.num_tokens, packed=packed.input_ids.shape[1])
        return logps, entropies

    # Micro-batches of whole groups

    def prepared(self, theirs: Callable, generation_batch) -> dict:
        """
        TRL's next micro-batch. A generation batch that is sampled for it is split into whole groups.

        Args:
            theirs (`Callable`):
                TRL's bound method, `super()._prepare_inputs`.
            generation_batch:
                Its argument.
        """
        with patch.object(grpo_trainer, "shuffle_sequence_dict", self._shuffled):
            return theirs(generation_batch)

    def _shuffled(self, batch: dict) -> dict:
        if self.state is State.OFF:  # since this batch was scored
            return shuffle_sequence_dict(batch)
        begin = self.trainer.accelerator.process_index * len(batch["completion_ids"])
        return shuffled_groups(batch, begin, self.trainer.num_generations)

    # Metrics

    def log(self) -> None:
        """Add `tempo/packing_ratio` over all ranks to the metrics that TRL logs next."""
        if self.state is not State.IN_USE:
            return
        accelerator, mode = self.trainer.accelerator, self._mode
        counted = self._counted.pop(mode, Counter())
        own = torch.tensor([counted[name] for name in COUNTED], device=accelerator.device)
        tokens, packed = accelerator.reduce(own, reduction="sum").tolist()
        if packed:
            self.trainer._metrics[mode]["tempo/packing_ratio"].append(tokens / packed)


def _has_images(arguments: dict) -> bool:
    return any(value is not None and name not in OF_TEXT for name, value in arguments.items())
