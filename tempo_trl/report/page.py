"""The report as one self-contained HTML file, with data as JSON, script and style inside."""

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from jinja2 import Template

from tempo_trl.report import sentences
from tempo_trl.report.collect import MODES, RecordedRun, choose_groups, opening_group
from tempo_trl.report.credit_summary import TOP, CreditSummary
from tempo_trl.report.embed import embed_groups, json_number, script_json, visible_piece
from tempo_trl.report.group import Group, reward_range
from tempo_trl.runs.curves import Curve, band, read_curve
from tempo_trl.runs.statistics import student_interval
from tempo_trl.runs.token_text import label_of, one_line
from tempo_trl.version import __version__

MAX_CRITERIA = 200  # of a run; a model may write names of its own
SCRIPTS = ("page.js", "tree.js", "turns.js", "criteria.js", "credit.js", "charts.js")
CURVES = {
    "reward": ("reward", "mean reward in training"),
    "eval_reward": ("reward in evaluation", "mean reward in evaluation"),
    "tempo/added_share": (
        "added share",
        "sum |added| / sum (|outcome| + |added|): what the method adds to GRPO's advantage, such as TEMPO's TD errors",
    ),
    "tempo/prefix_r2": ("explained by prefixes", "share of the rewards' variance that shared prefixes explain"),
    "tempo/value_error": (
        "error of the baseline",
        "squared error of the baseline / squared error of the mean of the other completions",
    ),
    "tempo/branch_nodes": ("branch nodes", "states with two different next tokens, per group"),
    "first_branch": ("first branch", "mean number of tokens before the first branch of a recorded group"),
    "tempo/branch_depth": ("branch depth", "mean number of tokens before a branch node"),
    "tempo/shared_prefix": ("shared prefix", "mean number of tokens shared with the closest other completion"),
    "tempo/unique_tokens": ("unique tokens", "nodes of the prefix trees / tokens"),
    "tempo/branch_tokens": ("branch tokens", "tokens to which the method adds something / tokens of the loss"),
    "spans/placed": ("credit with a place", "|credit| of criteria that have a place / all |credit|"),
    "spans/flat": ("flat criteria", "criteria with equal rewards in a group / criteria that judged in it"),
    "tempo/frac_zero_std": ("flat groups", "groups in which all completions have the same reward / groups"),
    "tempo/duplicates": ("duplicates", "completions that repeat an earlier one of their group / completions"),
    "completions/mean_length": ("length", "mean number of tokens of a completion"),
}


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
        "subtitle": f"{title} · showing {len(groups):,} of {recorded:,} recorded groups" if groups else title,
        "honest": _honest(runs),
        "sources": _sources(runs, chosen),
        "runs": [_run(run) for run in runs],
        "curves": curves(runs),
        "curvesLead": _curves_lead(runs),
        "nothing": sentences.NOTHING,
        "low": low,
        "high": high,
        "right": (low + high) / 2 if high > low else 0.0,
        "about": [
            "Advantages have TRL's units: by default, rewards divided by the standard deviation of their group. V and "
            "the TD errors in the tree have the units of the reward. ␣, ⏎ and ⇥ are space, line break and tab.",
            f"Made by tempo_trl {__version__}. This file works offline and loads no other files.",
        ],
    }


def _honest(runs: Sequence[RecordedRun]) -> list[dict]:
    several = len(runs) > 1
    lines = [sentences.honest_line(one_line(r.label) if several else None, r.summary) for r in runs if r.summary]
    return lines or [
        {"share": 0.0, "number": "–", "before": "", "head": "– of the credit moved.", "words": sentences.NOTHING}
    ]


def _sources(runs: Sequence[RecordedRun], chosen: Sequence[tuple[int, str, Group]]) -> list[dict]:
    sources = []
    for run, mode in dict.fromkeys((run, mode) for run, mode, _ in chosen):
        own = [i for i, place in enumerate(chosen) if place[:2] == (run, mode)]
        opening = own[opening_group([chosen[i][2] for i in own])]
        label = f"{one_line(runs[run].label)}, {MODES[mode]}"
        sources.append({"run": run, "label": label, "groups": own, "opening": opening})
    return sources


def _run(run: RecordedRun) -> dict:
    return {
        "label": one_line(run.label),
        "terms": run.terms._asdict() | {"some": run.terms.some, "is_td": run.terms.is_td},
        "statistics": _statistics(run.summary),
    }


def _statistics(summary: CreditSummary | None) -> dict | None:
    if summary is None:
        return None
    ranked, uncertain = summary.top_td(), summary.top_entropy()
    total, rank = ranked["mass"].sum(), {text: i for i, text in enumerate(ranked.index, start=1)}
    return {
        "tokensLead": sentences.tokens_lead(summary),
        "top": [_token(t, summary) | {"mass": t.mass, "share": t.mass / total} for t in ranked[:TOP].itertuples()],
        "entropies": [
            _token(t, summary) | {"entropy": t.mean_entropy, "rank": rank.get(t.Index)} for t in uncertain.itertuples()
        ],
        "depth": summary.depth_bins(),
        "branchCredit": sentences.branch_credit(summary),
        "branchWords": sentences.branch_words(summary),
        "criteria": _criteria(summary),
        "firstBranch": [first_branch_bar(k, rewards) for k, rewards in sorted(summary.first_branch.items())],
    }


def _criteria(summary: CreditSummary) -> dict[str, list]:
    """Of the criteria that judged most groups: mean reward, mean |advantage|, share of flat groups, groups."""
    most = sorted(summary.criteria.items(), key=lambda item: -item[1].groups)[:MAX_CRITERIA]
    return {
        visible_piece(name): [
            json_number(sums.reward / sums.judged),
            json_number(sums.credit / sums.judged),
            json_number(sums.flat / sums.groups),
            sums.groups,
        ]
        for name, sums in most
    }


def _token(token: NamedTuple, summary: CreditSummary) -> dict:
    counts = {"seen": token.seen, "ups": token.ups, "downs": token.downs}
    return {"text": label_of(token.Index), "examples": summary.examples(token.Index)} | counts


def first_branch_bar(k: int, rewards: list[float]) -> dict:
    """Mean reward of the groups whose first branch has k next tokens, with Student's interval over them."""
    mean, *interval = map(float, student_interval(rewards))
    low, high = interval if len(rewards) > 2 else (None, None)
    return {"k": k, "groups": len(rewards), "mean": mean, "low": low, "high": high}


def curves(runs: Sequence[RecordedRun]) -> list[dict]:
    """For each metric a line per name of a curve, which is the method, with a band if several runs have it."""
    found = []
    for key, (title, explained) in CURVES.items():
        by_name: dict[str, list[Curve]] = {}
        for run in runs:
            curve = run_curve(run, key)
            if curve is not None:
                by_name.setdefault(run.curve, []).append(curve)
        if by_name:
            lines = [_line(name, own) for name, own in by_name.items()]
            found.append({"key": key, "title": title, "help": explained, "lines": lines})
    return found


def run_curve(run: RecordedRun, key: str) -> Curve | None:
    """The logged curve of a metric, or if it was not logged, one computed from the recorded trees."""
    curve = read_curve(run.log, key)
    if curve is not None or run.summary is None:
        return curve
    points = run.summary.series.get(key.removeprefix("tempo/"))
    if not points:
        return None
    steps, values = np.array(points, dtype=float).T
    return Curve(steps, np.full_like(steps, np.nan), np.full_like(steps, np.nan), values)


def _line(name: str, own: Sequence[Curve]) -> dict:
    mean, low, high = band(own)
    line = {"name": one_line(name), "x": mean.steps.tolist(), "y": mean.value.tolist(), "low": None, "high": None}
    if len(own) > 1:
        line |= {"low": low.tolist(), "high": high.tolist()}
    return line | {"runs": [{"x": c.steps.tolist(), "y": c.value.tolist()} for c in own]}


def _curves_lead(runs: Sequence[RecordedRun]) -> str:
    several = len({run.label for run in runs}) > len({run.curve for run in runs})
    bands = " Thin lines are runs, thick lines their mean with its 95% band." if several else ""
    return "Logged over all completions. Metrics that were not logged are computed from the recorded groups." + bands
