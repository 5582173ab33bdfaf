r"""Every benchmark's rows become TRL prompts with the right answer, from the Hub's schema and from files."""

import json
import math

import pytest

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.data.loading import prompt_row
from tempo_trl.data.prompts import STYLES
from tempo_trl.rewards import choice_reward, math_reward
from tempo_trl.rewards.boxed import gold_answer
from tests.data.rows import (
    GOLD,
    HUB_ROWS,
    OPTIONS,
    REAL_ROWS,
    TOLD,
    gsm_row,
    medmcqa_row,
    medqa_row,
    mmlu_row,
    warned,
    write_file,
)

OWN_COLUMNS = {"math": ["level", "type"], "gsm_hard": [], "amc23": ["url"], "orders": ["truth"]}
OWN_COLUMNS |= {"medqa": ["options"], "medqa_5options": ["options"], "function_calls": ["calls"]}
OWN_COLUMNS |= {name: ["options", "subject"] for name in ("medmcqa", "mmlu_medical")}
ANSWERS = {"math": "solution", "gsm_hard": "target", "medmcqa": "cop"}
ANSWERS |= dict.fromkeys(("amc23", "medqa", "medqa_5options", "mmlu_medical"), "answer")
CHOICES = [name for name, benchmark in BENCHMARKS.items() if benchmark.domain == "choice"]


def test_the_benchmarks_are_those_of_the_paper_s_table_the_five_options_and_tasks_that_say_what_to_do():
    paper = ["math", "gsm_hard", "amc23", "medqa", "medqa_5options", "medmcqa", "mmlu_medical"]
    assert list(BENCHMARKS) == [*paper, *TOLD]
    assert all(benchmark.name == name for name, benchmark in BENCHMARKS.items())
    assert all(benchmark.eval_split in benchmark.splits for benchmark in BENCHMARKS.values())
    trainable = [name for name, benchmark in BENCHMARKS.items() if benchmark.train_split]
    assert trainable == ["math", "medqa", "medqa_5options", "medmcqa", *TOLD]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_gold_of_a_row_is_its_right_answer(name):
    rows = [BENCHMARKS[name].to_row(row) for row in HUB_ROWS[name]]
    assert [row["solution"] for row in rows] == GOLD[name]
    assert all(row.get("options") == OPTIONS.get(name) for row in rows)


def test_a_row_becomes_a_conversation_that_ends_with_the_instruction():
    assert prompt_row(HUB_ROWS["math"][0], 7, BENCHMARKS["math"]) == {
        "prompt": [{"role": "user", "content": f"$1 + 1$?\n{STYLES['boxed']['math'].instruction}"}],
        "solution": GOLD["math"][0],
        "source": "math",
        "row_id": 7,
        "level": "Level 1",
        "type": "Prealgebra",
    }


@pytest.mark.parametrize("file", ["rows.jsonl", "rows.json", "rows.parquet"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_local_file_gives_the_prompts_of_its_rows(name, file, tmp_path):
    path = write_file(tmp_path / file, HUB_ROWS[name])
    dataset = load_prompts(name, path=path, system_prompt="Be brief.")
    wanted = [prompt_row(row, i, BENCHMARKS[name], system_prompt="Be brief.") for i, row in enumerate(HUB_ROWS[name])]
    assert dataset.to_list() == wanted
    assert set(dataset["source"]) == {name}
    assert sorted(dataset.column_names) == sorted(["prompt", "solution", "source", "row_id", *OWN_COLUMNS[name]])


def test_mmlu_medical_is_six_subjects_one_after_the_other(monkeypatch):
    from datasets import Dataset

    monkeypatch.setattr("datasets.load_dataset", lambda _, name, split: Dataset.from_list([mmlu_row(1, name)] * 2))
    dataset = load_prompts("mmlu_medical", "test[:2]")
    subjects = "anatomy clinical_knowledge college_biology college_medicine medical_genetics professional_medicine"
    assert dataset["subject"][::2] == subjects.split()
    assert dataset["row_id"][:] == list(range(12))


UNANSWERED = [("medqa", medqa_row("no", "A", "yes", "no")), ("medqa", medqa_row("yes", "C", "yes", "no"))]
UNANSWERED += [("medmcqa", medmcqa_row(-1)), ("gsm_hard", gsm_row(math.nan))]
UNANSWERED += [("math", HUB_ROWS["math"][0] | {"solution": r"Cut here: $\boxed{2"})]
UNANSWERED += [(name, HUB_ROWS[name][0] | {column: None}) for name, column in ANSWERS.items()]


@pytest.mark.parametrize(("name", "row"), UNANSWERED)
def test_a_row_without_an_answer_is_kept_and_named(name, row, tmp_path, caplog):
    path = write_file(tmp_path / "rows.jsonl", [*HUB_ROWS[name], row])
    dataset, last = load_prompts(name, path=path), len(HUB_ROWS[name])
    assert len(dataset) == last + 1 and gold_answer(dataset["solution"][last]) == ""
    assert warned(caplog) == [f"1 rows of {name} have no answer to compare with, so their reward is None: [{last}]"]


def test_medmcqa_rows_that_count_from_one_are_refused(tmp_path):
    path = write_file(tmp_path / "rows.jsonl", [medmcqa_row(1), medmcqa_row(4)])
    with pytest.raises(ValueError, match=r"row 1 .* of medmcqa in .*: cop is 4, expected 0 to 3.*subtract 1"):
        load_prompts("medmcqa", path=path)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_missing_column_is_named(name, tmp_path):
    rows = [{"questions": row} for row in HUB_ROWS[name]]
    with pytest.raises(ValueError, match=rf"row 0 .* of {name} in .*: got columns questions, expected '\w+' as well"):
        load_prompts(name, path=write_file(tmp_path / "rows.jsonl", rows))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("maths",), "benchmark 'maths' is unknown, expected one of: math, gsm_hard"),
        (("medmcqa", "test"), "medmcqa has no split 'test' with answers. Use train or validation"),
    ],
)
def test_what_is_not_there_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_prompts(*arguments)


# The real rows


def real_file(name: str, benchmark: str, rows: int):
    path = REAL_ROWS / f"{name}.jsonl"
    return pytest.param(benchmark, path, rows, id=name, marks=pytest.mark.skipif(not path.is_file(), reason="no rows"))


REAL = [("math_train", "math", 300), ("math_test", "math", 300), ("gsm_hard", "gsm_hard", 300), ("amc23", "amc23", 10)]
REAL += [("medqa_4options_train", "medqa", 400), ("medqa_4options_test", "medqa", 300)]
REAL += [("medqa_5options_test", "medqa_5options", 100), ("medmcqa_validation", "medmcqa", 400)]
REAL += [("mmlu_medical_test", "mmlu_medical", 300)]
REAL = [real_file(*each) for each in REAL]


def raw_rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def right_text(name: str, row: dict) -> str:
    """The text of a choice's right option, read from the row by another way than the loader's."""
    match name:
        case "medqa" | "medqa_5options":
            return row["answer"]
        case "medmcqa":
            return row[("opa", "opb", "opc", "opd")[row["cop"]]]
        case "mmlu_medical":
            return row["choices"][row["answer"]]


@pytest.mark.parametrize(("name", "path", "num_rows"), REAL)
def test_every_real_row_has_a_prompt_and_the_right_gold(name, path, num_rows, caplog):
    dataset, rows = load_prompts(name, path=path), raw_rows(path)
    assert dataset["row_id"][:] == list(range(num_rows))
    assert warned(caplog) == []
    for row, prompt in zip(rows, dataset, strict=True):
        user = prompt["prompt"][-1]["content"]
        if name in CHOICES:
            lines, letters = user.splitlines(), "ABCDE"[: len(prompt["options"])]
            text = " ".join(right_text(name, row).split())
            assert prompt["options"]["ABCDE".index(prompt["solution"])] == text
            assert f"{prompt['solution']}. {text}" in lines[-1 - len(letters) : -1]
            assert [line[:3] for line in lines[-1 - len(letters) : -1]] == [f"{letter}. " for letter in letters]
            said = [rf"\boxed{{{line}}}" for line in lines[-1 - len(letters) : -1]]
            columns = [prompt["solution"]] * len(said), [prompt["options"]] * len(said)
            assert choice_reward(said, *columns) == [float(letter == prompt["solution"]) for letter in letters]
        elif name == "math":
            assert gold_answer(prompt["solution"]) in row["solution"]
            assert math_reward([prompt["solution"]], [prompt["solution"]], boxes="last") == [1.0]
        else:
            assert float(prompt["solution"]) == row["target" if name == "gsm_hard" else "answer"]
