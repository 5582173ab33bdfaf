"""How well similar prefixes predict rewards, on samples of a real model: `python -m benchmarks.similarity SAMPLES`.

SAMPLES is a JSON Lines file, which may be compressed with gzip. Each line has a `prompt`, its `completions` (texts,
many per prompt) and their `rewards`. Half of the prompts choose how prefixes are compared; the other half is reported.
The measure is `tempo/value_error`: the squared error of the leave-one-out prediction of a completion's reward relative
to that of the mean of the other completions, over groups whose rewards differ. `--quick` reads few prompts.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import argparse
import gzip
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.nn.functional import normalize

from benchmarks.compact_json import write_json
from benchmarks.estimators.evidence import commit
from tempo_trl.credit.kernel_baseline import Similarities, predict, taught
from tempo_trl.credit.kernel_covariance import KernelCovariance
from tempo_trl.credit.prefix_baseline import tree_baselines
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.similarity import Sketch, counts_of, grams_of

SEED, VOCABULARY, GROUPS_AT_ONCE, RESAMPLES = 0, 2048, 16, 1000
SIZES = (8, 32)
DIGITS = 4
SHARES = np.arange(1, 9) / 8
FOREVER = 10**6  # batches: the policy of the samples does not change


@dataclass(frozen=True)
class Variant:
    """
    A way to compare prefixes.

    Args:
        sketch: Tokens between two comparisons, n-grams, buckets.
        weigh: What becomes of a count: `root`, `plain`, `presence`, or `idf` (the root, times how rare it is).
        align: Where the other completion is cut: not at all (`whole`), at the same number of `tokens`, where it is
            most similar (`best`), or at the same `share`, which needs the completion's own length: no baseline may.
        window: Depths that are compared, up to the state; 0 is all. `beside` adds it to the whole prefix.
    """

    sketch: Sketch = field(default_factory=Sketch)
    weigh: str = "root"
    align: str = "whole"
    window: int = 0
    beside: bool = False


OURS = "n-grams to 2, blocks of 1"
VARIANTS = {
    OURS: Variant(),
    "single tokens": Variant(Sketch(orders=(1,))),
    "n-grams to 3": Variant(Sketch(orders=(1, 2, 3))),
    "pairs alone": Variant(Sketch(orders=(2,))),
    "blocks of 2": Variant(Sketch(block=2)),
    "blocks of 8": Variant(Sketch(block=8)),
    "blocks of 32": Variant(Sketch(block=32)),
    "256 buckets": Variant(Sketch(buckets=256)),
    "counts, no root": Variant(weigh="plain"),
    "presence": Variant(weigh="presence"),
    "rare n-grams count more": Variant(weigh="idf"),
    "cut at the same number of tokens": Variant(align="tokens"),
    "best match of any length": Variant(align="best"),
    "same share (knows the future)": Variant(align="share"),
    "last 8 depths": Variant(window=8),
    "whole prefix and last 8 depths": Variant(window=8, beside=True),
}


@dataclass
class Samples:
    """Groups of tokenised completions: rows `ids` of `lengths`, `size` to a group, whose `rewards` are `(P, G)`."""

    ids: np.ndarray
    lengths: np.ndarray
    rewards: np.ndarray
    prompts: np.ndarray
    size: int

    def batches(self, among: np.ndarray) -> Iterator["Samples"]:
        """Batches of the groups whose index is `among`, cut to their longest completion."""
        for first in range(0, len(among), GROUPS_AT_ONCE):
            groups = among[first : first + GROUPS_AT_ONCE]
            rows = (groups[:, None] * self.size + np.arange(self.size)).ravel()
            lengths = self.lengths[rows]
            ids = self.ids[rows, : lengths.max()]
            yield Samples(ids, lengths, self.rewards[groups], self.prompts[groups], self.size)


def read(path: Path, prompts: int | None, tokenizer: str | None) -> list[tuple[list[list[int]], np.ndarray]]:
    """Token ids and rewards of each prompt. Without a tokenizer, a byte-level BPE is trained on the completions."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json.loads(line) for line in lines][:prompts]
    if tokenizer is not None:
        coder = Tokenizer.from_file(tokenizer)
    else:
        coder = Tokenizer(models.BPE())
        coder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        texts = (text for row in rows for text in row["completions"][:20])
        coder.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False))
    encode = partial(coder.encode_batch, add_special_tokens=False)
    return [([e.ids for e in encode(row["completions"])], np.array(row["rewards"], dtype=float)) for row in rows]


def grouped(prompts: list, size: int) -> Samples:
    """The completions of each prompt in random groups of `size`, without groups whose rewards are all equal."""
    rng, rows, rewards, owners = np.random.default_rng(SEED), [], [], []
    for number, (ids, scores) in enumerate(prompts):
        kept = rng.permutation([k for k in range(len(ids)) if ids[k]])
        for group in kept[: len(kept) // size * size].reshape(-1, size):
            if np.ptp(scores[group]) > 0:
                rows += [ids[k] for k in group]
                rewards.append(scores[group])
                owners.append(number)
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return Samples(ids, lengths, np.array(rewards), np.array(owners), size)


def compared(batch: Samples, variant: Variant) -> Similarities:
    """Similarities of a batch by any variant; the package computes the first alone, and a test compares."""
    size, sketch = batch.size, variant.sketch
    depths = sketch.depths(batch.ids.shape[1])
    new = counts_of(
        grams_of(batch.ids, batch.lengths, depths, sketch), 0, len(depths), len(batch.lengths), sketch.buckets
    )
    counts = new.view(-1, size, len(depths), sketch.buckets).cumsum(dim=2)
    whole = _cosines(counts, batch, depths, variant)
    if not variant.window:
        return Similarities(depths, whole)
    before = torch.nn.functional.pad(counts, (0, 0, variant.window, 0))[:, :, : len(depths)]
    recent = _cosines(counts - before, batch, depths, variant)
    return Similarities(depths, (whole + recent) / 2 if variant.beside else recent)


def _cosines(counts: torch.Tensor, batch: Samples, depths: np.ndarray, variant: Variant) -> np.ndarray:
    weights = {"root": torch.sqrt, "idf": torch.sqrt, "plain": torch.clone, "presence": torch.sign}[variant.weigh](
        counts
    )
    if variant.weigh == "idf":
        seen = (counts[:, :, -1] > 0).flatten(0, 1).float().mean(dim=0)
        weights = weights * -torch.log(seen.clamp(min=1e-3, max=0.999))
    x = normalize(weights, dim=-1, eps=1e-12)
    same = torch.einsum("pidh,pjdh->pijd", x, x)
    if variant.align == "whole":
        same[..., :-1] = torch.einsum("pidh,pjh->pijd", x, x[:, :, -1])[..., :-1]
    if variant.align == "best":
        for d in range(len(depths) - 1):
            same[..., d] = torch.einsum("pih,pjeh->pije", x[:, :, d], x).amax(dim=-1)
    if variant.align == "share":
        lengths = torch.from_numpy(batch.lengths).view(-1, batch.size).double()
        for d in range(len(depths) - 1):
            cut = (depths[d] * lengths[:, None, :] / lengths[:, :, None]).numpy()
            index = torch.from_numpy(np.clip(np.searchsorted(depths, cut, side="right") - 1, 0, len(depths) - 1))
            for i in range(batch.size):
                other = x.gather(2, index[:, i, :, None, None].expand(-1, -1, 1, x.shape[-1]))[:, :, 0]
                same[:, i, :, d] = torch.einsum("ph,pjh->pj", x[:, i, d], other)
    return same.clamp(0, 1).numpy()


def errors_at_shares(batch: Samples, baselines: np.ndarray) -> np.ndarray:
    """Squared errors of the baselines at eighths of each completion, `(P, 8)`, mean over the group."""
    columns = np.minimum((batch.lengths[:, None] * SHARES).astype(int), batch.lengths[:, None] - 1)
    errors = (batch.rewards.ravel()[:, None] - np.take_along_axis(baselines, columns, axis=1)) ** 2
    return errors.reshape(-1, batch.size, 8).mean(axis=1)


def rloo_errors(batch: Samples) -> np.ndarray:
    """The same of the mean of the others, `(P,)`."""
    deviation = batch.rewards - batch.rewards.mean(axis=1, keepdims=True)
    return ((deviation * batch.size / (batch.size - 1)) ** 2).mean(axis=1)


class Kernel:
    """A kernel baseline that learns from the batches that it has predicted."""

    def __init__(self, compare: Callable[[Samples], Similarities]):
        self.compare, self.covariance = compare, KernelCovariance(FOREVER)

    def __call__(self, batch: Samples, learn: bool) -> np.ndarray:
        tree, rewards, similar = tree_of(batch), torch.from_numpy(batch.rewards.ravel()), self.compare(batch)
        prediction = predict(tree, rewards.numpy(), batch.ids.shape[1], similar, self.covariance)
        baselines = prediction.baselines(self.covariance)
        if learn:
            self.covariance.update(taught(tree, prediction, rewards, similar))
        return baselines


class Prefixes:
    """The adaptive prefix baseline."""

    def __init__(self):
        self.covariance = PrefixCovariance(FOREVER)

    def __call__(self, batch: Samples, learn: bool) -> np.ndarray:
        tree, rewards = tree_of(batch), torch.from_numpy(batch.rewards.ravel())
        baselines = tree_baselines(tree, rewards, batch.ids.shape[1], self.covariance)
        if learn:
            self.covariance.update(pair_statistics(tree, rewards))
        return baselines


def plain_means(batch: Samples, learn: bool) -> np.ndarray:
    """TEMPO's prefix values, without the completion itself."""
    return tree_baselines(tree_of(batch), torch.from_numpy(batch.rewards.ravel()), batch.ids.shape[1], 0.0)


def tree_of(batch: Samples):
    return prefix_tree(torch.from_numpy(batch.ids), torch.from_numpy(batch.lengths), batch.size)


def measured(samples: Samples, baseline: Callable[[Samples, bool], np.ndarray]) -> dict:
    """
    The errors of a baseline on both halves of the prompts.

    `chosen_by` is that of the half that chooses: each batch is predicted before it is learned from, and the first
    quarter does not count. On the other half the baseline learns no more: `error`, its `interval` over prompts, and
    `by_eighth` of the completions.
    """
    rng = np.random.default_rng(SEED)
    prompts = rng.permutation(samples.prompts.max() + 1)
    chooses = np.isin(samples.prompts, prompts[: len(prompts) // 2])
    halves = [rng.permutation(np.flatnonzero(half)) for half in (chooses, ~chooses)]
    own, theirs = [], []
    for among, learn in zip(halves, (True, False), strict=True):
        batches = list(samples.batches(among))
        own.append(np.concatenate([errors_at_shares(batch, baseline(batch, learn)) for batch in batches]))
        theirs.append(np.concatenate([rloo_errors(batch) for batch in batches]))
    later = slice(len(own[0]) // 4, None)
    by_eighth = own[1].mean(axis=0) / theirs[1].mean()
    return {
        "chosen_by": own[0][later].mean() / theirs[0][later].mean(),
        "error": by_eighth.mean(),
        "interval": interval(own[1].mean(axis=1), theirs[1], samples.prompts[halves[1]]),
        "by_eighth": by_eighth.tolist(),
    }


def interval(own: np.ndarray, theirs: np.ndarray, prompts: np.ndarray) -> list[float]:
    """Percentile-bootstrap interval at 95% of a ratio of means, over prompts."""
    index, rng = np.unique(prompts, return_inverse=True)[1], np.random.default_rng(SEED)
    sums = np.stack([np.bincount(index, own), np.bincount(index, theirs)])
    draws = rng.integers(0, sums.shape[1], (RESAMPLES, sums.shape[1]))
    top, bottom = sums[:, draws].sum(axis=2)
    return np.percentile(top / bottom, [2.5, 97.5]).tolist()


def study(prompts: list, sizes: tuple[int, ...], variants: dict[str, Variant]) -> dict:
    """All measurements, by group size and by what was measured."""
    results = {}
    for size in sizes:
        samples = grouped(prompts, size)
        among = {"plain prefix mean (TEMPO's values)": plain_means, "adaptive prefix baseline": Prefixes()}
        among |= {name: Kernel(partial(compared, variant=variant)) for name, variant in variants.items()}
        results[str(size)] = {
            "groups": len(samples.rewards),
            "prompts": len(np.unique(samples.prompts)),
            "tokens": float(samples.lengths.mean()),
            "errors": {name: measured(samples, baseline) for name, baseline in among.items()},
        }
        shown(size, results[str(size)])
    return results


def shown(size: int, result: dict) -> None:
    title = f"G = {size}: {result['groups']} groups of {result['prompts']} prompts, {result['tokens']:.1f} tokens"
    table = Table(title=title, caption="squared error / that of the mean of the others")
    for column in ("baseline", "choosing half", "other half", "interval", *(f"{k}/8" for k in range(1, 9))):
        table.add_column(column, justify="left" if column == "baseline" else "right")
    for name, e in result["errors"].items():
        low, high = e["interval"]
        eighths = [f"{x:.3f}" for x in e["by_eighth"]]
        table.add_row(name, f"{e['chosen_by']:.3f}", f"{e['error']:.3f}", f"[{low:.3f}, {high:.3f}]", *eighths)
    Console(width=160).print(table)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("samples", type=Path, help="JSON Lines with prompt, completions, rewards")
    parser.add_argument("--tokenizer", help="a tokenizer.json; by default a BPE is trained on the samples")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="completions in a group")
    parser.add_argument("--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--quick", action="store_true", help="only check that it runs: few prompts, two variants")
    args, origin = parser.parse_args(argv), commit()
    prompts = read(args.samples, 12 if args.quick else None, args.tokenizer)
    variants = dict(list(VARIANTS.items())[:2]) if args.quick else VARIANTS
    results = study(prompts, tuple(args.sizes), variants)
    if args.output:
        write_json(args.output, {"provenance": provenance(args, origin), "sizes": results}, DIGITS)


def provenance(args: argparse.Namespace, origin: dict) -> dict:
    """Provenance of the numbers; `origin` is the commit when the command began."""
    sizes = " ".join(map(str, args.sizes))
    command = f"python -m benchmarks.similarity {args.samples.name} --sizes {sizes} --output {args.output}"
    versions = {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.machine()}
    return {"command": command, **origin, "seed": SEED, "resamples": RESAMPLES, **versions}


if __name__ == "__main__":
    main()
