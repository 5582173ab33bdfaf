"""The definition of a benchmark: where to find its rows, and how to read questions and answers from them.

Each benchmark is a file beside this one, which begins with the dataset's URL and a row.
"""

from collections.abc import Callable
from typing import NamedTuple

from tempo_trl.data.prompts import LETTERS, option_lines


class Benchmark(NamedTuple):
    """A dataset of questions with answers that can be checked.

    Args:
        name: Its key in [`~tempo_trl.data.BENCHMARKS`], and the `source` of its rows.
        columns: Columns that a row of the Hub or of a local file must have.
        domain: `math`, rewarded with `math_reward`, `choice` (`choice_reward`), `json` (`json_fields_reward`)
            or `calls` (`tool_call_fields_reward`).
        to_row: `to_row(row, row_id)` converts a row of the Hub to `row_id`, `question` (the user's text without the
            instruction; for multiple choice with one option per line), `solution` (a text with a box, a bare answer,
            or the letter of an option; empty if the row has no answer), for multiple choice `options` (their texts, A
            first) and `stem` (the question without options), `system_prompt` and `example` (a question and its answer)
            if the benchmark's prompts have them, and columns of the benchmark. Raises ValueError for a
            cell with an unexpected value ([`~tempo_trl.data.cells`]).
        hub_id: Its dataset on the Hub; empty if its rows are generated.
        splits: The splits that have answers.
        eval_split: The evaluation split.
        train_split: The training split; None if all rows are for testing.
        configs: The Hub's configs to concatenate, in this order; empty for the default one.
        keep: Whether a row of the Hub belongs to the benchmark; None if all do.
        generate: `generate(split)` returns the rows of a split that needs no download; None if the Hub has them.
    """

    name: str
    columns: tuple[str, ...]
    domain: str
    to_row: Callable[[dict, int], dict]
    hub_id: str = ""
    splits: tuple[str, ...] = ("train", "test")
    eval_split: str = "test"
    train_split: str | None = None
    configs: tuple[str, ...] = ()
    keep: Callable[[dict], bool] | None = None
    generate: Callable[[str], list[dict]] | None = None


def choice_row(row_id: int, stem: str, options: list[str], answer: int, **columns: str) -> dict:
    """Row of a multiple-choice question with one option per line; `answer` is the index of the correct option.

    An index outside of the options, such as MedMCQA's -1 for withheld answers, means that there is no answer. Raises
    ValueError if there are more options than letters.
    """
    if len(options) > len(LETTERS):
        raise ValueError(f"got {len(options)} options, expected at most {len(LETTERS)}. Remove options or the row.")
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
    """`text` with all runs of white space replaced by a space: some options of MedQA end in a line break."""
    return " ".join(text.split())
