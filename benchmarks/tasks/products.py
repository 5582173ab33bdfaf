"""The task `products`: JSON that satisfies a schema told in words. Many answers are right, and none is given.

    request   Write a product: name begins with M, code of 1 letter and 3 digits, price from 40 to 55, three colours
              but not red, two rooms, the kitchen among them.
    answer    {"name": "Mug", "code": "K207", "price": 44, "colours": ["blue", "grey", "pink"],
              "rooms": ["kitchen", "office"]}

A row has its JSON schema in the column `schema`, by which [`~tempo_trl.rewards.json_schema`] judges. The lowest price
is even in training requests and odd in held-out ones, so that no request is in both.

The fields are chosen so that a policy that saw 64 examples has each right now and then: the name in 54 % of 128
held-out answers, the code in 33, the price in 62, the colours in 27 and the rooms in 49, and all completions of a
prompt hardly ever the same ones. Codes of two letters and three digits were learned by nobody, and their groups are
flat.
"""

import json
import random
from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.tasks import answered, prompts

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 3600, "test": 256}
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
COLOURS = ("red", "blue", "green", "black", "white", "grey", "pink", "brown", "yellow", "orange")
ROOMS = ("kitchen", "office", "garden", "garage", "bedroom", "bathroom", "cellar", "attic")
NOUNS = (
    *("Anchor", "Apple", "Arrow", "Basket", "Bottle", "Brush", "Candle", "Carpet", "Chair", "Clock", "Desk", "Drum"),
    *("Easel", "Engine", "Fan", "Fork", "Globe", "Guitar", "Hammer", "Helmet", "Iron", "Jacket", "Jug", "Kettle"),
    *("Kite", "Ladder", "Lamp", "Mirror", "Mug", "Needle", "Notebook", "Oven", "Pan", "Pencil", "Pillow", "Quilt"),
    *("Radio", "Rope", "Saw", "Scarf", "Sofa", "Table", "Towel", "Umbrella", "Vase", "Violin", "Wagon", "Watch"),
)
BY_LETTER: dict[str, list[str]] = defaultdict(list)
for noun in NOUNS:
    BY_LETTER[noun[0]].append(noun)


def generated_rows(split: str, count: int | None = None, seed: int = 0) -> list[dict[str, str]]:
    """Rows of a split: `request`, `schema` and one `valid` answer, which no checker sees."""
    rng = random.Random(f"products {split} {seed}")
    return [_row(rng, split) for _ in range(ROWS[split] if count is None else count)]


def _row(rng: random.Random, split: str) -> dict[str, str]:
    letter, least = rng.choice([*BY_LETTER]), 2 * rng.randint(5, 90) + (split == "test")
    most, digits = least + rng.randint(4, 15), rng.randint(2, 3)
    colours, without, rooms, among = rng.randint(2, 4), rng.choice(COLOURS), rng.randint(2, 3), rng.choice(ROOMS)
    request = (
        f"Write a product: name begins with {letter}, code of 1 letter and {digits} digits, price from {least} to "
        f"{most}, {NUMBERS[colours]} colours but not {without}, {NUMBERS[rooms]} rooms, the {among} among them."
    )
    allowed = [colour for colour in COLOURS if colour != without]
    others = [room for room in ROOMS if room != among]
    properties = {
        "name": {"type": "string", "pattern": f"^{letter}[a-z]+$"},
        "code": {"type": "string", "pattern": f"^[A-Z][0-9]{{{digits}}}$"},
        "price": {"type": "integer", "minimum": least, "maximum": most},
        "colours": _list_of(allowed, colours),
        "rooms": _list_of(ROOMS, rooms) | {"contains": {"const": among}},
    }
    valid = {
        "name": rng.choice(BY_LETTER[letter]),
        "code": rng.choice("ABCDEFGHJKLMNPRSTVW") + "".join(rng.choices("0123456789", k=digits)),
        "price": rng.randint(least, most),
        "colours": rng.sample(allowed, colours),
        "rooms": rng.sample([among, *rng.sample(others, rooms - 1)], rooms),
    }
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"request": request, "schema": json.dumps(schema), "valid": json.dumps(valid)}


def _list_of(allowed, count: int) -> dict:
    same = {"minItems": count, "maxItems": count, "uniqueItems": True}
    return {"type": "array", "items": {"enum": list(allowed)}, **same}


def load(split: str, seed: int = 0) -> "Dataset":
    """Requests for TRL, each with its schema."""
    return prompts(generated_rows(split, seed=seed), "request").remove_columns("valid")


def examples(count: int) -> "Dataset":
    """Requests with valid answers for TRL's SFTTrainer: `prompt` and `completion`."""
    return answered(prompts(generated_rows("train", count, seed="examples"), "request"), "valid")
