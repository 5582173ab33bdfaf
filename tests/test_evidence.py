"""docs/evidence.md and its pages say what the numbers beside their figures say."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compact_json import write_json
from benchmarks.estimators import evidence
from benchmarks.estimators.__main__ import QUESTIONS
from benchmarks.gpu.language_model import comparison
from benchmarks.language_model import cells
from benchmarks.language_model.arms import LONG_STEPS, Cell
from benchmarks.language_model.noise import table_of
from benchmarks.language_model.show import LAST, compared, tables
from benchmarks.language_model.study import INSTRUCTIONS, ORDERS
from benchmarks.language_model.study import STUDIES as LANGUAGE_STUDIES
from benchmarks.learning import results
from benchmarks.learning.results import Measured, baseline_of, read_results
from benchmarks.learning.statistics import iqm
from benchmarks.learning.studies import STUDIES

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [path.read_text() for path in (DOCS / "evidence.md", *sorted((DOCS / "evidence").glob("*.md")))]
PAGE = "\n".join(PAGES)
FIGURES = sorted((DOCS / "evidence").glob("*.png"))


def numbers_behind(figure: Path) -> list[Path]:
    """The file of a figure's name, or, for a figure of several studies, theirs."""
    own = figure.with_suffix(".json")
    return [own] if own.exists() else sorted(figure.parent.glob(f"{figure.stem}_*.json"))


NUMBERS = [pytest.param(figure, path, id=path.stem) for figure in FIGURES for path in numbers_behind(figure)]
LEARNED = [name for name in STUDIES if (DOCS / "evidence" / f"learning_{name}.json").exists()]
SIGNS = {"=": "", ">": "> ", "<": "< "}


def numbers_of(name: str) -> dict:
    return json.loads((DOCS / "evidence" / f"{name}.json").read_text())


@pytest.mark.parametrize(("figure", "numbers"), NUMBERS)
def test_a_figure_is_shown_and_its_numbers_say_how_they_came_about(figure, numbers):
    (page,) = [page for page in PAGES if f"]({figure.name})" in page]
    written = numbers_of(numbers.stem)
    origin = written.get("provenance", written)
    kind, _, subject = numbers.stem.partition("_")
    commands = {study.stem: study.command for study in LANGUAGE_STUDIES.values()}
    assert origin["command"] == commands.get(figure.stem, f"python -m benchmarks.{kind} {subject}")
    assert f"`{origin['command']}`" in page
    commits = origin.get("commits_of_runs") or [origin["commit"]]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    assert not origin.get("dirty", False)
    assert origin["machine"] and origin.get("seeds", [origin.get("seed")]) != [None]


@pytest.mark.parametrize(("figure", "numbers"), NUMBERS)
def test_numbers_are_kept_as_their_command_writes_them(figure, numbers, tmp_path):
    is_of_language = figure.stem in {study.stem for study in LANGUAGE_STUDIES.values()}
    of_language = cells.DIGITS if is_of_language else results.DIGITS
    digits = evidence.DIGITS if figure.stem.startswith("estimators_") else of_language
    write_json(tmp_path / "again.json", numbers_of(numbers.stem), digits)
    assert (tmp_path / "again.json").read_text() == numbers.read_text()


def test_every_question_has_a_figure():
    assert {f"estimators_{name}" for name in QUESTIONS} <= {figure.stem for figure in FIGURES}


def test_every_file_of_the_evidence_is_named_by_a_page():
    behind = {path for figure in FIGURES if f"]({figure.name})" in PAGE for path in (figure, *numbers_behind(figure))}
    files = {path for path in (DOCS / "evidence").iterdir() if path.suffix != ".md"}
    assert [path.name for path in sorted(files - behind) if f"`{path.name}`" not in PAGE] == []


def row_of(cells: list[str]) -> str:
    """A row of a table in Markdown; between the bars of an empty cell is one space."""
    return f"| {' | '.join(cells)} |".replace("  ", " ").replace("  ", " ")


def points(measured: dict, sign: str = "") -> str:
    """A mean and its interval, in points."""
    mean, low, high = (f"{100 * measured[name]:{sign}.1f}" for name in ("iqm", "low", "high"))
    return f"{mean} [{low}, {high}]"


def rows_of_agents(world: str) -> Iterator[str]:
    for result in numbers_of(f"agents_{world}")["results"]:
        cells = [points(result["final"]), "", "1"]
        if result["label"] != "grpo":
            times = result["tokens_to_over_grpo"]["0.7"]
            cells[1:] = points(result["mean_over_grpo"], "+"), f"{SIGNS[times['sign']]}{times['value']:.2f}"
        yield row_of(cells)


def rows_of_signals() -> Iterator[str]:
    records = numbers_of("estimators_signals")["records"]
    for said, low, high in (("under 0.2", 0, 0.2), ("0.2 to 0.4", 0.2, 0.4), ("over 0.4", 0.4, 1)):
        inside = [r for r in records if low <= r["prefix_explained"] < high]
        tempo, adaptive = (np.array([r[f"{name} gain"][0] for r in inside]) for name in ("TEMPO", "adaptive"))
        ahead = f"{(tempo > 1).sum() or 'none'} | {np.median(tempo):.2f} | {(adaptive > 1).sum()}"
        least = f", by {adaptive.max():.2f} at most" if low == 0 else ""
        yield f"| {said} | {len(inside)} | {ahead}{least} | {np.median(adaptive):.2f} |"


def row_of_gains(label: str, pairs: list[list[float]]) -> str:
    """How often a method of the random tasks is ahead, and by how much."""
    gains, errors = np.array(pairs).T
    ahead, behind = ((sign * np.log(gains) > 2 * errors / gains).sum() for sign in (1, -1))
    return f"| {label} | {ahead} | {behind or 'none'} | {np.median(gains):.2f} | {gains.min():.2f} |"


GAINS = {
    "kernel": {
        "kernel baseline": "kernel baseline over GRPO",
        "prefix baseline": "prefix baseline over GRPO",
        "kernel over prefix": "kernel over prefix baseline",
    },
    "learned_td": {
        f"{ours} over {other}": f"{label} over {the}{other}"
        for ours, label in (
            ("learned", "learned coefficient"),
            ("always 0.1", "always 0.1"),
            ("TD error alone", "TD errors alone"),
        )
        for the, other in (("the ", "kernel baseline"), ("", "GRPO"))
    },
}


def rows_of_gains(question: str) -> Iterator[str]:
    records = numbers_of(f"estimators_{question}")["records"]
    for name, label in GAINS[question].items():
        yield row_of_gains(label, [record[f"{name} gain"] for record in records])


def row_of_arm(arm: dict, level: float) -> str:
    cells = [f"`{arm['label']}`", f"{arm['learning_rate']:g}", points(arm["final"]), points(arm["mean"])]
    if arm["label"] == "grpo":
        return "| " + " | ".join([*cells, "", "1", "1"]) + " |"
    ratios = [ratio(arm[f"{unit}_to_over_grpo"].get(str(level))) for unit in ("tokens", "seconds")]
    return "| " + " | ".join([*cells, points(arm["mean_over_grpo"], "+"), *ratios]) + " |"


def ratio(measured: dict | None) -> str:
    if measured is None or measured["value"] is None:
        return "never"
    return f"{SIGNS[measured['sign']]}{measured['value']:.2f} [{measured['low']:.2f}, {measured['high']:.2f}]"


def rows_of_study(name: str, level: float) -> str:
    return "\n".join(row_of_arm(arm, level) for arm in numbers_of(f"learning_{name}")["results"])


def row_of_ceiling(arm: dict) -> str:
    """A method or oracle with its lead over GRPO, and its share of the better oracle's."""
    cells = [f"`{arm['label']}`", f"{arm['learning_rate']:g}", points(arm["mean"]), "", ""]
    if arm["label"] != "grpo":
        share = arm["share_of_oracle"]
        cells[3:] = points(arm["mean_over_grpo"], "+"), "nothing to share" if share is None else percent(share)
    return row_of(cells)


def percent(share: dict) -> str:
    """A share and its interval, in percent."""
    mean, low, high = (f"{100 * share[name]:.0f}" for name in ("iqm", "low", "high"))
    return f"{mean}% [{low}, {high}]"


def rows_of_ceiling(name: str) -> Iterator[str]:
    results = numbers_of(f"learning_{name}")["results"]
    for panel in dict.fromkeys(arm["panel"] for arm in results):
        yield "\n".join(row_of_ceiling(arm) for arm in results if arm["panel"] == panel)


def rows_of_floor() -> str:
    """Each credit without and with the floor: its lead over GRPO, and over the same credit without."""
    own, rows = {one.arm.label: one for one in read_results(numbers_of("learning_floor"))}, []
    for label, one in own.items():
        cells = [f"`{label}`", f"{one.learning_rate:g}", one.mean.percent(), "", ""]
        if label != "grpo":
            cells[3] = one.over(own["grpo"]).percent(signed=True)
        if label.endswith(", floor"):
            cells[4] = one.over(own[label.removesuffix(", floor")]).percent(signed=True)
        rows.append(row_of(cells))
    return "\n".join(rows)


def rows_of_knob(*studies: str) -> Iterator[str]:
    """Each method's lead over GRPO, by panel. The kernel baseline's own sweep chose GRPO's rate: no row of its own."""
    arms = [arm for study in studies for arm in numbers_of(f"learning_{study}")["results"]]
    others = (arm["label"] for arm in arms if arm["label"] not in ("grpo", "kernel_baseline, own rate"))
    for label in dict.fromkeys(others):
        cells = [points(arm["mean_over_grpo"], "+") for arm in arms if arm["label"] == label]
        yield row_of([f"`{label}`", *cells])


TABLES = {
    **{f"agents, {world}": lambda world=world: rows_of_agents(world) for world in ("rooms", "lake", "taxi")},
    "signals": rows_of_signals,
    **{question: lambda question=question: rows_of_gains(question) for question in GAINS},
    "chain": lambda: [rows_of_study("chain", 0.8)],
    "plan": lambda: [rows_of_study("plan", 0.7)],
    **{name: lambda name=name: rows_of_ceiling(name) for name in LEARNED if name.startswith("ceiling_")},
    "floor": lambda: [rows_of_floor()],
    **{knob: lambda knob=knob: rows_of_knob(knob) for knob in ("slip", "wording", "carried", "length", "equal_rates")},
    "similar prefixes": lambda: rows_of_knob("similarity", "letters", "kernel_chain", "kernel_plan"),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_of_a_table_are_those_of_the_numbers(name):
    rows = [*TABLES[name]()]
    assert rows
    for row in rows:
        assert row in PAGE, f"To be pasted into the page:\n\n{row}"


@pytest.mark.parametrize("name", LEARNED)
def test_studies_have_five_seeds_and_equal_tokens(name):
    numbers = numbers_of(f"learning_{name}")
    assert numbers["seeds"] == [0, 1, 2, 3, 4]
    for arm in numbers["results"]:
        same = [other for other in numbers["results"] if other["panel"] == arm["panel"]]
        assert {other["tokens"] for other in same} == {arm["tokens"]}


@pytest.mark.parametrize("name", LEARNED)
def test_the_statistics_of_a_study_are_those_of_the_runs_beside_them(name):
    numbers = numbers_of(f"learning_{name}")
    read = read_results(numbers)
    for arm, result in zip(numbers["results"], read, strict=True):
        over = result.over(baseline_of(result, read))
        measured = {"final": result.final, "mean": result.mean, "mean_over_grpo": over}
        assert {field: ends(Measured(**arm[field])) for field in measured} == {
            field: pytest.approx(ends(one), abs=1e-5) for field, one in measured.items()
        }


def ends(measured: Measured) -> list[float]:
    return [measured.iqm, measured.low, measured.high]


LANGUAGE = {
    "grpo": "GRPO",
    "tempo": "TEMPO",
    "prefix_baseline": "prefix baseline",
    "kernel_baseline": "kernel baseline",
    "grpo_lambda": "GRPO-lambda",
    "grpo_lambda without trace": "GRPO-lambda without trace",
    "hepo": "HEPO",
    "oracle": "oracle",
    "hidden_baseline": "baseline from hidden states",
    "shear": "SHEAR",
}


LANGUAGE_PAGE = (DOCS / "evidence" / "language_model.md").read_text()


@pytest.mark.parametrize("arm", LANGUAGE)
def test_the_table_of_the_language_model_is_that_of_the_numbers(arm):
    measured = cells.Cells(INSTRUCTIONS)
    rates = measured.rates()
    pairs = measured.pairs(arm, rates[arm], rates["grpo"])
    assert len(pairs) == 5
    held_out = np.mean([100 * own["held_out"]["all"] for own, _ in pairs])
    found = compared(pairs, INSTRUCTIONS.level)
    assert [LANGUAGE[arm], f"{rates[arm]:g}", *found, f"{held_out:.0f}%"] in rows_of(LANGUAGE_PAGE)
    control = measured.pairs(f"{arm} at GRPO's rate", rates["grpo"], rates["grpo"])
    if control:
        cells_of_control = compared(control, INSTRUCTIONS.level)
        expected = [f"{LANGUAGE[arm]}, {len(control)} seeds", f"{rates['grpo']:g}", *cells_of_control]
        assert expected in rows_of(LANGUAGE_PAGE)


@pytest.mark.parametrize("arm", ["grpo", "tempo"])
def test_the_table_of_the_long_runs_is_that_of_the_numbers(arm):
    measured = cells.Cells(INSTRUCTIONS)
    run = measured.of(Cell(arm, measured.rates()[arm], INSTRUCTIONS.seeds[0], LONG_STEPS))
    for name in ("reward", "length", "entropy", "distinct"):
        spans = [run[name][start : start + 30] for start in range(0, LONG_STEPS, 30)]
        assert [LANGUAGE[arm], *(f"{np.mean(span):.2f}" for span in spans)] in [
            row[1:] for row in rows_of(LANGUAGE_PAGE)
        ]
    assert f"Both end with {100 * run['held_out']['all']:.0f}% of held-out instructions met" in LANGUAGE_PAGE


MEASURED = [study for study in LANGUAGE_STUDIES.values() if study.has_criteria and study.numbers.exists()]


@pytest.mark.parametrize("study", MEASURED, ids=[study.task for study in MEASURED])
def test_the_tables_of_a_study_with_criteria_are_those_of_its_numbers(study):
    page = rows_of((DOCS / "evidence" / "orders.md").read_text())
    found = [
        row for table in tables(cells.Cells(study)) for row in zip(*(c.cells for c in table.columns), strict=True)
    ]
    assert found
    for row in found:
        assert [*row] in page


def test_the_tables_of_noise_are_those_of_their_numbers():
    page = (DOCS / "evidence" / "orders.md").read_text()
    policies = json.loads((DOCS / "evidence" / "orders_noise.json").read_text())["policies"]
    for name, numbers in policies.items():
        assert f"Policy `{name}`, mean reward {numbers['reward']:.2f}:" in page
        for row in zip(*(column.cells for column in table_of(name, numbers).columns), strict=True):
            assert [*row] in rows_of(page)
        assert not numbers["provenance"]["dirty"]


def test_the_lead_on_a_gpu_is_that_of_the_numbers():
    page = rows_of((DOCS / "evidence" / "gpu.md").read_text())
    found = defaultdict(list)
    for row in json.loads((DOCS / "evidence" / "orders_gpu.json").read_text())["cells"]:
        found[row["arm"]].append(row)
    said = comparison(found)
    assert len(said) == 4
    for row in said:
        assert [*row] in page


ON_FRONT = {
    "grpo": "GRPO",
    "tempo": "TEMPO",
    "span_credit": "span credit, `trace_lambda` 0",
    "span_credit lambda 0.9": "span credit, `trace_lambda` 0.9",
}


@pytest.mark.parametrize("arm", ON_FRONT)
def test_the_readmes_table_of_orders_is_that_of_the_numbers(arm):
    measured = cells.Cells(ORDERS)
    rates = measured.rates()
    pairs = measured.pairs(arm, rates[arm], rates["grpo"])
    mean, gain, *_ = compared(pairs, ORDERS.level)
    points = [100 * float(number) for number in re.findall(r"-?[0-9.]+", gain)]
    ahead = "{:+.1f} ({:.1f} to {:.1f})".format(*points).replace("-0.0", "0.0") if points else ""
    last = iqm([100 * np.mean(row["all"][-LAST:]) for row, _ in pairs])
    held_out = [100 * np.mean([row["held_out"][name] for row, _ in pairs]) for name in ("mean", "all")]
    expected = [
        f"{100 * float(mean.split()[0]):.1f} %",
        ahead,
        f"{last:.0f} %",
        "{:.0f} %, {:.0f} %".format(*held_out),
    ]
    assert [ON_FRONT[arm], *expected] in rows_of((REPOSITORY / "README.md").read_text())


def rows_of(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]


def means_by_size() -> dict[str, np.ndarray]:
    """Mean accuracy over the budget of each method, by group size and seed; the study of the chain has G = 8."""
    named = [*numbers_of("learning_group_size")["results"], *numbers_of("learning_chain")["results"]]
    labels = {"grpo", "tempo", "prefix_baseline"}
    return {
        label: np.array([arm["mean"]["seeds"] for arm in named if arm["label"] == label]) for label in sorted(labels)
    }


def test_the_page_counts_the_pairs_in_which_tempo_was_ahead():
    means = means_by_size()
    ahead = means["tempo"] > means["grpo"]
    assert ahead.shape == (6, 5)
    assert f"in {ahead.sum()} of 30 pairs of runs" in " ".join(PAGE.split())
    assert f"in {ahead.sum()} of 30 pairs of runs" in " ".join((REPOSITORY / "README.md").read_text().split())


def similarity_of(samples: str) -> dict:
    """Errors of predicting rewards of real samples, by group size and by what predicts."""
    return {size: own["errors"] for size, own in numbers_of(f"similarity_{samples}")["sizes"].items()}


OF_THE_PACKAGE = "n-grams to 2, blocks of 1"  # how the kernel baseline compared prefixes
PREDICTIONS = {
    "plain prefix mean (TEMPO's values)": "TEMPO's prefix values, without the completion itself",
    "adaptive prefix baseline": "adaptive prefix baseline",
    OF_THE_PACKAGE: "kernel baseline",
}


@pytest.mark.parametrize("samples", ["code", "words"])
def test_the_table_of_samples_is_that_of_the_numbers(samples):
    for name, label in PREDICTIONS.items():
        own = [errors[name] for errors in similarity_of(samples).values()]
        cells = ["{:.3f} [{:.3f}, {:.3f}] | {:.3f}".format(e["error"], *e["interval"], e["by_eighth"][6]) for e in own]
        assert f"| {label} | {' | '.join(cells)} |" in PAGE
    origin = numbers_of(f"similarity_{samples}")["provenance"]
    assert f"`{origin['command']}`" in PAGE
    assert re.fullmatch("[0-9a-f]{40}", origin["commit"]) and not origin["dirty"]


def test_the_table_of_ways_to_compare_prefixes_is_that_of_the_numbers():
    shown = [*similarity_of("code").values(), similarity_of("words")["8"]]
    for name in shown[0].keys() - [*PREDICTIONS][:2]:
        cells = [f"{errors[name][half]:.3f}" for errors in shown for half in ("chosen_by", "error")]
        label = "the kernel baseline as it was" if name == OF_THE_PACKAGE else name
        assert f"| {label} | {' | '.join(cells)} |" in PAGE


def test_equal_rates_are_those_that_grpos_own_sweeps_chose():
    grpo = [arm for arm in numbers_of("learning_length")["results"] if arm["label"] == "grpo"]
    chosen = {(arm["panel"], arm["learning_rate"]) for arm in grpo}
    assert len(chosen) == 4
    assert {(arm["panel"], arm["learning_rate"]) for arm in numbers_of("learning_equal_rates")["results"]} == chosen


def test_the_tables_of_perfect_credit_are_those_of_the_numbers():
    policies = numbers_of("language_model_truth")["policies"]
    start, trained = (policies[name] for name in ("start", "grpo,lr=0.0001,seed=0,steps=20"))

    def shown(numbers: list[float], digits: int = 2) -> str:
        return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*numbers, d=digits)

    for when, policy, places in (("before training", start, (1, 3, 5, 7)), ("after 20 steps", trained, (1, 2, 3, 4))):
        assert f"| {when} | {' | '.join(f'{share[0]:.2f}' for share in policy['decided_by'])} |" in LANGUAGE_PAGE
        for estimate, own in list(policy["errors"].items())[1:]:
            at = " | ".join(f"{own['by_place'][index]:.2f}" for index in places)
            assert f"| {estimate} | {shown(own['error'])} | {at} |" in LANGUAGE_PAGE
        assert f"Measured at commit {policy['provenance']['commit'][:7]} with" in LANGUAGE_PAGE
        assert not policy["provenance"]["dirty"]
    for credit in list(start["gradient"])[1:]:
        both = " | ".join(shown(policy["gradient"][credit]["noise_to_signal"]) for policy in (start, trained))
        assert f"| {credit} | {both} |" in LANGUAGE_PAGE
    for source, name in zip(
        start["sources"], ("chance of the completions", "choice of the prompt", "signal"), strict=True
    ):
        assert (
            f"| {name} | {' | '.join(shown(policy['sources'][source], 3) for policy in (start, trained))} |"
            in LANGUAGE_PAGE
        )
    cosine = trained["gradient"]["TEMPO"]["cosine"][0]
    assert f"(the cosine with the true gradient is {cosine:.2f})" in " ".join(LANGUAGE_PAGE.split())
