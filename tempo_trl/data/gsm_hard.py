r"""GSM-Hard (https://huggingface.co/papers/2211.10435): 1,319 problems of GSM8K with larger numbers, for testing only.

https://huggingface.co/datasets/reasoning-machines/gsm-hard, one row of its only split, which is called train:

    input   There are 8043777 roses in the vase. There are 7 more dahlias than roses in the vase. How many flowers are
            there in the vase in total?
    code    def solution(): ... return result
    target  16087561.0

Targets are floats. Some are negative, some have a fraction, and some are rounded to few digits (2.0107e-06), so a
reward must compare them with a tolerance. Some make no sense as an answer (a fractional number of people), but are
kept.
"""

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import answer_number, text


def to_row(row: dict, row_id: int) -> dict:
    """A problem with its target as the shortest text that reads back as the same float: `-9867630.0`, `2.0107e-06`."""
    target = answer_number(row, "target")
    return {"row_id": row_id, "question": text(row, "input"), "solution": "" if target is None else repr(target)}


GSM_HARD = Benchmark(
    name="gsm_hard",
    hub_id="reasoning-machines/gsm-hard",
    splits=("train",),
    eval_split="train",
    columns=("input", "target"),
    domain="math",
    to_row=to_row,
)
