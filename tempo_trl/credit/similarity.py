"""Similarity of prefixes: the cosine between sketches of what one completion has written so far and of another.

Completions of one prompt soon share no exact prefix, but those with similar text still predict each other's rewards.
A sketch of a prefix counts its n-grams of tokens, hashed into a fixed number of buckets. Running counts give the
sketches of a completion's prefixes at a few dozen depths, however long it is.
"""

from dataclasses import dataclass

import numpy as np
import torch

from tempo_trl.credit.prefix_tree import check_ids, check_lengths

FINE = 16  # blocks with a sketch each, before sketches become rarer
HELD_AT_ONCE = 2**22  # numbers in the sketches that are held at once: 16 MiB
GOLDEN, MIX_1, MIX_2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Sketch:
    """
    How prefixes are sketched.

    Args:
        block (`int`, *optional*, defaults to `1`):
            Tokens between the first sketches of a completion: see [`depths`].
        orders (`tuple[int, ...]`, *optional*, defaults to `(1, 2)`):
            Lengths of the n-grams that are counted.
        buckets (`int`, *optional*, defaults to `1024`):
            Number of counts in a sketch.

    Raises:
        ValueError: if a number is less than 1, or there is no order.
    """

    block: int = 1
    orders: tuple[int, ...] = (1, 2)
    buckets: int = 1024

    def __post_init__(self):
        if min(self.block, self.buckets, len(self.orders), *self.orders) < 1:
            raise ValueError(f"`block`, `buckets` and each of `orders` must be at least 1, got {self}.")

    def depths(self, width: int) -> np.ndarray:
        """
        Numbers of tokens at which completions are sketched, ascending: from 0 to `width` or more.

        Every `block` tokens at first, and then at steps of at most an eighth of the depth: with blocks of one token,
        65 depths for 1,024 tokens and 89 for 8,192.
        """
        blocks = np.arange(-(-width // self.block) + FINE)
        halvings = np.floor(np.log2(np.maximum(blocks, 1) / FINE)).astype(int) + 1
        depths = blocks[blocks % (1 << np.maximum(halvings, 0)) == 0] * self.block
        return depths[: np.searchsorted(depths, width) + 1]


def prefix_similarities(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    num_generations: int,
    sketch: Sketch = Sketch(),
    prompts: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Cosine between the sketch of each completion's prefixes and those of the whole completions of its group.

    $$s_{ij}(d) = \frac{x_i(d) \cdot x_j(\infty)}{|x_i(d)| \, |x_j(\infty)|}$$

    where x(d) are the square roots of the hashed n-gram counts of the first d tokens, or of all tokens of a shorter
    completion. Sketches are not negative, so s lies between 0 and 1. Among whole completions s is symmetric, and the
    matrix of any power of it over a group is positive semi-definite.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`, integer):
            Sampled token ids, right-padded. Padding is never read.
        completion_lengths (`torch.Tensor` of shape `(R,)`, integer):
            True lengths in tokens, 0 to T.
        num_generations (`int`):
            G, the completions in a group; R = P G.
        sketch ([`Sketch`], *optional*):
            How prefixes are sketched.
        prompts (`torch.Tensor` of shape `(R,)`, integer, *optional*):
            Equal for completions of a group with the same prompt. Others are not similar: s is 0.

    Returns:
        `torch.Tensor` of shape `(P, G, G, D)`, float32, on the CPU: entry (p, i, j, d) is s of completions i and j of
        group p at depth d of `sketch.depths(T)`. The last is the similarity of whole completions. At d = 0, and for
        empty completions, s is 0.

    Raises:
        ValueError: if a shape or dtype does not fit, or a length is out of range.
    """
    check_ids(completion_ids, num_generations)
    check_lengths(completion_lengths, *completion_ids.shape)
    rows, width = completion_ids.shape
    depths = sketch.depths(width)
    similar = torch.zeros(rows // num_generations, num_generations, num_generations, len(depths))
    ids, lengths = completion_ids.detach().cpu().numpy(), completion_lengths.detach().cpu().numpy()
    step = max(1, HELD_AT_ONCE // (num_generations * len(depths) * sketch.buckets))
    for group in range(0, len(similar), step):
        own = slice(group * num_generations, (group + step) * num_generations)
        _fill(similar[group : group + step], ids[own], lengths[own], depths, sketch)
    if prompts is not None:
        prompts = prompts.detach().cpu().view(-1, num_generations)
        similar *= (prompts[:, :, None] == prompts[:, None, :])[..., None]
    return similar


def ngram_buckets(ids: np.ndarray, order: int, buckets: int) -> np.ndarray:
    """
    Bucket of the n-gram that ends at each token, `(R, T)`, int64; only columns from `order` - 1 on are n-grams.

    The hash is splitmix64 over the ids: the same on every machine and in every process.
    """
    hashed = np.full(ids.shape, order, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for back in range(order):
            earlier = np.zeros(ids.shape, dtype=np.uint64)
            earlier[:, back:] = ids[:, : ids.shape[1] - back].astype(np.uint64)
            hashed = _mixed(hashed * GOLDEN + earlier)
    return (hashed % np.uint64(buckets)).astype(np.int64)


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64."""
    x = (x + GOLDEN).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


def _fill(similar: torch.Tensor, ids: np.ndarray, lengths: np.ndarray, depths: np.ndarray, sketch: Sketch) -> None:
    """Compute the similarities of some groups, as many depths at once as memory allows: `(p, G, G, D)`."""
    groups, size = similar.shape[:2]
    grams = grams_of(ids, lengths, depths, sketch)
    row, bucket, _ = grams
    whole = _unit(counts_of((row, bucket, np.zeros_like(row)), 0, 1, groups * size, sketch.buckets))
    whole = whole.view(groups, 1, size, sketch.buckets)
    seen = torch.zeros(groups, size, 1, sketch.buckets)
    step = max(1, HELD_AT_ONCE // (groups * size * sketch.buckets))
    for first in range(1, len(depths), step):
        last = min(first + step, len(depths))
        counts = counts_of(grams, first, last, groups * size, sketch.buckets)
        counts = counts.view(groups, size, last - first, sketch.buckets).cumsum_(dim=2).add_(seen)
        seen = counts[:, :, -1:].clone()
        cosines = _unit(counts).transpose(1, 2) @ whole.mT
        similar[..., first:last] = cosines.permute(0, 2, 3, 1).clamp_(0.0, 1.0)


def _unit(counts: torch.Tensor) -> torch.Tensor:
    """Square roots of the counts, of length 1; overwrites them."""
    return torch.nn.functional.normalize(counts.sqrt_(), dim=-1, eps=1e-12)


def grams_of(ids: np.ndarray, lengths: np.ndarray, depths: np.ndarray, sketch: Sketch) -> tuple[np.ndarray, ...]:
    """Row, bucket and index of the first depth of every n-gram of the rows, sorted by depth."""
    inside = np.arange(ids.shape[1]) < lengths[:, None]
    rows, columns, buckets = [], [], []
    for order in sketch.orders:
        row, column = np.nonzero(inside[:, order - 1 :])
        rows.append(row)
        columns.append(column + order - 1)
        buckets.append(ngram_buckets(ids, order, sketch.buckets)[row, columns[-1]])
    first = np.searchsorted(depths, np.concatenate(columns), side="right")
    by_depth = np.argsort(first, kind="stable")
    return np.concatenate(rows)[by_depth], np.concatenate(buckets)[by_depth], first[by_depth]


def counts_of(grams: tuple[np.ndarray, ...], first: int, last: int, rows: int, buckets: int) -> torch.Tensor:
    """Counts of the n-grams that are new at each of the depths `first` to `last` - 1, `(rows, depths, buckets)`."""
    row, bucket, depth = grams
    own = slice(*np.searchsorted(depth, [first, last]))
    at = (row[own] * (last - first) + depth[own] - first) * buckets + bucket[own]
    counts = torch.zeros(rows * (last - first) * buckets)
    return counts.index_add_(0, torch.from_numpy(at), torch.ones(len(at))).view(rows, last - first, buckets)
