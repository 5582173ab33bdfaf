"""Folders of the demo's runs on orders, as a training leaves them, made of given answers."""

import json
from pathlib import Path

import pandas as pd
import torch

from tempo_trl.credit import span_advantages
from tempo_trl.credit.spans import criteria_of, criterion_advantages
from tempo_trl.data.orders import generated_rows
from tempo_trl.rewards import json_fields
from tempo_trl.runs.criteria import spans_of

from ..report.recorded import record, rows_of

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
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 2, "reward": 0.9}]}))
    table(folder, 2, [*TRAINED[:1], *HELD_OUT], ["no", *(row["truth"] for row in HELD_OUT)])
    (folder / "eval_results.json").write_text("{}")


def recorded(folder: Path) -> Path:
    """A recorded group of span credit, a token per character, with an end-of-sequence token."""
    order, truth = TRAINED[0]["order"], TRAINED[0]["truth"]
    answers = [truth, wrong_city(truth), no_express(truth), truth]
    pieces = [[*answer, "<|im_end|>"] for answer in answers]
    texts = ["".join(own) for own in pieces]
    found = json_fields(texts, truth=[truth] * len(texts))
    judged = [_by_name(spans, len(own)) for spans, own in zip(found, pieces, strict=True)]
    criteria = criteria_of(judged, dict.fromkeys(judged[0], 1.0), 2)
    rows = rows_of(pieces, criteria.mean_reward().tolist(), f"system: ?\nuser: {order}")
    lengths = torch.tensor([len(own) for own in pieces])
    places, width = (criteria.rewards, criteria.starts, criteria.ends, lengths), int(lengths.max())
    advantages = span_advantages(*places, width, len(pieces))
    spans = spans_of(criteria, criterion_advantages(criteria.rewards, len(pieces)))
    for row, own, entries, length in zip(rows, advantages, spans, lengths.tolist(), strict=True):
        row |= {"advantages": own[:length].tolist(), "spans": [entry._asdict() for entry in entries]}
    return record(folder, [rows], method="span_credit")


def _by_name(spans, length: int) -> dict:
    """Criteria with their places in tokens: a character each, and the end of the sequence as the last one."""
    found = {}
    for span in spans:
        _, places = found.setdefault(span.name, (span.reward, []))
        places.append((span.start, min(span.end, length)))
    return found
