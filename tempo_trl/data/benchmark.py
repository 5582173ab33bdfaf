"""What a benchmark is: where its rows lie, and what a row asks and answers.

Each benchmark has a page of its own beside this one, which opens with its address and a row.
"""

from collections.abc import Callable
from typing import NamedTuple

from tempo_trl.data.prompts import LETTERS, option_lines


class Benchmark(NamedTuple):
    """A dataset of questions with answers that can be checked.

    Args:
        name: Its key in [`~tempo_trl.data.BENCHMARKS`], and the `source` of its rows.
        hub_id: Its dataset on the Hub.
        splits: The Hub's splits that have answers.
        eval_split: The split that is evaluated.
        columns: What a row of the Hub or of a local file has to have.
        domain: `math`, rewarded with `math_reward`, or `choice`, rewarded with `choice_reward`.
        to_row: `to_row(row, row_id)`: a row of the Hub as `row_id`, `question` (the user's text without the
            instruction; a choice with its options, a line each), `solution` (a text with a box or a bare answer; a
            choice's letter; empty where the row has no answer), in a choice `options` (their texts, A first) and
            `stem` (the question alone), and columns of its own. A ValueError where a cell holds something else than
            it should ([`~tempo_trl.data.cells`]).
        train_split: The split to train on; None where all rows are for testing.
        configs: The Hub's configs that it is made of, in this order; none for the default one.
        keep: Tells the Hub's rows that belong to it; None if all do.
    """

    name: str
    hub_id: str
    splits: tuple[str, ...]
    eval_split: str
    columns: tuple[str, ...]
    domain: str
    to_row: Callable[[dict, int], dict]
    train_split: str | None = None
    configs: tuple[str, ...] = ()
    keep: Callable[[dict], bool] | None = None


def choice_row(row_id: int, stem: str, options: list[str], answer: int, **columns: str) -> dict:
    """Row of a multiple-choice question, each option on one line; `answer` is the index of the right one.

    An answer outside of the options, as MedMCQA's -1 where it is withheld, is no answer. More options than letters are
    a ValueError.
    """
    if len(options) > len(LETTERS):
        raise ValueError(f"{len(options)} options, expected at most {len(LETTERS)}.")
    options = [one_line(text) for text in options]
    return {
        "row_id": row_id,
        "question": "\n".join([stem.strip(), *option_lines(options)]),
        "stem": stem.strip(),
        "solution": LETTERS[answer] if 0 <= answer < len(options) else "",
        "options": options,
        **columns,
    }


def one_line(text: str) -> str:
    """`text` without line breaks and other runs of white space: some options of MedQA end in a line break."""
    return " ".join(text.split())
