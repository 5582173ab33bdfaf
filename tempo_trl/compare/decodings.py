"""Which decoding stands for a metric that a run has of several, and in what the decodings of a pair differ."""

from collections.abc import Mapping

import pandas as pd

from tempo_trl.runs.results import DECODING

SIZES = ("k", "n")


def preferred(results: pd.DataFrame, baselines: Mapping[str | None, str]) -> pd.Index:
    """
    Index of one result per run, task and metric: that of the decoding to compare.

    pass@4 of 4 answers to each question is another measurement than pass@4 of 16. A decoding comes first if the
    baseline has it, since each method is compared with that, then the more runs have it, then the larger it is: by its
    answers to each question, then by its questions. Of two runs it is the largest that both have.

    Args:
        results: A row per result, as [`~tempo_trl.compare.table.read_results`] returns them.
        baselines: By model, the method that the others are compared with.
    """
    is_baseline = [method == baselines[model] for model, method in zip(results.model, results.method, strict=True)]
    ranked = results.assign(of_baseline=results.folder.where(pd.Series(is_baseline, results.index)))
    order = []
    for sizes in (["k"], ["k", "n"]):
        peers = ranked.groupby(["model", "dataset", "task", "metric", *sizes], dropna=False)
        for holder in ("of_baseline", "folder"):
            order.append(f"{holder} with this {sizes[-1]}")
            ranked[order[-1]] = peers[holder].transform("nunique")
        order.append(sizes[-1])
    return ranked.sort_values(order, ascending=False).drop_duplicates(["folder", "task", "metric"]).index


def differing(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """In what two measurements differ, as `temperature 1.0 and 0.7`; what one of them does not tell is left out."""
    found = []
    for name in (*SIZES, *DECODING):
        values = [sorted(set(own[name].dropna())) for own in (a, b)]
        if all(values) and values[0] != values[1]:
            ours, theirs = (", ".join(map(str, each)) for each in values)
            found.append(f"{name} {ours} and {theirs}")
    return found
