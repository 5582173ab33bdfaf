"""Rows and files that are not what they should be: null answers are named, all else is refused by its place."""

import json
import math
import re

import pytest

from tempo_trl.data import BENCHMARKS, load_prompts
from tests.data.rows import HUB_ROWS, amc_row, medmcqa_row, write_file

QUESTIONS = {"math": "problem", "gsm_hard": "input", "amc23": "problem"}
QUESTIONS |= {"orders": "order", "function_calls": "conversations"}


HUB_LINE = json.dumps(HUB_ROWS["math"][0]).encode() + b"\n"

# Null answers


def test_a_letter_with_a_null_beside_it_is_still_the_right_letter(tmp_path):
    """pandas writes a column of whole numbers as floats where one of them is missing."""
    rows = [medmcqa_row(3.0), medmcqa_row(None), medmcqa_row(0.0)]
    assert load_prompts("medmcqa", path=write_file(tmp_path / "rows.jsonl", rows))["solution"][:] == ["D", "", "A"]


# AMC's answers


@pytest.mark.parametrize(
    ("answer", "solution"), [("27", "27"), ("27.0", "27"), ("0.5", "0.5"), (27, "27"), (27.0, "27"), (math.nan, "")]
)
def test_an_amc_answer_is_the_number_whether_a_text_or_not(answer, solution):
    assert BENCHMARKS["amc23"].to_row(amc_row(answer, 2023))["solution"] == solution


def test_a_row_that_does_not_belong_to_amc23_is_not_looked_into(tmp_path):
    rows = [amc_row("none", 2022), amc_row("2", 2023), amc_row(None, 2022), amc_row("4.0", 2023)]
    dataset = load_prompts("amc23", path=write_file(tmp_path / "rows.jsonl", rows))
    assert (dataset["row_id"][:], dataset["solution"][:]) == ([1, 3], ["2", "4"])


def test_a_file_with_none_of_the_benchmark_s_rows_is_refused(tmp_path):
    path = write_file(tmp_path / "rows.jsonl", [amc_row(1.0, 2022)])
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} has no rows of amc23"):
        load_prompts("amc23", path=path)


# Cells that hold something else


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *((name, {QUESTIONS.get(name, "question"): None}, "is None, expected a (text|list)") for name in BENCHMARKS),
        ("math", {"solution": 2}, "solution is 2, expected a text"),
        ("orders", {"truth": "{'quantity': 2}"}, "expected the JSON text of an object"),
        ("function_calls", {"tools": "{}"}, "tools is '{}', expected a list of tools, or its JSON"),
        ("amc23", {"answer": "1/2"}, "answer is '1/2', expected a number"),
        ("medmcqa", {"cop": 1.5}, r"cop is 1\.5, expected a whole number"),
        ("medqa", {"options": ["x", "y"]}, r"options is \['x', 'y'\], expected an object of letters with their texts"),
        ("mmlu_medical", {"choices": None}, "choices is None, expected a list of texts"),
        ("mmlu_medical", {"choices": list("abcdefghijk"), "answer": 10}, "11 options, expected at most 10"),
    ],
)
def test_a_cell_with_something_else_is_refused_by_file_row_and_column(name, change, message, tmp_path):
    path = write_file(tmp_path / "rows.jsonl", [HUB_ROWS[name][0] | change])
    with pytest.raises(ValueError, match=rf"^row 0 .* of {name} in {re.escape(str(path))}: .*{message}"):
        load_prompts(name, path=path)


# Files


MALFORMED = [(f"rows.{kind}", content) for kind in ("jsonl", "json") for content in (b"", b"\n\n")]
MALFORMED += [("rows.jsonl", HUB_LINE + last) for last in (b'{"problem": "Cu', b"not JSON", b"[1, 2")]
MALFORMED += [("rows.parquet", content) for content in (b"", b"PAR1 is how it opens")]


@pytest.mark.parametrize(("name", "content"), MALFORMED)
def test_a_file_without_rows_that_can_be_read_is_refused_with_its_name_and_the_cause(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path / name))} cannot be read as rows in \w+: .+\."):
        load_prompts("math", path=tmp_path / name)
