"""What the first batch says about computing on the tree: whether it is right, and whether it pays."""

from typing import NamedTuple

import torch

# Full precision: two ways to sum the same numbers. The tree has been seen within 2e-5 of TRL on whole models; a token
# too many in sight moved a log-probability by 0.1 and more.
LARGEST_DIFFERENCE = 1e-3  # nats
# Half precision: single tokens of low probability move by more than that from rounding alone, and how much depends on
# the model and the temperature. TRL's own numbers with one more column of padding, which moves all positions by one,
# show how much. Right trees were seen at 0.9 to 1.1 times its mean and at 0.9 to 1.3 times its worst row (Qwen3 of 4
# to 28 layers, weights or activations in bfloat16, temperatures of 0.6 and 1, 0 to 400 columns of padding); a key too
# many in each row at 1.3 to 9 times its mean, the least where the weights are random and attend to all keys alike.
MEAN_OVER_ROUNDING = 1.5
ROW_OVER_ROUNDING = 3.0
FEW = 4.0  # both grow by FEW / sqrt(numbers compared): a ratio of few numbers says little
SHORT_ROW = 32  # a row of fewer tokens counts as one of so many: a single token rounds by chance
# Below it the longer way through the attention and the packing eats up what is saved (benchmarks/packing.py).
PAYING_RATIO = 1.3


class Difference(NamedTuple):
    """
    Absolute differences of log-probabilities and entropies between two ways to compute a batch, in nats.

    Args:
        largest (`float`), total (`float`):
            Of all tokens: the largest, and the sum.
        worst_row (`float`):
            Largest mean of a row.
        compared (`float`):
            Numbers compared.
    """

    largest: float = 0.0
    total: float = 0.0
    worst_row: float = 0.0
    compared: float = 0.0

    @classmethod
    def of(cls, ours: tuple, theirs: tuple, mask: torch.Tensor) -> "Difference":
        """From two results of `_get_per_token_logps_and_entropies` at the tokens of `mask`, `(B, T)`."""
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        inside = mask.bool()
        apart = sum((a - b).detach().double().abs().masked_fill(~inside, 0.0) for a, b in pairs)
        largest = max((a - b).detach().abs().masked_fill(~inside, 0.0).max().item() for a, b in pairs)
        rows = apart.sum(dim=1) / (len(pairs) * inside.sum(dim=1).clamp(min=SHORT_ROW))
        return cls(largest, apart.sum().item(), rows.max().item(), len(pairs) * inside.sum().item())

    @property
    def mean(self) -> float:
        return self.total / max(self.compared, 1)


class FirstBatch(NamedTuple):
    """
    The first batch on the tree against TRL's way, and in half precision TRL's way against itself.

    Args:
        tree ([`Difference`]):
            Between the tree and TRL's way.
        rounding ([`Difference`], *optional*):
            Between TRL's way and TRL's way with one more column of padding; None in full precision.
    """

    tree: Difference
    rounding: Difference | None = None

    @classmethod
    def of_all_ranks(cls, ranks: torch.Tensor) -> "FirstBatch":
        """From the numbers of each rank, those of `rounding` or zeros behind those of `tree`: `(ranks, 8)`."""
        largest, total, worst_row, compared = ranks.view(-1, 2, 4).unbind(dim=2)
        columns = [largest.amax(dim=0), total.sum(dim=0), worst_row.amax(dim=0), compared.sum(dim=0)]
        tree, rounding = (Difference(*numbers) for numbers in torch.stack(columns, dim=1).tolist())
        return cls(tree, rounding if rounding.compared else None)

    def numbers(self) -> list[float]:
        """Of one rank, for [`of_all_ranks`]."""
        return [*self.tree, *(self.rounding or Difference())]

    def mistake(self) -> str | None:
        """How the tree's numbers differ from TRL's by more than rounding, if they do. NaN differs."""
        tree, rounding = self
        if rounding is None:
            return _above(tree.largest, LARGEST_DIFFERENCE, "at a token")
        slack = FEW / max(tree.compared, 1) ** 0.5
        mean = (MEAN_OVER_ROUNDING + slack) * rounding.mean
        row = (ROW_OVER_ROUNDING + slack) * rounding.worst_row
        return _above(tree.mean, mean, "on average") or _above(tree.worst_row, row, "on average over one row")


def _above(difference: float, bound: float, where: str) -> str | None:
    bound = max(bound, LARGEST_DIFFERENCE)  # where padding changes nothing, as in models without rotations
    if difference <= bound:
        return None
    return f"the first batch is {difference:.2g} nats from TRL's numbers {where}, and rounding explains {bound:.2g}"


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
