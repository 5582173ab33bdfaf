"""Choose which decoding to compare if a run has several, and list how the decodings of two runs differ."""

from collections.abc import Mapping

import pandas as pd

from tempo_trl.runs.results import DECODING

SIZES = ("k", "n")


def preferred(results: pd.DataFrame, baselines: Mapping[str | None, str]) -> pd.Index:
    """
    Index of one result per run, task and metric: the one with the decoding to compare.

    pass@4 with 4 answers per question is a different measurement than pass@4 with 16. Decodings are ranked by whether
    the baseline has them, since each method is compared with it, then by the number of runs that have them, then by
    answers per question, then by questions. For two runs this is the largest decoding that both have.

    Args:
        results: One row per result, from [`~tempo_trl.compare.table.read_results`].
        baselines: The baseline method of each model.
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
    """How two measurements differ, such as `temperature 1.0 and 0.7`. Settings unknown for one are left out."""
    found = []
    for name in (*SIZES, *DECODING):
        values = [sorted(set(own[name].dropna())) for own in (a, b)]
        if all(values) and values[0] != values[1]:
            ours, theirs = (", ".join(map(str, each)) for each in values)
            found.append(f"{name} {ours} and {theirs}")
    return found
