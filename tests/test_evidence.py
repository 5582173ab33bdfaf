"""The pages of results say what the numbers beside their figures say."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agents.studies import STUDIES as AGENT_STUDIES
from benchmarks.compact_json import write_json
from benchmarks.gpu.language_model import comparison
from benchmarks.language_model import cells
from benchmarks.language_model.noise import of_a_step
from benchmarks.language_model.show import alone, by_phase, over_grpo, with_grpo
from benchmarks.language_model.study import STUDIES as ALL_LANGUAGE_STUDIES
from benchmarks.learning import results
from benchmarks.learning.results import Measured, baseline_of, read_results
from benchmarks.learning.statistics import interval, iqm
from benchmarks.learning.studies import STUDIES

FOLDER = Path(__file__).parents[1] / "docs" / "evidence"
PAGES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
DOCS = FOLDER.parent
README = DOCS.parent / "README.md"
QUOTING = [README, DOCS / "guides" / "choosing.md", *sorted((DOCS / "methods").glob("*.md"))]
QUOTING += [FOLDER / "language_models.md", FOLDER / "toy_tasks.md"]
FIGURES = sorted(FOLDER.glob("*.png"))
LANGUAGE_STUDIES = {name: study for name, study in ALL_LANGUAGE_STUDIES.items() if study.numbers.exists()}
OF_LANGUAGE = {study.stem: study for study in LANGUAGE_STUDIES.values()}
WITH_RUNS = {
    name: study
    for name, study in LANGUAGE_STUDIES.items()
    if any(row["arm"] == "grpo" and study.is_final(cells.cell_of(row)) for row in cells.Cells(study).rows)
}
LEARNED = {f"learning_{name}": study for name, study in STUDIES.items()}
LEARNED |= {f"agents_{name}": study for name, study in AGENT_STUDIES.items()}
SIGNS = {"=": "", ">": "> ", "<": "< "}


def numbers_of(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_a_figure_is_shown_and_its_numbers_say_how_they_came_about(figure):
    (page,) = [page for page in PAGES.values() if f"]({figure.name})" in page]
    written = numbers_of(figure.stem)
    origin = written.get("provenance", written)
    kind, _, subject = figure.stem.partition("_")
    study = OF_LANGUAGE.get(figure.stem)
    assert origin["command"] == (study.command if study else f"python -m benchmarks.{kind} {subject}")
    assert f"`{origin['command']}`" in page
    commits = origin.get("commits_of_runs") or [origin["commit"]]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    assert not origin.get("dirty", False)
    assert origin["machine"] and origin.get("seeds", [origin.get("seed")]) != [None]


@pytest.mark.parametrize("name", [*OF_LANGUAGE, *LEARNED])
def test_numbers_are_kept_as_their_command_writes_them(name, tmp_path):
    write_json(tmp_path / "again.json", numbers_of(name), cells.DIGITS if name in OF_LANGUAGE else results.DIGITS)
    assert (tmp_path / "again.json").read_text() == (FOLDER / f"{name}.json").read_text()


def test_every_file_of_the_evidence_is_named_by_a_page():
    together = "".join(PAGES.values())
    files = [path for path in FOLDER.iterdir() if path.suffix != ".md"]
    shown = {figure.stem for figure in FIGURES if f"]({figure.name})" in together}
    assert [path.name for path in files if path.stem not in shown and f"`{path.name}`" not in together] == []


# Tables


def row_of(shown: list[str]) -> str:
    """A row of a table in Markdown; between the bars of an empty cell is one space."""
    return f"| {' | '.join(shown)} |".replace("|  |", "| |").replace("|  |", "| |")


def points(measured: Measured, sign: str = "") -> str:
    """A mean and its interval, in points."""
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in (measured.iqm, measured.low, measured.high))
    return f"{mean} [{low}, {high}]"


def ratio_to_grpo(arm: dict, unit: str, level: str) -> str:
    found = arm[f"{unit}_to_over_grpo"].get(level)
    if found is None or found["value"] is None:
        return "never"
    return f"{SIGNS[found['sign']]}{found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def rows_of_study(name: str, level: str, units: tuple[str, ...]) -> Iterator[str]:
    numbers = numbers_of(name)
    read = read_results(LEARNED[name], numbers)
    for arm, one in zip(numbers["results"], read, strict=True):
        itself = arm["label"] == "grpo"
        over = ["", *("1" for _ in units)] if itself else [points(one.over(baseline_of(one, read)), "+")]
        over += [] if itself else [ratio_to_grpo(arm, unit, level) for unit in units]
        yield row_of([f"`{arm['label']}`", f"{arm['learning_rate']:g}", points(one.final), *over])


def rows_of_floor() -> Iterator[str]:
    """Each credit without and with the floor: its lead over GRPO, and over the same credit without."""
    own = {one.arm.label: one for one in read_results(STUDIES["floor"], numbers_of("learning_floor"))}
    for label, one in own.items():
        over = "" if label == "grpo" else points(one.over(own["grpo"]), "+")
        bare = label.removesuffix(", floor")
        gain = "" if bare == label else points(one.over(own[bare]), "+")
        yield row_of([f"`{label}`", f"{one.learning_rate:g}", points(one.mean), over, gain])


def rows_of_group_size() -> Iterator[str]:
    read = read_results(STUDIES["group_size"], numbers_of("learning_group_size"))
    for label in ("tempo", "prefix_baseline"):
        leads = [points(one.over(baseline_of(one, read)), "+") for one in read if one.arm.label == label]
        yield row_of([f"`{label}`", *leads])


def rows_of_gains() -> Iterator[str]:
    """How often a method's gradient is nearer than GRPO's on the random tasks, and by how much."""
    records = numbers_of("estimators_adaptive")["records"]
    for name, label in (("adaptive", "prefix baseline"), ("TEMPO", "TEMPO")):
        gains, errors = np.array([record[f"{name} gain"] for record in records]).T
        ahead, behind = ((sign * np.log(gains) > 2 * errors / gains).sum() for sign in (1, -1))
        yield row_of([label, str(ahead), str(behind or "none"), f"{np.median(gains):.2f}", f"{gains.min():.2f}"])


def rows_of_language(study, table=over_grpo) -> Iterator[str]:
    measured = cells.Cells(study)
    rates = measured.rates()
    pairs = with_grpo(measured, rates, rates["grpo"], study.seeds)
    assert {arm: len(own) for arm, own in pairs.items()} == {arm: len(study.seeds_of(arm)) for arm in pairs}
    yield from map(row_of, map(list, zip(*(column.cells for column in table(pairs).columns), strict=True)))


def rows_of_noise(name: str = "orders_noise") -> Iterator[str]:
    policies = numbers_of(name)["policies"]
    for credit in policies["start"]["credits"]:
        shown = [credit]
        for own in (policies[policy]["credits"][credit] for policy in sorted(policies, reverse=True)):
            step = [of_a_step(share) for share in own["signal"]]
            shown += ["{:.2f} [{:.2f}, {:.2f}]".format(*numbers) for numbers in (own["noise_to_signal"], step)]
        yield row_of(shown)


def rows_of_fine_tuning(study) -> Iterator[str]:
    for arm, (row,) in alone(cells.Cells(study)).items():
        yield row_of([arm, *(f"{100 * row['held_out'][name]:.1f}" for name in ("mean", "all", "pass"))])


def rows_of_gpu() -> Iterator[str]:
    found = defaultdict(list)
    for row in numbers_of("orders_gpu")["cells"]:
        found[row["arm"]].append(row)
    yield from (f"| {figure} | {value} |" for figure, value in comparison(found))


TABLES = {
    "chain": ("toy_tasks", lambda: rows_of_study("learning_chain", "0.8", ("tokens", "seconds"))),
    "plan": ("toy_tasks", lambda: rows_of_study("learning_plan", "0.7", ("tokens",))),
    "rooms": ("toy_tasks", lambda: rows_of_study("agents_rooms", "0.7", ("tokens",))),
    "taxi": ("toy_tasks", lambda: rows_of_study("agents_taxi", "0.7", ("tokens",))),
    "floor": ("toy_tasks", rows_of_floor),
    "group size": ("toy_tasks", rows_of_group_size),
    "gains": ("toy_tasks", rows_of_gains),
    **{task: ("language_models", lambda study=study: rows_of_language(study)) for task, study in WITH_RUNS.items()},
    **{
        f"{task} fine-tuned": ("language_models", lambda study=study: rows_of_fine_tuning(study))
        for task, study in LANGUAGE_STUDIES.items()
        if study.fine_tuning
    },
    "noise": ("language_models", rows_of_noise),
    "gpu": ("gpu", rows_of_gpu),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_of_a_table_are_those_of_the_numbers(name):
    page, rows = TABLES[name]
    assert "\n".join(rows()) in PAGES[page]


@pytest.fixture(scope="module")
def measured() -> set[tuple[float, ...]]:
    """(x, low, high) of each interval of the tables, of runs by phase and of all noises, and each turned round."""
    criteria = [study for study in WITH_RUNS.values() if study.has_criteria]
    noises = [path.stem for path in FOLDER.glob("*_noise.json")]
    rows = chain(*(rows() for _, rows in TABLES.values()), *(rows_of_language(study, by_phase) for study in criteria))
    text = "\n".join(chain(rows, *map(rows_of_noise, noises)))
    found = {tuple(map(float, one)) for one in re.findall(r"(\S+) \[(\S+), (\S+)\]", text)}
    return found | {(-x, -high, -low) for x, low, high in found}


@pytest.mark.parametrize("page", QUOTING, ids=lambda path: path.stem)
def test_every_interval_that_a_page_quotes_is_one_of_the_numbers(page, measured):
    """A quote is "x (a to b)", with words between x and the bracket."""
    number = r"[-+]?\d+\.\d+"
    for paragraph in re.sub(r"\]\([^)]*\)", "]", page.read_text()).split("\n\n"):
        for words, low, high in re.findall(rf"(.*?)\(({number})\s+to\s+({number})\)", paragraph, re.DOTALL):
            quoted = [(float(x), float(low), float(high)) for x in re.findall(number, words)]
            assert measured & set(quoted), f"{words[-60:]}({low} to {high})"


def test_the_pages_quote_the_runs_after_four_epochs():
    held_out = defaultdict(list)
    for row in numbers_of("products_4_epochs")["cells"]:
        held_out[row["arm"]].append(100 * row["held_out"]["mean"])
    means = {arm: f"{np.mean(own):.1f} %" for arm, own in held_out.items()}
    named = [f"GRPO {means['grpo']}", f"span credit {means['span_credit']}", f"TEMPO {means['tempo']}"]
    more = f"four more epochs instead: {means['fine-tuned on 64, 8 epochs']}"
    assert f"{', '.join(named)} (five runs each; {more})" in " ".join(README.read_text().split())
    of_training = [row["reward"] for row in numbers_of("tuned_orders_4_epochs")["cells"]]
    assert min(map(min, of_training)) > 0.975  # 99% rounded, in the mean of the runs
    assert {f"{np.mean(own):.2f}" for own in of_training} == {"0.99"}


@pytest.mark.parametrize("name", LEARNED)
def test_studies_have_five_seeds_equal_tokens_and_the_statistics_of_the_runs_beside_them(name):
    numbers = numbers_of(name)
    assert numbers["seeds"] == [0, 1, 2, 3, 4]
    read = read_results(LEARNED[name], numbers)
    for arm, one in zip(numbers["results"], read, strict=True):
        assert {other.tokens for other in read if other.arm.panel == one.arm.panel} == {one.tokens}
        for field, own in (
            ("final", one.final),
            ("mean", one.mean),
            ("mean_over_grpo", one.over(baseline_of(one, read))),
        ):
            written = [arm[field][end] for end in ("iqm", "low", "high")]
            assert written == pytest.approx([own.iqm, own.low, own.high], abs=1e-5)


def test_the_page_counts_the_pairs_in_which_tempo_was_ahead():
    named = [*numbers_of("learning_group_size")["results"], *numbers_of("learning_chain")["results"]]
    tempo, grpo = (
        np.array([arm["mean"]["seeds"] for arm in named if arm["label"] == label]) for label in ("tempo", "grpo")
    )
    assert tempo.shape == (6, 5)
    assert f"in {(tempo > grpo).sum()} of 30 pairs of runs" in PAGES["toy_tasks"]


def test_the_page_says_on_how_many_tasks_prefixes_that_explain_rewards_brought_tempo_nearer():
    records = numbers_of("estimators_signals")["records"]
    for low, high, said in ((0.4, 1.0, "Over 0.4"), (0.0, 0.2, "under 0.2")):
        gains = [record["TEMPO gain"][0] for record in records if low <= record["prefix_explained"] < high]
        sentence = f"{said}[^.]* on {sum(gain > 1 for gain in gains)} of {len(gains)}\\b"
        assert re.search(sentence, " ".join(PAGES["toy_tasks"].split()))


# README's table has a column of shares and one of leads for each of these measures of a study.
ON_FRONT = {"tuned_orders": "mean", "directory": "all", "products": "mean"}
ROWS_ON_FRONT = {
    "fine-tuning alone": "fine-tuned on {once}",
    "fine-tuning in four epochs (agent: two)": "in the most epochs that were measured",
    "fine-tuning on four times as many answers": "fine-tuned on {four_times}",
    "fine-tuning, then GRPO": "grpo",
    "fine-tuning, then TEMPO": "tempo",
    "fine-tuning, then span credit": "span_credit",
    "fine-tuning, then GRPO, rewarded if all is right": "grpo on success",
}


def front_of(study, measure: str, arm: str) -> list[str]:
    """What README says of a row in its two columns of a study: a share in percent, and a lead over GRPO."""
    measured = cells.Cells(study)
    rates = measured.rates()
    examples, fine_tuned = study.start.examples, alone(measured)
    arm = [*fine_tuned][-1] if "epochs" in arm else arm.format(once=examples, four_times=4 * examples)
    pairs = measured.pairs(arm, rates[arm], rates["grpo"]) if arm in rates else []
    runs = [own for own, _ in pairs] or fine_tuned.get(arm, [])
    if not runs:
        return ["not run here" if arm in study.arms | study.fine_tuning else "", ""]
    leads = [100 * (own["held_out"][measure] - base["held_out"][measure]) for own, base in pairs]
    lead = ""
    if pairs and arm != "grpo":
        low, high = interval(np.array(leads))
        lead = f"{iqm(leads):+.1f} ({low:.1f} to {high:.1f})".replace("-0.0", "0.0")
    return [f"{100 * np.mean([own['held_out'][measure] for own in runs]):.1f} %", lead]


@pytest.mark.parametrize("row", ROWS_ON_FRONT)
def test_the_readmes_table_is_that_of_the_numbers(row):
    columns = [front_of(ALL_LANGUAGE_STUDIES[name], measure, ROWS_ON_FRONT[row]) for name, measure in ON_FRONT.items()]
    assert row_of([row, *chain(*columns)]) in README.read_text()
