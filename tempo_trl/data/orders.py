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
    """What the orders of a split are made of; the splits share nothing, and neither has the example's."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    cities: tuple[str, ...]
    items: dict[str, str]  # the singular by the plural
    quantities: dict[str, int]  # numbers by their words
    days: tuple[int, ...]  # of a month
    sentences: tuple[str, ...]


VOCABULARIES = {
    "train": Vocabulary(
        first_names=(
            *("Alice", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Kate", "Noah"),
            *("Paul", "Rosa", "Simon", "Victor", "Laura", "Martin", "Nancy", "Oscar", "Helen", "Jack"),
        ),
        last_names=(
            *("Brown", "Young", "Adams", "Clark", "Davis", "Green", "King", "Lewis", "Hill", "Wood"),
            *("Stone", "Bell", "Price", "Cook", "Miller", "Johnson", "Jones", "Newton", "Cross", "Turner"),
        ),
        cities=(
            *("Paris", "Rome", "London", "Boston", "Chicago", "Oxford", "Washington", "Lincoln"),
            *("Berlin", "Vienna", "Athens", "Milan", "Cairo", "Denver", "Venice", "Toronto"),
        ),
        items={
            **{"chairs": "chair", "boxes": "box", "brushes": "brush", "clocks": "clock", "watches": "watch"},
            **{"plates": "plate", "balls": "ball", "knives": "knife", "shirts": "shirt", "batteries": "battery"},
        },
        quantities={
            **{"two": 2, "three": 3, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12, "fifteen": 15},
            **{"twenty": 20, "two dozen": 24},
        },
        days=tuple(day for day in range(1, 29) if day % 4),
        sentences=(
            "On {day} {month} {first} {last} from {city} ordered {many} {items}, {delivery}.",
            "{first} {last} ({city}) wants {many} {items}, {delivery}. Date: {month} {day}.",
            "Order of {month} {day}: {many} {items}, {delivery}, for {first} {last} in {city}.",
        ),
    ),
    "test": Vocabulary(
        first_names=("Anna", "Brian", "Carol", "Daniel", "Eric", "Frank", "Peter", "Rachel", "Sarah", "Thomas"),
        last_names=("Scott", "Taylor", "White", "Wilson", "Black", "Hall", "Rose", "Lee", "Ross", "Martin"),
        cities=(
            *("Cambridge", "Moscow", "Miami", "Detroit", "Seattle"),
            *("Prague", "Geneva", "Tokyo", "Dallas", "Florence"),
        ),
        items={
            **{"cups": "cup", "glasses": "glass", "dishes": "dish", "hats": "hat", "bottles": "bottle"},
            **{"leaves": "leaf", "cards": "card", "diaries": "diary"},
        },
        quantities={"four": 4, "seven": 7, "nine": 9, "eleven": 11, "sixteen": 16, "three dozen": 36},
        days=tuple(day for day in range(1, 29) if not day % 4),
        sentences=(
            "{first} {last} of {city} asked for {many} {items}, {delivery}, on {day} {month}.",
            "{month} {day}: {many} {items} {delivery} to {first} {last}, {city}.",
        ),
    ),
}


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
    question, truth = text(row, "order"), cell(row, "truth", "the JSON text of an object", _is_object)
    words = {"question": question, "system_prompt": SYSTEM_PROMPT, "example": EXAMPLE}
    return {"solution": truth, "truth": truth, **words}


def _is_object(truth: object) -> bool:
    try:
        return isinstance(truth, str) and isinstance(json.loads(truth), dict)
    except json.JSONDecodeError:
        return False
