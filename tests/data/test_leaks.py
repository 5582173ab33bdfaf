r"""A problem that is trained and tested on is found, named, and dropped where that is asked for."""

import logging

import pytest

from tempo_trl.data import check_leaks, leaked_rows, load_prompts
from tests.data.rows import HUB_ROWS, REAL_ROWS, medqa_row, write_file


@pytest.fixture
def splits(tmp_path):
    def load(name: str, problems: list[str]):
        rows = [HUB_ROWS["math"][0] | {"problem": problem} for problem in problems]
        return load_prompts("math", path=write_file(tmp_path / f"{name}.jsonl", rows))

    train = load("train", ["What is $x$?", "What  is\n$y$? ", "what is $z$?", "What is $x + y$?"])
    return train, load("test", ["What is $w$?", "What is $y$?", "What is $Z$?"])


def test_leaked_rows_are_kept_and_named_or_dropped(splits, caplog):
    with caplog.at_level(logging.WARNING, "tempo_trl"):
        kept = check_leaks(*splits)
        dropped = check_leaks(*splits, drop=True)
    assert (kept["row_id"][:], dropped["row_id"][:]) == ([0, 1, 2, 3], [0, 3])
    assert [record.getMessage() for record in caplog.records] == [
        "2 training rows are also evaluation rows. They are kept (set drop_leaked_rows to drop them): [1, 2]",
        "2 training rows are also evaluation rows. They are dropped: [1, 2]",
    ]


def test_one_question_with_other_options_is_another_problem(tmp_path):
    rows = [medqa_row("a", "A", *"abc"), medqa_row("a", "A", *"abd")]
    train, test = (
        load_prompts("medqa", path=write_file(tmp_path / f"{i}.jsonl", [row])) for i, row in enumerate(rows)
    )
    assert leaked_rows(train, test) == []
    assert leaked_rows(train, train) == [0]


@pytest.mark.skipif(not (REAL_ROWS / "math_train.jsonl").is_file(), reason="no rows")
@pytest.mark.parametrize(("name", "files"), [("math", "math_{}"), ("medqa", "medqa_4options_{}")])
def test_the_real_rows_here_share_nothing_until_a_test_row_is_trained_on(name, files):
    from datasets import concatenate_datasets

    train, test = (load_prompts(name, path=REAL_ROWS / f"{files.format(split)}.jsonl") for split in ("train", "test"))
    assert leaked_rows(train, test) == []
    assert leaked_rows(concatenate_datasets([train, test.select([7])]), test) == [len(train)]
