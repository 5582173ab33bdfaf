"""Folders of the demo's runs on orders, as a training leaves them, made of given answers."""

import io
import json
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from tempo_trl.data.orders import generated_rows
from tempo_trl.rewards import json_fields
from tempo_trl.rewards.span_reward import by_criterion

from ..report.recorded import record, span_rows

HELD_OUT, TRAINED = (generated_rows(split)[:2] for split in ("test", "train"))


def wrong_city(truth: str) -> str:
    """The answer with another city."""
    return json.dumps(json.loads(truth) | {"city": "Ulm"})


def no_express(truth: str) -> str:
    """The answer without its last field."""
    answer = json.loads(truth)
    del answer["express"]
    return json.dumps(answer)


def table(folder: Path, step: int, rows: list[dict], answers: list[str]) -> Path:
    """Write TRL's table of completions of a step."""
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    prompts = [[{"role": "system", "content": "?"}, {"role": "user", "content": row["order"]}] for row in rows]
    completions = [[{"role": "assistant", "content": answer}] for answer in answers]
    pd.DataFrame({"step": step, "prompt": prompts, "completion": completions}).to_parquet(path)
    return path


def trained(folder: Path) -> None:
    """Two steps of training: no field is right before, then 5 of 6 and 11 of 12, and all are at the end."""
    truths = [row["truth"] for row in TRAINED]
    table(folder, 0, HELD_OUT, ["Sure!", '{"city": '])
    table(folder, 1, TRAINED, [wrong_city(truth) for truth in truths])
    table(folder, 2, TRAINED, [wrong_city(truths[0]), truths[1]])


def evaluated(folder: Path) -> None:
    """The evaluation at the end, which replaces the table of the last step."""
    log = [{"step": 1, "reward": 0.42}, {"step": 2, "reward": 0.9}]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    table(folder, 2, [*TRAINED[:1], *HELD_OUT], ["no", *(row["truth"] for row in HELD_OUT)])
    (folder / "eval_results.json").write_text("{}")


def shown(renderable) -> str:
    """What a file without colours gets."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def recorded(folder: Path) -> Path:
    """A recorded group of span credit, a token per character, with an end-of-sequence token."""
    order, truth = TRAINED[0]["order"], TRAINED[0]["truth"]
    answers = [truth, wrong_city(truth), no_express(truth), truth]
    pieces = [[*answer, "<|im_end|>"] for answer in answers]
    texts = ["".join(own) for own in pieces]
    found = json_fields(texts, truth=[truth] * len(texts))
    judged = [by_criterion(spans, partial(_tokens, len(own))) for spans, own in zip(found, pieces, strict=True)]
    return record(folder, [span_rows(pieces, judged, judged[0], f"system: ?\nuser: {order}")], method="span_credit")


def _tokens(length: int, start: int, end: int) -> tuple[int, int]:
    """Characters are tokens, and the end of the sequence is the last one."""
    return start, min(end, length)
