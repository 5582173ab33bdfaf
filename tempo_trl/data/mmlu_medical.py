"""MMLU-Medical: the six medical subjects of MMLU (https://huggingface.co/papers/2009.03300), 1,089 rows for testing.

https://huggingface.co/datasets/cais/mmlu, one config per subject; one row of the test split of clinical_knowledge:

    question  The creatine kinase reaction is:
    subject   clinical_knowledge
    choices   ["irreversible.", "slow compared with glycolysis.", "not activated until all the ATP has been used up.",
              "inhibited by low pH in the muscle."]
    answer    3

`answer` counts from 0. A local file contains all subjects, one after the other.
"""

from tempo_trl.data.benchmark import Benchmark, choice_row
from tempo_trl.data.cells import answer_index, text, texts


def to_row(row: dict, row_id: int) -> dict:
    """A question with the letter of its answer, and its `subject`."""
    options, answer = texts(row, "choices"), answer_index(row, "answer")
    return choice_row(row_id, text(row, "question"), options, answer, subject=row["subject"])


MMLU_MEDICAL = Benchmark(
    name="mmlu_medical",
    hub_id="cais/mmlu",
    splits=("test", "validation", "dev"),
    eval_split="test",
    columns=("question", "subject", "choices", "answer"),
    domain="choice",
    to_row=to_row,
    configs=(
        "anatomy",
        "clinical_knowledge",
        "college_biology",
        "college_medicine",
        "medical_genetics",
        "professional_medicine",
    ),
)
