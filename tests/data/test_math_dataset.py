r"""MATH rows become TRL prompts, from the files and in the schema that the Hub has."""

import logging
import subprocess
import sys

import pytest

from tempo_trl.data.math_dataset import INSTRUCTION, MATH_COLUMNS, MATH_HUB_ID, load_math, math_prompt
from tempo_trl.rewards import math_reward
from tests.data.rows import REAL_ROWS, ROOT, write_jsonl, write_parquet

ROWS = [
    {
        "problem": "Compute $1 + 1$.",
        "level": "Level 1",
        "solution": r"Two ones are $\boxed{2}$.",
        "type": "Prealgebra",
    },
    {
        "problem": "Draw a point.",
        "level": "Level ?",
        "solution": r"There it is: $\boxed{}$.",
        "type": "Geometry",
    },
]


def test_a_row_becomes_a_conversation_that_ends_with_the_instruction():
    assert math_prompt(ROWS[0], 7) == {
        "prompt": [{"role": "user", "content": f"Compute $1 + 1$.\n{INSTRUCTION}"}],
        "solution": ROWS[0]["solution"],
        "source": "math",
        "row_id": 7,
        "level": "Level 1",
        "type": "Prealgebra",
    }


def test_a_system_prompt_comes_first():
    prompt = math_prompt(ROWS[0], 0, system_prompt="Be brief.", instruction="Box it.")["prompt"]
    assert prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Compute $1 + 1$.\nBox it."},
    ]


@pytest.mark.parametrize(
    "name, write", [("rows.jsonl", write_jsonl), ("rows.json", write_jsonl), ("rows.parquet", write_parquet)]
)
def test_a_local_file_gives_the_prompts_of_its_rows(tmp_path, name, write):
    write(tmp_path / name, ROWS)
    dataset = load_math(path=tmp_path / name, system_prompt="Be brief.")
    assert dataset.to_list() == [math_prompt(row, i, system_prompt="Be brief.") for i, row in enumerate(ROWS)]


def test_without_a_path_the_split_of_the_hub_is_loaded(monkeypatch):
    from datasets import Dataset

    hub = {(MATH_HUB_ID, "test"): Dataset.from_list(ROWS)}
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: hub[name, split])
    assert load_math("test")["row_id"][:] == [0, 1]


def test_rows_without_an_answer_are_kept_and_named_in_a_warning(tmp_path, caplog):
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    with caplog.at_level(logging.WARNING, "tempo_trl"):
        dataset = load_math(path=tmp_path / "rows.jsonl")
    assert len(dataset) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "1 rows of math have no answer to compare with, so their reward is None: [1]"
    ]


@pytest.mark.parametrize("missing", MATH_COLUMNS)
def test_a_missing_column_is_named_with_those_that_came(tmp_path, missing):
    write_jsonl(tmp_path / "rows.jsonl", [{name: text for name, text in ROWS[0].items() if name != missing}])
    with pytest.raises(ValueError, match=f"lack {missing}: got columns .*, expected {', '.join(MATH_COLUMNS)}"):
        load_math(path=tmp_path / "rows.jsonl")


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"'\.csv', expected one of \.jsonl, \.json, \.parquet"):
        load_math(path="rows.csv")


@pytest.mark.matrix
def test_importing_the_module_does_not_import_datasets_or_torch():
    script = "import sys, tempo_trl.data.math_dataset; print({'datasets', 'torch', 'math_verify'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT) == "set()\n"


@pytest.mark.skipif(not REAL_ROWS.is_dir(), reason="needs the real rows beside the repository")
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_real_row_has_a_prompt_and_an_answer(split, caplog):
    dataset = load_math(split, path=REAL_ROWS / f"math_{split}.jsonl")
    assert dataset["row_id"][:] == list(range(300))
    assert all(prompt[-1]["content"].endswith(INSTRUCTION) for prompt in dataset["prompt"])
    assert not [record for record in caplog.records if record.name.startswith("tempo_trl")]
    # The solution as the completion: what the loader calls the gold is what the reward pays.
    assert set(math_reward(dataset["solution"][:], dataset["solution"][:])) == {1.0}
