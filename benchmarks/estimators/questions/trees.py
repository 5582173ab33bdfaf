"""The benefit of grown trees: the same credit on independent completions and on trees, at equal tokens."""

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLACK, BLUE, GREEN, ORANGE, gains, named, sheet, spans
from benchmarks.estimators.estimators import Estimator, adaptive, tempo, treerpo
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import measure
from benchmarks.estimators.metrics import gain, shown, summary
from benchmarks.estimators.rollouts import Entropy, Fixed, Independent
from benchmarks.estimators.task import Task

TITLE = "Grown trees at equal tokens, against GRPO on independent completions"
BATCHES = 40
TASKS = {
    "early": Task((0, 1)),
    "spread": Task((0, 4, 8)),
    "late": Task((7, 8, 9)),
    # Only decisive tokens are above the trees' threshold: all alike, and unequal so that uneven weights show as bias.
    "forks": Task((0, 4, 8), irrelevant=0.1),
    "unequal forks": Task((0, 4, 8), irrelevant=0.1, importance=(0.4, 0.7, 1.0)),
}
PANELS = ("early (1, 2)", "spread (1, 5, 9)", "late (8, 9, 10)", "forks: spread, sure otherwise", "unequal forks")
IID, FIXED, ENTROPY = Independent(8), Fixed(2, 3), Entropy(8)
METHODS = {
    "GRPO": Estimator(IID, tempo(0.0)),
    "TEMPO, c = 1": Estimator(IID, tempo(1.0)),
    "prefix baseline, adaptive": Estimator(IID, adaptive()),
    "GRPO, fixed 2³": Estimator(FIXED, tempo(0.0)),
    "TEMPO, fixed 2³": Estimator(FIXED, tempo(1.0)),
    "adaptive, fixed 2³": Estimator(FIXED, adaptive()),
    "TreeRPO 2³": Estimator(FIXED, treerpo()),
    "TreeRPO 2³, per leaf": Estimator(FIXED, treerpo(count_shared_tokens="per_leaf")),
    "TEMPO, fixed 4²": Estimator(Fixed(4, 2), tempo(1.0)),
    "adaptive, fixed 4²": Estimator(Fixed(4, 2), adaptive()),
    "GRPO, entropy 8": Estimator(ENTROPY, tempo(0.0)),
    "TEMPO, entropy 8": Estimator(ENTROPY, tempo(1.0)),
    "TEMPO, entropy 8, reweighted": Estimator(ENTROPY, tempo(1.0, "reweight")),
    "adaptive, entropy 8": Estimator(ENTROPY, adaptive()),
    "TreeRPO entropy 8": Estimator(ENTROPY, treerpo("leaves")),
}
BIASED = 0.25  # share of an estimate's error from which on a figure shows it as biased


def measure_records(effort: Effort) -> list[dict]:
    tasks = {"late": TASKS["late"]} if effort.quick else TASKS
    return [record for name, task in tasks.items() for record in _records(name, task, effort)]


def _records(name: str, task: Task, effort: Effort) -> list[dict]:
    m, true = measure(task, METHODS, effort.batches, effort.budget), task.tree().gradient
    return [
        {
            "task": name,
            "method": method,
            "tokens": float(ours.tokens.mean()),
            "gain": gain(ours, m["GRPO"], true),
            **summary(ours, true),
        }
        for method, ours in m.items()
    ]


def table(records: list[dict]) -> Table:
    tasks = list(dict.fromkeys(r["task"] for r in records))
    table = Table(title=TITLE, caption="gain: GRPO's error / this one's; (b): squared bias is over a quarter of it")
    for column in ("", "tokens", *(f"{task}: {what}" for task in tasks for what in ("gain", "cosine"))):
        table.add_column(column, justify="right")
    for method in METHODS:
        rows = [r for r in records if r["method"] == method]
        figures = [text for r in rows for text in (shown(r["gain"]) + _mark(r), shown(r["cosine"], 3))]
        table.add_row(method, f"{rows[0]['tokens']:.0f}", *figures)
    return table


def is_biased(record: dict) -> bool:
    return record["bias"][0] > 2 * record["bias"][1] and record["bias"][0] > BIASED * record["error"][0]


def _mark(record: dict) -> str:
    return " (b)" if is_biased(record) else ""


def _colour(method: str) -> str:
    kinds = {"fixed": BLUE, "2³": BLUE, "entropy": ORANGE}
    return next((colour for word, colour in kinds.items() if word in method), GREEN if method != "GRPO" else BLACK)


def draw(records: list[dict]) -> Figure:
    tasks = list(dict.fromkeys(r["task"] for r in records))
    figure, panels = sheet(TITLE, PANELS[: len(tasks)], (13, 5), sharey=True)
    figure.subplots_adjust(left=0.16, right=0.98, wspace=0.1)
    for axes, task in zip(panels, tasks, strict=True):
        for row, r in enumerate(r for r in records if r["task"] == task):
            (value,), lengths = spans([r["gain"]])
            face = "white" if is_biased(r) else _colour(r["method"])
            style = {"fmt": "o", "markersize": 5, "capsize": 2, "color": _colour(r["method"])}
            axes.errorbar([value], [row], xerr=lengths, markerfacecolor=face, **style)
        gains(axes, (0.125, 0.5, 2, 8), along="x")
        axes.set_xlim(0.07, 40)
        named(axes, "GRPO's error / this one's")
        axes.grid(axis="y", color="#eeeeee")
    panels[0].set_yticks(range(len(METHODS)), METHODS, fontsize=8)
    panels[0].invert_yaxis()
    for label in panels[0].get_yticklabels():
        label.set_color(_colour(label.get_text()))
    figure.text(0.98, 0.955, "hollow: squared bias is over a quarter of the error", fontsize=8, ha="right")
    return figure
