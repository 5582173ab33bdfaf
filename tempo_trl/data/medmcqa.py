"""MedMCQA (https://huggingface.co/papers/2203.14371): questions of Indian medical entrance exams, four options each.

https://huggingface.co/datasets/openlifescienceai/medmcqa, one row of the validation split:

    question      Apoprotein B-48 is found in
    opa           VLDL
    opb           LDL
    opc           HDL
    opd           Chylomicrons
    cop           3
    subject_name  Biochemistry

`cop` counts from 0 here, and from 1 in the files that the authors keep on GitHub. The answers of the test split are
withheld (-1), so the 4,183 rows of the validation split are used for evaluation. 182,822 rows are for training, which
the TEMPO paper does not use. `choice_type: multi` describes the style of a question: every row has one answer.
"""

from tempo_trl.data.benchmark import Benchmark, choice_row
from tempo_trl.data.cells import answer_index, text


def to_row(row: dict, row_id: int) -> dict:
    """A question with the letter of its answer, and its `subject`."""
    cop = answer_index(row, "cop")
    if not -1 <= cop <= 3:
        raise ValueError(
            f"cop is {cop}, expected 0 to 3, or -1 for a withheld answer. If the file is the one on GitHub, which "
            "counts from 1, subtract 1 from the whole column."
        )
    options = [text(row, f"op{letter}") for letter in "abcd"]
    return choice_row(row_id, text(row, "question"), options, cop, subject=row["subject_name"])


MEDMCQA = Benchmark(
    name="medmcqa",
    hub_id="openlifescienceai/medmcqa",
    splits=("train", "validation"),
    eval_split="validation",
    columns=("question", "opa", "opb", "opc", "opd", "cop", "subject_name"),
    domain="choice",
    to_row=to_row,
    train_split="train",
)
