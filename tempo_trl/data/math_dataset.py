r"""MATH (https://huggingface.co/papers/2103.03874): 7,500 competition problems for training and 5,000 for testing.

https://huggingface.co/datasets/DigitalLearningGmbH/MATH-lighteval, one row of the train split:

    problem   Solve for $x$: $\dfrac{1}{2} + \dfrac{1}{x} = \dfrac{5}{6}$.
    level     Level 1
    solution  Subtracting $\frac12$ from both sides gives $\frac1x = \frac56-\frac12 = \frac13$, so taking the
              reciprocal of both sides gives $x = \boxed{3}$.
    type      Algebra

The TEMPO paper tests on all 5,000 problems, not on MATH-500. Two of the training problems are among them:
[`~tempo_trl.data.leaks.leaked_rows`] finds them.
"""

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import answer_text, text


def to_row(row: dict, row_id: int) -> dict:
    """A problem with its worked solution, whose last box is the answer; `level` and `type` come along."""
    return {
        "row_id": row_id,
        "question": text(row, "problem"),
        "solution": answer_text(row, "solution"),
        "level": row["level"],
        "type": row["type"],
    }


MATH = Benchmark(
    name="math",
    hub_id="DigitalLearningGmbH/MATH-lighteval",
    columns=("problem", "level", "solution", "type"),
    domain="math",
    to_row=to_row,
    train_split="train",
)
