"""The task `calls`: an instruction in words becomes a call of one of six tools, drawn from a seed, without a download.

One row, `{"instruction": ..., "calls": ...}`:

    instruction  Book a table for five at Bella at 8 pm.
    calls        [{"name": "book", "arguments": {"place": "Bella", "people": 5, "hour": 20}}]

The call is asked for between Qwen's and Hermes' tags:

    <tool_call>
    {"name": "book", "arguments": {"place": "Bella", "people": 5, "hour": 20}}
    </tool_call>

Its prompt has a system message with the signatures of the tools, and one worked example before the instruction, 140
tokens of SmolLM2 in all. The answer has about 36. Held-out instructions have the same tools, but other values and
sentences.
"""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from tempo_trl.data.benchmark import Benchmark
from tempo_trl.data.cells import json_list, text

TRAIN_INSTRUCTIONS, HELD_OUT = 3600, 240  # 600 and 40 of each tool
TOOLS = {
    "weather": ("city", "days"),
    "timer": ("label", "minutes"),
    "convert": ("amount", "from", "to"),
    "book": ("place", "people", "hour"),
    "play": ("artist", "shuffle"),
    "translate": ("word", "language"),
}
SYSTEM_PROMPT = "Call one tool: " + ", ".join(f"{name}({', '.join(keys)})" for name, keys in TOOLS.items())


class Vocabulary(NamedTuple):
    """What the instructions of a split are made of; the splits share nothing, and neither has the example's."""

    cities: tuple[str, ...]
    labels: tuple[str, ...]
    places: tuple[str, ...]
    artists: tuple[str, ...]
    words: tuple[str, ...]
    languages: tuple[str, ...]
    numbers: dict[str, int]  # by their words
    currencies: dict[str, str]  # codes by their names
    hours: dict[str, int]
    orders: dict[str, bool]  # whether an order of songs is shuffled
    sentences: dict[str, str]  # of each tool


VOCABULARIES = {
    "train": Vocabulary(
        cities=("Paris", "Rome", "London", "Boston", "Chicago", "Oxford", "Berlin", "Vienna", "Athens", "Milan"),
        labels=("rice", "tea", "bread", "soup", "laundry", "cake", "fish", "homework"),
        places=("Bella", "Castle", "Garden", "Lotus", "Corner", "Sunset", "Harbor", "Olive"),
        artists=("Mozart", "Madonna", "Queen", "Prince", "Elvis", "Bach", "Adele", "Sting"),
        words=("river", "house", "friend", "winter", "horse", "mother", "church", "flower"),
        languages=("French", "German", "Italian", "Russian", "Dutch", "Greek"),
        numbers={"two": 2, "three": 3, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12},
        currencies={"dollars": "USD", "euros": "EUR", "pounds": "GBP", "yen": "JPY"},
        hours={"noon": 12, "1 pm": 13, "3 pm": 15, "6 pm": 18, "8 pm": 20, "9 pm": 21},
        orders={"shuffled": True, "in order": False},
        sentences={
            "weather": "How is the weather in {city} for {days} days?",
            "timer": "Set a timer of {minutes} minutes for the {label}.",
            "convert": "How many {to} are {amount} {from}?",
            "book": "Book a table for {people} at {place} at {hour}.",
            "play": "Play {artist}, {shuffle}.",
            "translate": "What is '{word}' in {language}?",
        },
    ),
    "test": Vocabulary(
        cities=("Moscow", "Miami", "Detroit", "Seattle", "Prague", "Geneva", "Tokyo", "Dallas"),
        labels=("pasta", "eggs", "coffee", "pizza", "nap", "oven"),
        places=("Palace", "Tavern", "Dragon", "Paradise", "Bamboo", "Lagoon"),
        artists=("Beethoven", "Drake", "Abba", "Chopin", "Eminem", "Bowie"),
        words=("bridge", "garden", "summer", "brother", "window", "school"),
        languages=("Spanish", "Polish", "Turkish", "Swedish"),
        numbers={"four": 4, "seven": 7, "nine": 9, "eleven": 11},
        currencies={"francs": "CHF", "rupees": "INR", "pesos": "MXN"},
        hours={"2 pm": 14, "4 pm": 16, "5 pm": 17, "7 pm": 19},
        orders={"in random order": True, "one by one": False},
        sentences={
            "weather": "I need a forecast of {days} days for {city}.",
            "timer": "Remind me of the {label} in {minutes} minutes.",
            "convert": "Change {amount} {from} into {to}.",
            "book": "At {hour} we are {people} at {place}. Reserve, please.",
            "play": "I want to hear {artist} {shuffle}.",
            "translate": "Say '{word}' in {language}.",
        },
    ),
}


def generated_rows(split: str, n: int | None = None, seed: int = 0) -> list[dict]:
    """`n` instructions with their calls, `{"instruction": ..., "calls": ...}`; by default all. Tools come in turn."""
    rng, tools = random.Random(f"calls {split} {seed}"), [*TOOLS]
    n = n or {"train": TRAIN_INSTRUCTIONS, "test": HELD_OUT}[split]
    return [instruction(tools[index % len(tools)], VOCABULARIES[split], rng) for index in range(n)]


def instruction(tool: str, vocabulary: Vocabulary, rng: random.Random) -> dict:
    """One instruction for a tool, as a row."""
    said_and_meant = dict(zip(TOOLS[tool], _VALUES[tool](vocabulary, rng), strict=True))
    sentence = vocabulary.sentences[tool].format(**{key: said for key, (said, _) in said_and_meant.items()})
    arguments = {key: meant for key, (_, meant) in said_and_meant.items()}
    return {"instruction": sentence, "calls": json.dumps([{"name": tool, "arguments": arguments}])}


Values = list[tuple[str, Any]]  # of the arguments of a tool: in words, and as the call has them


def _weather(of: Vocabulary, rng: random.Random) -> Values:
    return [_same(rng.choice(of.cities)), _one(of.numbers, rng)]


def _timer(of: Vocabulary, rng: random.Random) -> Values:
    return [_same(rng.choice(of.labels)), _one(of.numbers, rng)]


def _convert(of: Vocabulary, rng: random.Random) -> Values:
    return [_one(of.numbers, rng), *rng.sample([*of.currencies.items()], 2)]


def _book(of: Vocabulary, rng: random.Random) -> Values:
    return [_same(rng.choice(of.places)), _one(of.numbers, rng), _one(of.hours, rng)]


def _play(of: Vocabulary, rng: random.Random) -> Values:
    return [_same(rng.choice(of.artists)), _one(of.orders, rng)]


def _translate(of: Vocabulary, rng: random.Random) -> Values:
    return [_same(rng.choice(of.words)), _same(rng.choice(of.languages))]


def _same(word: str) -> tuple[str, str]:
    return word, word


def _one(meanings: dict[str, Any], rng: random.Random) -> tuple[str, Any]:
    return rng.choice([*meanings.items()])


_VALUES: dict[str, Callable[[Vocabulary, random.Random], Values]] = {
    "weather": _weather,
    "timer": _timer,
    "convert": _convert,
    "book": _book,
    "play": _play,
    "translate": _translate,
}


def tagged(calls: str) -> str:
    """The JSON text of a list of calls as Qwen and Hermes write calls: each in JSON between tags, on lines of its own.

    Raises ValueError if one of them is not an object with a name and arguments.
    """
    lines = []
    for call in json.loads(calls):
        if not isinstance(call, dict) or not {"name", "arguments"} <= call.keys():
            raise ValueError(f"a call is {call!r}, expected an object with `name` and `arguments`. Correct the cell.")
        lines += ["<tool_call>", json.dumps(call), "</tool_call>"]
    return "\n".join(lines)


EXAMPLE = (
    "Tomorrow at 10 pm we are thirty at Luna.",
    tagged('[{"name": "book", "arguments": {"place": "Luna", "people": 30, "hour": 22}}]'),
)


def to_row(row: dict, row_id: int) -> dict:
    """An instruction with its calls. Raises ValueError for a local row whose `calls` are not a list of calls."""
    question, calls = text(row, "instruction"), json_list(row, "calls")
    words = {"question": question, "system_prompt": SYSTEM_PROMPT, "example": EXAMPLE}
    return {"row_id": row_id, "solution": tagged(calls), "calls": calls, **words}


CALLS = Benchmark(
    name="calls",
    hub_id="",
    splits=("train", "test"),
    eval_split="test",
    columns=("instruction", "calls"),
    domain="calls",
    to_row=to_row,
    train_split="train",
    generate=generated_rows,
)
