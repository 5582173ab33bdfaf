r"""AMC23: the 40 problems of 2023 among 83 problems of the American Mathematics Competitions 12, for testing only.

https://huggingface.co/datasets/AI-MO/aimo-validation-amc, one row of its only split, which is called train:

    id       10
    problem  What is the product of all solutions to the equation
             \[\log_{7x}2023\cdot \log_{289x}2023=\log_{2023x}2023\]
    answer   1.0
    url      https://artofproblemsolving.com/wiki/index.php/2023_AMC_12A_Problems/Problem_19

The other 43 are of 2022. They are filtered out by their URL, from the Hub's rows and from a local file. Row ids are
those of the whole file. Answers are whole numbers, written as floats; a local file may have them as texts.
"""

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import answer_number, text


def to_row(row: dict, row_id: int) -> dict:
    """A problem with its answer, `1` for 1.0, and its `url`."""
    return {
        "row_id": row_id,
        "question": text(row, "problem"),
        "solution": _solution(answer_number(row, "answer")),
        "url": row["url"],
    }


def _solution(answer: float | None) -> str:
    if answer is None:
        return ""
    return str(int(answer)) if answer.is_integer() else repr(answer)


def is_of_2023(row: dict) -> bool:
    """Whether the problem is from 2023, according to its URL."""
    return "/2023_AMC_" in text(row, "url")


AMC23 = Benchmark(
    name="amc23",
    hub_id="AI-MO/aimo-validation-amc",
    splits=("train",),
    eval_split="train",
    columns=("problem", "answer", "url"),
    domain="math",
    to_row=to_row,
    keep=is_of_2023,
)
