"""What the first batch says about computing on the tree: whether it is right, and whether it pays."""

from typing import NamedTuple

import torch

# Right: two ways to sum the same numbers. In full precision the tree has been seen within 2e-5 of TRL on whole models;
# a token too many in sight moved a log-probability by 0.1 and more. In half precision single tokens of low probability
# move by as much from rounding, so there the mean is held.
LARGEST_DIFFERENCE = 1e-3  # nats
MEAN_DIFFERENCE_HALF = 0.02
# Below it the longer way through the attention and the packing eats up what is saved (benchmarks/packing.py).
PAYING_RATIO = 1.3


class FirstBatch(NamedTuple):
    """
    The first batch on the tree against TRL's way.

    Args:
        largest (`float`), total (`float`):
            Largest and summed absolute difference of log-probabilities and entropies, in nats.
        compared (`float`):
            Numbers compared.
    """

    largest: float
    total: float
    compared: float

    @classmethod
    def of(cls, ours: tuple, theirs: tuple, mask: torch.Tensor) -> "FirstBatch":
        """From two results of `_get_per_token_logps_and_entropies` at the tokens of `mask`, `(B, T)`."""
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        differences = torch.cat([(a - b).detach().abs()[mask.bool()].double() for a, b in pairs])
        largest = differences.max().item() if len(differences) else 0.0
        return cls(largest, differences.sum().item(), len(differences))

    @classmethod
    def of_all_ranks(cls, rows: torch.Tensor) -> "FirstBatch":
        """From the numbers of each rank, `(ranks, 3)`."""
        return cls(rows[:, 0].max().item(), *rows[:, 1:].sum(dim=0).tolist())

    def mistake(self, half_precision: bool) -> str | None:
        """How the tree's numbers differ from TRL's by more than rounding, if they do. NaN differs."""
        mean = self.total / max(self.compared, 1)
        if half_precision and not mean <= MEAN_DIFFERENCE_HALF:
            return f"the first batch is {mean:.2g} nats from TRL's numbers on average, above {MEAN_DIFFERENCE_HALF}"
        if not half_precision and not self.largest <= LARGEST_DIFFERENCE:
            return f"the first batch is up to {self.largest:.2g} nats from TRL's numbers, above {LARGEST_DIFFERENCE}"
        return None


def shares_too_little(tokens: float, packed: float) -> str | None:
    """The arithmetic of a first batch whose rows share too little, if they do.

    Args:
        tokens (`float`), packed (`float`):
            Tokens of the batch of all ranks without padding, and of the streams.
    """
    ratio = tokens / packed
    if ratio >= PAYING_RATIO:
        return None
    return (
        f"the {tokens:,.0f} tokens of the first batch leave {packed:,.0f} on the tree, a ratio of {ratio:.2f}; it "
        f"pays from {PAYING_RATIO} on (prompts are short beside completions that part early)"
    )


def float32_is_rounded() -> bool:
    """Whether matrix products of float32 tensors on a GPU round their inputs to TF32.

    torch has two ways to say so, and the older raises an error where the newer was used, as transformers does.
    """
    matmul = torch.backends.cuda.matmul
    return matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32


def attention_beside_the_tree(windows: list[int | None], config) -> str | None:
    """How a model also attends in other ways than the calls on the tree, from the window of each call, if it does.

    Numbers alone would not show a window that is longer than the first batch.
    """
    if len(windows) != config.num_hidden_layers:
        return f"{len(windows)} calls of attention for {config.num_hidden_layers} layers: some mix tokens otherwise"
    window, kinds = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    slides = window is not None and getattr(config, "use_sliding_window", True)
    if slides and (kinds is None or "sliding_attention" in kinds) and window not in windows:
        return f"its window of {window} tokens did not reach the attention"
    return None
