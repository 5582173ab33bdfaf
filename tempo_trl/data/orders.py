"""The task `orders`: an order in words becomes one line of JSON, drawn from a seed, without a download.

One row, `{"order": ..., "truth": ...}`:

    order  On 21 March Emma Clark from London ordered three knives, by express.
    truth  {"date": "03-21", "customer": "Clark, Emma", "city": "London", "item": "knife", "quantity": 3,
            "express": true}

The prompt has a system message and one worked example before the order, 108 tokens of SmolLM2 in all, and the answer
has about 44. Held-out orders have other days, names, towns, items, quantities and sentences.
"""

import json
import random
from pathlib import Path
from typing import NamedTuple

from tempo_trl.data.cells import cell, text

TRAIN_ORDERS, HELD_OUT = 3600, 240
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DELIVERIES = {"by express": True, "by mail": False}

SYSTEM_PROMPT = "Write the order as JSON."
EXAMPLE = (
    "On 30 June John Smith from Madrid ordered fourteen tables, by express.",
    '{"date": "06-30", "customer": "Smith, John", "city": "Madrid", "item": "table", "quantity": 14, "express": true}',
)


class Vocabulary(NamedTuple):
    """What the orders of a split are made of, of orders.json; the splits share nothing, nor with the example."""

    first_names: list[str]
    last_names: list[str]
    cities: list[str]
    items: dict[str, str]  # the singular by the plural
    quantities: dict[str, int]  # numbers by their words
    days: list[int]  # of a month
    sentences: list[str]


_WORDS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
VOCABULARIES = {split: Vocabulary(**words) for split, words in _WORDS.items()}


def generated_rows(split: str, n: int | None = None, seed: int = 0) -> list[dict]:
    """`n` orders of a split with their JSON, `{"order": ..., "truth": ...}`, by default all of the task's."""
    rng = random.Random(f"orders {split} {seed}")
    n = n or {"train": TRAIN_ORDERS, "test": HELD_OUT}[split]
    return [order(VOCABULARIES[split], rng) for _ in range(n)]


def order(vocabulary: Vocabulary, rng: random.Random) -> dict:
    """One order as a row."""
    first, last, city = (rng.choice(words) for words in vocabulary[:3])
    (items, item), (many, quantity) = (rng.choice([*words.items()]) for words in vocabulary[3:5])
    day, (number, month) = rng.choice(vocabulary.days), rng.choice([*enumerate(MONTHS, 1)])
    delivery, express = rng.choice([*DELIVERIES.items()])
    words = {"first": first, "last": last, "city": city, "items": items, "many": many, "month": month}
    sentence = rng.choice(vocabulary.sentences).format(day=day, delivery=delivery, **words)
    truth = {"date": f"{number:02d}-{day:02d}", "customer": f"{last}, {first}", "city": city, "item": item}
    return {"order": sentence, "truth": json.dumps({**truth, "quantity": quantity, "express": express})}


def to_row(row: dict) -> dict:
    """An order with its JSON. Raises ValueError for a local row whose `truth` is not a JSON object."""
    question, truth = text(row, "order"), cell(row, "truth", "the JSON text of an object", _is_object(row["truth"]))
    words = {"question": question, "system_prompt": SYSTEM_PROMPT, "example": EXAMPLE}
    return {"solution": truth, "truth": truth, **words}


def _is_object(truth: object) -> bool:
    try:
        return isinstance(truth, str) and isinstance(json.loads(truth), dict)
    except json.JSONDecodeError:
        return False
