"""The report as one self-contained HTML file, with data as JSON, script and style inside."""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Template

from tempo_trl.methods import METHODS
from tempo_trl.report.collect import RecordedRun, choose_groups, opening_group, spread
from tempo_trl.report.credit_summary import TOP, CreditSummary
from tempo_trl.report.criteria import statistics
from tempo_trl.report.embed import embed_groups, json_number, script_json
from tempo_trl.report.group import Group, middle_of, reward_range
from tempo_trl.runs.curves import Curve, band, mean_rewards, read_curve
from tempo_trl.runs.metrics import METRICS
from tempo_trl.runs.token_text import one_line, visible
from tempo_trl.version import __version__

GRPO = METHODS["grpo"].label
MAX_CRITERIA = 200  # of a run; a model may write names of its own
MAX_POINTS = 400  # of a curve, which has as many pixels
SCRIPTS = ("page.js", "tree.js", "turns.js", "criteria.js", "credit.js", "charts.js")
CURVES = ("completions/mean_length", *METRICS)
NOTHING = (
    "No trees were recorded. The trainers of this package record them if log_trees_steps > 0; TRL's own trainer does "
    "not. The logged metrics are shown below."
)


def page(runs: Sequence[RecordedRun], title: str) -> str:
    """The report of some runs, as the text of an HTML file."""
    script = "(() => {\n" + "".join(_asset(name) for name in SCRIPTS) + "start();\n})();\n"
    style = _asset("page.css")
    parts = {
        "title": html.escape(one_line(title)),
        "script_hash": _hash(script),
        "style_hash": _hash(style),
        "style": style,
        "script": script,
        "data": script_json(page_data(runs, title)),
        "version": __version__,
    }
    return Template(_asset("page.html"), keep_trailing_newline=True).render(parts)


def _asset(name: str) -> str:
    return files("tempo_trl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def page_data(runs: Sequence[RecordedRun], title: str) -> dict:
    """Everything that the page's script draws."""
    chosen = choose_groups(runs)
    groups = [group for _, _, group in chosen]
    low, high = reward_range(groups)
    recorded = sum(count for run in runs for count in run.recorded.values())
    return {
        **embed_groups(groups),
        "subtitle": title + f" · showing {len(groups):,} of the {recorded:,} groups that were read" * bool(groups),
        "headlines": _headlines(runs),
        "sources": _sources(runs, chosen),
        "runs": [_run(run) for run in runs],
        "curves": curves(runs),
        "nothing": NOTHING,
        "low": low,
        "high": high,
        "right": middle_of(low, high),
    }


def _headlines(runs: Sequence[RecordedRun]) -> list[dict]:
    several = len(runs) > 1
    recorded = [run for run in runs if run.summary]
    shown = [run for run in recorded if run.summary.terms.label != GRPO] or recorded
    return [headline(run.summary, one_line(run.label) if several else "") for run in shown] or [
        {"share": 0.0, "number": "–", "words": " of the credit moved.", "facts": NOTHING}
    ]


def headline(summary: CreditSummary, label: str = "") -> dict:
    """The line at the top of a report: the share of credit that the method moved relative to GRPO, and its counts."""
    of = f" in {label}" if label else ""
    words = f" of the credit moved{of}: {summary.terms.label} against GRPO"
    numbers = {"share": summary.moved(), "number": f"{summary.moved():.1%}"}
    return numbers | {"words": words, "facts": summary.facts()}


def _sources(runs: Sequence[RecordedRun], chosen: Sequence[tuple[int, str, Group]]) -> list[dict]:
    sources = []
    for run, mode in dict.fromkeys((run, mode) for run, mode, _ in chosen):
        own = [i for i, place in enumerate(chosen) if place[:2] == (run, mode)]
        opening = own[opening_group([chosen[i][2] for i in own])]
        kind = {"train": "training", "eval": "evaluation"}.get(mode, f"evaluation of {mode.removeprefix('eval_')}")
        label = one_line(f"{runs[run].label}, {kind}")
        sources.append({"run": run, "label": label, "groups": own, "opening": opening})
    return sources


def _run(run: RecordedRun) -> dict:
    terms = run.terms and run.terms._asdict()
    return {"label": one_line(run.label), "terms": terms, "statistics": _statistics(run.summary)}


def _statistics(summary: CreditSummary | None) -> dict | None:
    if summary is None:
        return None
    ranked = summary.top_td()
    total = ranked["mass"].sum()
    return {
        "top": [_token(token, summary) | {"share": token.mass / total} for token in ranked[:TOP].itertuples()],
        "criteria": _criteria(summary.criteria),
    }


def _criteria(rows: pd.DataFrame) -> dict[str, list]:
    """Of the criteria that judged most groups: mean reward, mean |advantage|, share of flat groups, groups."""
    most = statistics(rows).sort_values("groups", ascending=False, kind="stable")[:MAX_CRITERIA]
    numbers = most[["reward", "credit", "flat", "groups"]].map(json_number)
    return {visible(name): row.tolist() for name, row in numbers.iterrows()}


def _token(token: NamedTuple, summary: CreditSummary) -> dict:
    counts = {"mass": token.mass, "seen": token.seen, "ups": token.ups, "downs": token.downs}
    return {"text": one_line(token.Index) or "·", "examples": summary.examples(token.Index)} | counts


def curves(runs: Sequence[RecordedRun]) -> list[dict]:
    """For each metric a line per name of a curve, which is the method, with a band if several runs have it."""
    found = []
    for key, metric in _logged(runs):
        by_name: dict[str, list[Curve]] = {}
        for run in runs:
            if curve := read_curve(run.log, metric):
                by_name.setdefault(run.curve, []).append(curve)
        if by_name:
            lines = [_line(name, own) for name, own in by_name.items()]
            found.append({"title": one_line(metric), "help": METRICS.get(key, "").replace("\\|", "|"), "lines": lines})
    return found


def _logged(runs: Sequence[RecordedRun]) -> Iterator[tuple[str, str]]:
    """The metrics that the runs have logged, each after its key: `spans/NAME/mean` for `spans/city/mean`."""
    yield from ((name, name) for name in mean_rewards(run.log for run in runs))
    names = dict.fromkeys(name for run in runs for entry in run.log for name in entry)
    for key in CURVES:
        pattern = re.compile(re.escape(key).replace("NAME", ".+").replace("_L", r"_\d+"))
        yield from islice(((key, name) for name in names if pattern.fullmatch(name)), MAX_CRITERIA)


def _line(name: str, own: Sequence[Curve]) -> dict:
    mean, low, high = band(own)
    line = {"name": one_line(name), **_points(mean), "low": None, "high": None, "runs": []}
    if len(own) > 1:
        ends = {"low": _thinned(low), "high": _thinned(high)}
        line |= ends | {"runs": [_points(curve) for curve in own]}
    return line


def _points(curve: Curve) -> dict[str, list]:
    return {"x": _thinned(curve.steps), "y": _thinned(curve.value)}


def _thinned(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in spread(values, MAX_POINTS)]
