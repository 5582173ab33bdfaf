"""Test of the tree on the first batch: whether its numbers are correct, and whether it saves enough work."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import get_device_states, set_device_states

from tempo_trl.tree_forward.paths import Paths

# Full precision, where TRL's own numbers change by less with one more column of padding: both sum the same numbers in
# another order. The tree was within 2e-5 of TRL on whole models. Attending to one token too many changed a
# log-probability by 0.1 or more.
LARGEST_DIFFERENCE = 1e-3  # nats
# Half precision: rounding alone changes single tokens of low probability by more than that, depending on the model and
# the temperature. TRL's own numbers with one more column of padding, which shifts all positions by one, measure the
# rounding. Correct trees had 0.9 to 1.1 times its mean and 0.9 to 1.3 times its worst row (Qwen3 with 4 to 28 layers,
# weights or activations in bfloat16, temperatures of 0.6 and 1, 0 to 400 columns of padding). One key too many in each
# row gave 1.3 to 9 times its mean; the least was with random weights, which attend to all keys equally.
MEAN_OVER_ROUNDING = 1.5
ROW_OVER_ROUNDING = 3.0
FEW = 4.0  # both bounds grow by FEW / sqrt(numbers compared), because a ratio of few numbers is noisy
SHORT_ROW = 32  # rows of fewer tokens count as this long, because the rounding of single tokens is random
# Below this ratio, attention along paths and packing cost more than is saved (benchmarks/packing.py).
PAYING_RATIO = 1.3


class Difference(NamedTuple):
    """
    Absolute differences of log-probabilities and entropies between two ways to compute a batch, in nats.

    Args:
        largest (`float`), total (`float`):
            Largest difference, and sum of differences, over all tokens.
        worst_row (`float`):
            Largest mean over a row.
        compared (`float`):
            Number of compared numbers.
    """

    largest: float = 0.0
    total: float = 0.0
    worst_row: float = 0.0
    compared: float = 0.0

    @classmethod
    def of(cls, ours: tuple, theirs: tuple, mask: torch.Tensor) -> "Difference":
        """The difference of two results of `_get_per_token_logps_and_entropies` at the tokens of `mask`, `(B, T)`."""
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        inside = mask.bool().cpu()
        apart = torch.stack([(a - b).detach().cpu().double().abs().masked_fill(~inside, 0.0) for a, b in pairs])
        rows = apart.sum(dim=(0, 2)) / (len(pairs) * inside.sum(dim=1).clamp(min=SHORT_ROW))
        largest = apart.amax().item()  # NaN if one is
        return cls(largest, apart.sum().item(), rows.max().item(), len(pairs) * inside.sum().item())

    @classmethod
    def of_all_ranks(cls, ranks: Sequence["Difference"]) -> "Difference":
        """The difference over all ranks, from that of each."""
        largest, total, worst_row, compared = np.array(ranks).T
        return cls(*map(float, (largest.max(), total.sum(), worst_row.max(), compared.sum())))  # NaN if one is

    @property
    def mean(self) -> float:
        return self.total / max(self.compared, 1)


class FirstBatch(NamedTuple):
    """
    Comparison of the first batch on the tree with TRL's computation, and the rounding of the latter.

    Args:
        tree ([`Difference`]):
            Between the tree and TRL.
        rounding ([`Difference`]):
            Between TRL and TRL with one more column of padding.
        noise (`bool`):
            Whether TRL's computation drew random numbers.
        by_row (`bool`):
            Whether a GPU attended row by row in half precision.
    """

    tree: Difference
    rounding: Difference = Difference()
    noise: bool = False
    by_row: bool = False

    @classmethod
    def of_all_ranks(cls, ranks: Sequence["FirstBatch"]) -> "FirstBatch":
        """The comparison over all ranks, from that of each."""
        tree, rounding, noise, by_row = zip(*ranks, strict=True)
        return cls(Difference.of_all_ranks(tree), Difference.of_all_ranks(rounding), any(noise), any(by_row))

    def mistake(self) -> str | None:
        """
        A message if the tree's numbers differ from TRL's by more than rounding, or would in training: where the model
        draws noise, TRL's own rounding contains it. NaN counts as different.
        """
        tree, rounding = self.tree, self.rounding
        if self.noise:
            return (
                "the model draws random numbers in its forward pass, such as dropout's, and completions that share a "
                "token would share them (set disable_dropout=True, and noise in the model's own configuration to 0)"
            )
        if rounding.largest <= LARGEST_DIFFERENCE:  # full precision
            return _above(tree.largest, LARGEST_DIFFERENCE, "at a token")
        slack = FEW / max(tree.compared, 1) ** 0.5
        mean = (MEAN_OVER_ROUNDING + slack) * rounding.mean
        row = (ROW_OVER_ROUNDING + slack) * rounding.worst_row
        return _above(tree.mean, mean, "on average") or _above(tree.worst_row, row, "on average over one row")

    def slowness(self) -> str | None:
        """A message if the tree's attention makes it slower than TRL's way."""
        if not self.by_row:
            return None
        return (
            f"torch {torch.__version__} has no variable-length attention for this GPU and head size, without which "
            "the tree saves memory but is slower than TRL's way in half precision. Upgrade to torch 2.11 or later, or "
            "set tree_forward='on' to save the memory"
        )


class RandomStates(NamedTuple):
    """The states of torch's random generators on the CPU and on the devices of a tensor."""

    tensor: torch.Tensor
    cpu: torch.Tensor
    devices: list[int]
    states: list[torch.Tensor]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "RandomStates":
        return cls(tensor, torch.get_rng_state(), *get_device_states(tensor))

    def have_moved(self) -> bool:
        """Whether random numbers were drawn since."""
        now = RandomStates.of(self.tensor)
        return not all(map(torch.equal, (self.cpu, *self.states), (now.cpu, *now.states)))

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        set_device_states(self.devices, self.states, device_type=self.tensor.device.type)


def _above(difference: float, bound: float, where: str) -> str | None:
    bound = max(bound, LARGEST_DIFFERENCE)
    if difference <= bound:
        return None
    return f"the first batch differs from TRL's by {difference:.2g} nats {where}, and rounding explains {bound:.2g}"


def shares_too_little(tokens: float, packed: float) -> str | None:
    """A message if the rows of the first batch share too few tokens.

    Args:
        tokens (`float`), packed (`float`):
            Tokens of the batch without padding, and of the packed streams, over all ranks.
    """
    ratio = tokens / packed
    if ratio >= PAYING_RATIO:
        return None
    return (
        f"the tree of the first batch has {packed:,.0f} of {tokens:,.0f} tokens, a ratio of {ratio:.2f}, but only "
        f"ratios of at least {PAYING_RATIO} save time (prompts are short, and completions branch early)"
    )


def attention_beside_the_tree(paths: Paths, config) -> str | None:
    """A message if the model attends in another way than along the paths, judged by each of its calls.

    The numbers would not show this for a window that is longer than the first batch, or for a mask that begins with
    zeros, is learned, and would get no gradient.
    """
    windows = paths.windows
    if paths.is_missed:
        return "a part of the model, such as an adapter with layers of its own, attends without the tree"
    if paths.is_masked:
        return "the model adds a mask of its own to its attention"
    if len(windows) != config.num_hidden_layers:
        return (
            f"the model made {len(windows)} attention calls for {config.num_hidden_layers} layers, so some layers mix "
            "tokens in another way"
        )
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    slides = window is not None and getattr(config, "use_sliding_window", True)
    if slides and (kinds is None or "sliding_attention" in kinds) and window not in windows:
        return f"the model's window of {window} tokens was not passed to the attention"
    return None
