"""The task `calls`: an instruction in words becomes a call of one of six tools.

One row, `{"instruction": ..., "calls": ...}`:

    instruction  Play music in the office at volume thirty.
    calls        [{"name": "music", "arguments": {"room": "office", "volume": 30}}]

The call is asked for between Qwen's and Hermes' tags:

    <tool_call>
    {"name": "music", "arguments": {"room": "office", "volume": 30}}
    </tool_call>

The prompt has a system message with the signatures of the tools, and one worked example before the instruction, 125
tokens of SmolLM2 in all, and the answer has about 36. Held-out instructions have the same tools, but other rooms,
numbers and sentences.
"""

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.tasks import prompts
from tempo_trl.data.function_calls import tagged

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 3600, "test": 128}
TOOLS = {  # what each sets in a room
    "light": "percent",
    "heat": "degrees",
    "music": "volume",
    "timer": "minutes",
    "alarm": "hour",
    "blinds": "open",
}
SIGNATURES = ", ".join(f"{name}(room, {key})" for name, key in TOOLS.items())
SYSTEM_PROMPT = f"Answer with a tool call. Tools: {SIGNATURES}"


class Vocabulary(NamedTuple):
    """What the instructions of a split are made of; the splits share nothing, and neither has the example's."""

    rooms: tuple[str, ...]
    numbers: dict[str, int]  # by their words
    hours: dict[str, int]  # of the day
    states: dict[str, bool]  # whether blinds shall be open, by the verb
    sentences: dict[str, str]  # of each tool


VOCABULARIES = {
    "train": Vocabulary(
        rooms=("kitchen", "office", "hall", "garage", "garden", "library", "bedroom", "lobby", "gym", "shop"),
        numbers={"ten": 10, "twelve": 12, "fifteen": 15, "eighteen": 18, "twenty": 20, "thirty": 30, "fifty": 50},
        hours={"noon": 12, "6 am": 6, "8 am": 8, "1 pm": 13, "3 pm": 15, "8 pm": 20, "9 pm": 21},
        states={"Open": True, "Close": False},
        sentences={
            "light": "Set the light in the {room} to {value} percent.",
            "heat": "Heat the {room} to {value} degrees.",
            "music": "Play music in the {room} at volume {value}.",
            "timer": "Start a timer of {value} minutes in the {room}.",
            "alarm": "Set the alarm in the {room} to {value}.",
            "blinds": "{value} the blinds in the {room}.",
        },
    ),
    "test": Vocabulary(
        rooms=("bathroom", "basement", "studio", "nursery", "pantry", "salon"),
        numbers={"eleven": 11, "fourteen": 14, "sixteen": 16, "forty": 40, "sixty": 60},
        hours={"7 am": 7, "9 am": 9, "2 pm": 14, "4 pm": 16, "7 pm": 19},
        states={"Raise": True, "Lower": False},
        sentences={
            "light": "I want {value} percent of light in the {room}.",
            "heat": "Make it {value} degrees warm in the {room}.",
            "music": "The volume of the music in the {room} should be {value}.",
            "timer": "Tell me in the {room} when {value} minutes are over.",
            "alarm": "Wake me at {value} in the {room}.",
            "blinds": "{value} all blinds of the {room}.",
        },
    ),
}


def generated_rows(split: str, n: int | None = None, seed: int = 0) -> list[dict]:
    """`n` instructions with their calls, by default all of the task's. Tools come in turn."""
    rng, tools = random.Random(f"calls {split} {seed}"), [*TOOLS]
    return [instruction(tools[index % len(tools)], VOCABULARIES[split], rng) for index in range(n or ROWS[split])]


def instruction(tool: str, vocabulary: Vocabulary, rng: random.Random) -> dict:
    """One instruction for a tool, as a row."""
    values = {"alarm": vocabulary.hours, "blinds": vocabulary.states}.get(tool, vocabulary.numbers)
    room, (said, value) = rng.choice(vocabulary.rooms), rng.choice([*values.items()])
    sentence = vocabulary.sentences[tool].format(room=room, value=said)
    return {"instruction": sentence, "calls": json.dumps([call(tool, {"room": room, TOOLS[tool]: value})])}


def call(name: str, arguments: dict[str, Any]) -> dict:
    """A call as JSON has it."""
    return {"name": name, "arguments": arguments}


EXAMPLE = (
    "Set the light in the cellar to ninety percent.",
    tagged([call("light", {"room": "cellar", "percent": 90})]),
)


def load(split: str, seed: int = 0) -> "Dataset":
    """The task as prompts, with `calls` for [`~tempo_trl.rewards.tool_call_fields`], the same for every seed."""
    return prompts(generated_rows(split), "instruction", SYSTEM_PROMPT, EXAMPLE)
