"""IFEval-like instructions to train on: 56,339 prompts with one to three instructions each, in IFEval's form.

https://huggingface.co/datasets/argilla/ifeval-like-data, config `filtered`, one row of its only split:

    key                  4
    prompt               Write a detailed review of the movie "The Social Network". Your entire response should be ...
    instruction_id_list  ["change_case:english_lowercase"]
    kwargs               [{}]

`kwargs` is JSON: the arguments of each instruction's checker, null where it has none. Local rows may have the list
itself. IFEval itself
(https://huggingface.co/papers/2311.07911), with the same instructions on other prompts, is what to evaluate on.
"""

import json

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import objects, text, texts, unexpected

# The keys of lm-eval's INSTRUCTION_DICT, which cannot be imported without a download.
NAMES = (
    *("keywords:existence", "keywords:frequency", "keywords:forbidden_words", "keywords:letter_frequency"),
    *("language:response_language", "length_constraints:number_sentences", "length_constraints:number_paragraphs"),
    *("length_constraints:number_words", "length_constraints:nth_paragraph_first_word"),
    *("detectable_content:number_placeholders", "detectable_content:postscript"),
    *("detectable_format:number_bullet_lists", "detectable_format:constrained_response"),
    *("detectable_format:number_highlighted_sections", "detectable_format:multiple_sections"),
    *("detectable_format:json_format", "detectable_format:title"),
    *("combination:two_responses", "combination:repeat_prompt", "startend:end_checker", "startend:quotation"),
    *("change_case:capital_word_frequency", "change_case:english_capital", "change_case:english_lowercase"),
    "punctuation:no_comma",
)


def to_row(row: dict, row_id: int) -> dict:
    """A prompt with the names of its instructions, and the arguments of their checkers as JSON."""
    names, kwargs = _names(row), objects(row, "kwargs", "a list of objects, or its JSON")
    if len(kwargs) != len(names):
        raise ValueError(
            f"got {len(names)} instructions and arguments of {len(kwargs)}, expected as many. Correct the row."
        )
    given = {"instruction_id_list": names, "kwargs": json.dumps(kwargs)}
    return {"row_id": row_id, "question": text(row, "prompt"), "solution": ", ".join(names), **given}


def _names(row: dict) -> list[str]:
    names = texts(row, "instruction_id_list")
    if not names:
        raise unexpected(row, "instruction_id_list", "at least one instruction")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(
            f"got the instruction {unknown[0]!r}, expected one of IFEval's: {', '.join(NAMES)}. Correct the row."
        )
    return names


IFEVAL_RL = Benchmark(
    name="ifeval_rl",
    hub_id="argilla/ifeval-like-data",
    configs=("filtered",),
    splits=("train",),
    eval_split="train",
    columns=("prompt", "instruction_id_list", "kwargs"),
    domain="ifeval",
    to_row=to_row,
    train_split="train",
)
