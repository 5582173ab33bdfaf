r"""Rows as the Hub has them, one or two a benchmark, and what is right about each."""

import json
from pathlib import Path

from datasets import Dataset

ROOT = Path(__file__).parents[2]
REAL_ROWS = ROOT.parent / "shared" / "data"


def medqa_row(answer: str, answer_idx: str, *options: str) -> dict:
    row = {"question": "Which one is it? ", "answer": answer, "answer_idx": answer_idx, "meta_info": "step1"}
    return row | {"options": dict(zip("ABCDE", options, strict=False))}


def medmcqa_row(cop: int) -> dict:
    options = {"opa": "VLDL", "opb": "LDL", "opc": "HDL", "opd": "Chylomicrons"}
    row = {"id": "3a3e9d0e", "question": "Apoprotein B-48 is found in", **options, "cop": cop, "choice_type": "multi"}
    return row | {"exp": "Ans. D", "subject_name": "Biochemistry", "topic_name": None}


def mmlu_row(answer: int, subject: str = "anatomy") -> dict:
    return {"question": "Urine is collected in the", "subject": subject, "choices": list("wxyz"), "answer": answer}


def amc_row(answer: float, year: int) -> dict:
    url = f"https://artofproblemsolving.com/wiki/index.php/{year}_AMC_12A_Problems/Problem_2"
    return {"id": 11, "problem": "What is $x$?", "answer": answer, "url": url}


def gsm_row(target: float) -> dict:
    return {"input": "How many roses?", "code": "def solution(): ...", "target": target}


def function_row(answer: str) -> dict:
    turns = {"system": "You call functions.", "human": "I have to go. ", "gpt": answer}
    conversations = [{"from": speaker, "value": said} for speaker, said in turns.items()]
    return {"id": "753d8365", "conversations": conversations, "tools": '[{"type": "function", "function": {}}]'}


# What the rows below answer, worked out by hand.
GOLD = {
    "math": [r"It is $\boxed{2}$."],
    "gsm_hard": ["-9867630.0", "2.0107e-06", "712071.6"],
    "amc23": ["21", "0.5"],
    "medqa": ["B"],
    "medqa_5options": ["E"],
    "medmcqa": ["D", "A"],
    "mmlu_medical": ["A", "D"],
    "orders": ['{"customer": "Bell, Ada", "item": "mug", "quantity": 2}'],
    "function_calls": [
        '<tool_call>\n{"name": "go", "arguments": {"city": "Oslo", "is_fast": true}}\n</tool_call>',
        '<tool_call>\n{"name": "go", "arguments": {"city": "Bath"}}\n</tool_call>',
    ],
}
HUB_ROWS = {
    "math": [{"problem": "$1 + 1$?", "level": "Level 1", "solution": r"It is $\boxed{2}$.", "type": "Prealgebra"}],
    "gsm_hard": [gsm_row(-9867630.0), gsm_row(2.0107e-06), gsm_row(712071.6)],
    "amc23": [amc_row(21.0, 2023), amc_row(0.5, 2023)],
    "medqa": [medqa_row("Anti-D IgG", "B", "Anti-A IgG", "Anti-D IgG", "Anti-B IgG", "Anti-D IgM\n")],
    "medqa_5options": [medqa_row("Diltiazem", "E", "Propranolol", "Digoxin", "Amiodarone", "Warfarin", "Diltiazem")],
    "medmcqa": [medmcqa_row(3), medmcqa_row(0)],
    "mmlu_medical": [mmlu_row(0), mmlu_row(3, "college_biology")],
    "orders": [{"order": "Two red mugs for Ada Bell, please.", "truth": GOLD["orders"][0]}],
    "function_calls": [
        function_row("<tool_call>\n{'arguments': {'city': 'Oslo', 'is_fast': True}, 'name': 'go'}\n</tool_call>\n"),
        function_row('<tool_call>{"name": "go", "arguments": {"city": "Bath"}}</tool_call>'),
    ],
}

TOLD = ("orders", "function_calls")  # no answer may be null
OPTIONS = {
    "medqa": ["Anti-A IgG", "Anti-D IgG", "Anti-B IgG", "Anti-D IgM"],
    "medqa_5options": ["Propranolol", "Digoxin", "Amiodarone", "Warfarin", "Diltiazem"],
    "medmcqa": ["VLDL", "LDL", "HDL", "Chylomicrons"],
    "mmlu_medical": ["w", "x", "y", "z"],
}


def write_file(path: Path, rows: list[dict]) -> Path:
    """A file of rows, in the format that its suffix says."""
    if path.suffix == ".parquet":
        Dataset.from_list(rows).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def warned(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("tempo_trl")]
