"""MedQA (https://huggingface.co/papers/2009.13081): US medical licensing exams, 10,178 train and 1,273 test questions.

https://huggingface.co/datasets/GBaker/MedQA-USMLE-4-options, one row of the test split:

    question    A 23-year-old woman, gravida 2, para 1, at 28 weeks' gestation comes to the physician for a routine
                prenatal examination. [...] Administration of which of the following is most appropriate at this time?
    answer      Anti-D IgG
    options     {"A": "Anti-A IgG", "B": "Anti-D IgG", "C": "Anti-B IgG", "D": "Anti-D IgM"}
    meta_info   step1
    answer_idx  B

The exams had five options. https://huggingface.co/datasets/Neelectric/MedQA-USMLE has the same questions with all five
in the same columns. The TEMPO authors' code trains on it; the paper does not say. Here the four options are `medqa`,
the five are `medqa_5options`. The questions are the same, so do not train on one and test on the other. Accuracies on
the two are not comparable.
"""

from tempo_trl.data.benchmark import Benchmark, choice_row, one_line
from tempo_trl.data.cells import answer_text, lettered_texts, text


def to_row(row: dict, row_id: int) -> dict:
    """A question with the letter of its answer, or without an answer if its letter and text disagree."""
    options = lettered_texts(row, "options")
    letters, letter, answer = list(options), row["answer_idx"], answer_text(row, "answer")
    agrees = letter in letters and one_line(options[letter]) == one_line(answer)
    return choice_row(row_id, text(row, "question"), list(options.values()), letters.index(letter) if agrees else -1)


MEDQA = Benchmark(
    name="medqa",
    hub_id="GBaker/MedQA-USMLE-4-options",
    columns=("question", "answer", "options", "answer_idx"),
    domain="choice",
    to_row=to_row,
    train_split="train",
)
MEDQA_5OPTIONS = MEDQA._replace(name="medqa_5options", hub_id="Neelectric/MedQA-USMLE")
