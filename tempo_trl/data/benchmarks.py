r"""The benchmarks, a line of a table each: where its rows are, their columns, and what makes a prompt of a row.

| name | dataset | train | test |
|---|---|---|---|
| `math` | MATH (https://huggingface.co/papers/2103.03874) | 7,500 | 5,000 |
| `gsm_hard` | GSM-Hard (https://huggingface.co/papers/2211.10435) | | 1,319 |
| `amc23` | AMC 12 of 2023, from a file that has 2022 as well | | 40 |
| `medqa` | MedQA (https://huggingface.co/papers/2009.13081), four options | 10,178 | 1,273 |
| `medqa_5options` | the same questions with five: do not train on one and test on the other | 10,178 | 1,273 |
| `medmcqa` | MedMCQA (https://huggingface.co/papers/2203.14371) | 182,822 | 4,183 |
| `mmlu_medical` | six subjects of MMLU (https://huggingface.co/papers/2009.03300) | | 1,089 |
| `orders` | orders in words become JSON ([`~tempo_trl.data.orders`]); generated | 3,600 | 240 |
| `function_calls` | requests with tools ([`~tempo_trl.data.function_calls`]) | about 1,900 | |
"""

from collections.abc import Callable
from typing import NamedTuple

from tempo_trl.data import function_calls, orders
from tempo_trl.data.cells import answer_index, answer_number, answer_text, lettered_texts, text, texts
from tempo_trl.data.prompts import LETTERS, option_lines


class Benchmark(NamedTuple):
    """A dataset of questions with answers that can be checked.

    Args:
        name: Its key in [`~tempo_trl.data.BENCHMARKS`], and the `source` of its rows.
        domain: `math`, rewarded with `math_reward`, `choice` (`choice_reward`), `json` (`json_fields_reward`) or
            `calls` (`tool_call_fields_reward`).
        to_row: Converts a row of the Hub to `question` (the user's text without the instruction; for multiple choice
            with one option per line), `solution` (a text with a box, a bare answer, or the letter of an option; empty
            if the row has no answer), for multiple choice `options` (their texts, A first) and `stem` (the question
            without options), `system_prompt` and `example` (a question and its answer) if the benchmark's prompts have
            them, and columns of the benchmark; None for a row that does not belong to the benchmark. Raises ValueError
            for an unexpected value, and KeyError for a missing column.
        hub_id: Its dataset on the Hub; empty if its rows are generated.
        splits: The splits that have answers.
        eval_split: The evaluation split.
        train_split: The training split; None if all rows are for testing.
        configs: The Hub's configs to concatenate, in this order; empty for the default one.
        generate: `generate(split)` returns the rows of a split that needs no download; None if the Hub has them.
    """

    name: str
    domain: str
    to_row: Callable[[dict], dict | None]
    hub_id: str = ""
    splits: tuple[str, ...] = ("train", "test")
    eval_split: str = "test"
    train_split: str | None = None
    configs: tuple[str, ...] = ()
    generate: Callable[[str], list[dict]] | None = None


def math_row(row: dict) -> dict:
    r"""A problem of MATH with its worked solution, whose last box is the answer.

        {"problem": "Solve for $x$: ...", "solution": "... so $x = \boxed{3}$.", "level": "Level 1", "type": "Algebra"}

    The TEMPO paper tests on all 5,000 problems, not on MATH-500. Two of the training problems are among them:
    [`~tempo_trl.data.leaks.leaked_rows`] finds them.
    """
    solution = answer_text(row, "solution")
    return {"question": text(row, "problem"), "solution": solution, "level": row["level"], "type": row["type"]}


def gsm_row(row: dict) -> dict:
    """A problem of GSM-Hard with its target as the shortest text that reads back as the same float.

        {"input": "There are 8043777 roses ...", "code": "def solution(): ...", "target": 16087561.0}

    Some targets are negative, have a fraction, or are rounded to few digits (2.0107e-06), so a reward must compare
    them with a tolerance.
    """
    target = answer_number(row, "target")
    return {"question": text(row, "input"), "solution": "" if target is None else repr(target)}


def amc_row(row: dict) -> dict | None:
    """A problem of AMC of 2023 with its answer, `1` for 1.0; a local file may have answers as texts.

    {"problem": "What is the product of ...", "answer": 1.0, "url": ".../2023_AMC_12A_Problems/Problem_19"}
    """
    if "/2023_AMC_" not in text(row, "url"):
        return None
    answer = answer_number(row, "answer")
    solution = "" if answer is None else str(int(answer)) if answer.is_integer() else repr(answer)
    return {"question": text(row, "problem"), "solution": solution, "url": row["url"]}


def medqa_row(row: dict) -> dict:
    """A question of MedQA with the letter of its answer, or without an answer if its letter and text disagree.

    {"question": "A 23-year-old ...", "answer": "Anti-D IgG", "options": {"A": "Anti-A IgG", ...}, "answer_idx": "B"}
    """
    options = lettered_texts(row, "options")
    letters, letter, answer = list(options), row["answer_idx"], answer_text(row, "answer")
    agrees = letter in letters and one_line(options[letter]) == one_line(answer)
    return choice_row(text(row, "question"), list(options.values()), letters.index(letter) if agrees else -1)


def medmcqa_row(row: dict) -> dict:
    """A question of MedMCQA with the letter of its answer, and its `subject`.

        {"question": "Apoprotein B-48 is found in", "opa": "VLDL", ..., "cop": 3, "subject_name": "Biochemistry"}

    `cop` counts from 0 here, and from 1 in the authors' files on GitHub. The answers of the test split are withheld
    (-1), so the validation split is used for evaluation.
    """
    cop = answer_index(row, "cop")
    if not -1 <= cop <= 3:
        raise ValueError(
            f"cop is {cop}, expected 0 to 3, or -1 for a withheld answer. If the file is the one on GitHub, which "
            "counts from 1, subtract 1 from the whole column."
        )
    options = [text(row, f"op{letter}") for letter in "abcd"]
    return choice_row(text(row, "question"), options, cop, subject=row["subject_name"])


def mmlu_row(row: dict) -> dict:
    """A question of MMLU with the letter of its answer, and its `subject`.

        {"question": "The creatine kinase reaction is:", "subject": "anatomy", "choices": [...], "answer": 3}

    `answer` counts from 0. A local file contains all subjects, one after the other.
    """
    options, answer = texts(row, "choices"), answer_index(row, "answer")
    return choice_row(text(row, "question"), options, answer, subject=row["subject"])


def choice_row(stem: str, options: list[str], answer: int, **columns: str) -> dict:
    """Row of a multiple-choice question with one option per line; `answer` is the index of the correct option.

    An index outside of the options means that there is no answer. Raises ValueError if there are more options than
    letters.
    """
    if len(options) > len(LETTERS):
        raise ValueError(f"got {len(options)} options, expected at most {len(LETTERS)}. Remove options or the row.")
    options = [one_line(text) for text in options]
    return {
        "question": "\n".join([stem.strip(), *option_lines(options)]),
        "stem": stem.strip(),
        "solution": LETTERS[answer] if 0 <= answer < len(options) else "",
        "options": options,
        **columns,
    }


def one_line(text: str) -> str:
    """`text` with all runs of white space replaced by a space: some options of MedQA end in a line break."""
    return " ".join(text.split())


TRAIN = {"train_split": "train"}
ONLY_TRAIN = {"splits": ("train",), "eval_split": "train"}  # the only split, also where it is for testing
_MEDQA = Benchmark("medqa", "choice", medqa_row, "GBaker/MedQA-USMLE-4-options", **TRAIN)
_TABLE = (
    Benchmark("math", "math", math_row, "DigitalLearningGmbH/MATH-lighteval", **TRAIN),
    Benchmark("gsm_hard", "math", gsm_row, "reasoning-machines/gsm-hard", **ONLY_TRAIN),
    Benchmark("amc23", "math", amc_row, "AI-MO/aimo-validation-amc", **ONLY_TRAIN),
    _MEDQA,
    _MEDQA._replace(name="medqa_5options", hub_id="Neelectric/MedQA-USMLE"),
    Benchmark(
        *("medmcqa", "choice", medmcqa_row, "openlifescienceai/medmcqa", ("train", "validation"), "validation"),
        **TRAIN,
    ),
    Benchmark(
        *("mmlu_medical", "choice", mmlu_row, "cais/mmlu", ("test", "validation", "dev")),
        configs=(
            *("anatomy", "clinical_knowledge", "college_biology"),
            *("college_medicine", "medical_genetics", "professional_medicine"),
        ),
    ),
    Benchmark("orders", "json", orders.to_row, generate=orders.generated_rows, **TRAIN),
    Benchmark(
        *("function_calls", "calls", function_calls.to_row, "NousResearch/hermes-function-calling-v1"),
        configs=("func_calling_singleturn",),
        **ONLY_TRAIN,
        **TRAIN,
    ),
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in _TABLE}
