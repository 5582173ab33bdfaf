"""A task of the demo on a language model: what differs between `orders` and `instructions`."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd


class LanguageTask(NamedTuple):
    """
    A task of `tempo-trl demo --task`.

    Args:
        name: Folder of its recipes in `smollm2-135m`, and of its runs in the output.
        method: What it trains by default.
        seconds: Seconds of training; the rest of the six minutes loads, evaluates and draws.
        held_out, held_out_quick: How many held-out rows are answered before and after. They are one batch.
        rows: From `"train"` or `"test"` to the rows of the split.
        prompt: Column of the rows with the text of the prompt.
        measure: What rises with the steps, in words.
        share: From a table of completions to that measure, 0 to 1.
        title: Title of the curves.
        show: Prints what changed, from the finished runs and a console. Returns the numbers for results.json.
    """

    name: str
    method: str
    seconds: int
    held_out: int
    held_out_quick: int
    rows: Callable[[str], list[dict]]
    prompt: str
    measure: str
    share: Callable[[pd.DataFrame], float]
    title: str
    show: Callable[[list, object], dict]

    @property
    def recipes(self) -> str:
        """Folder of its recipes."""
        return f"smollm2-135m/{self.name}"

    def held_out_prompts(self) -> set[str]:
        """The prompts that are never trained."""
        return {row[self.prompt] for row in self.rows("test")}


def prompts_of(table: pd.DataFrame) -> list[str]:
    """The last message to the model in each row of TRL's table of completions."""
    return [prompt[-1]["content"] for prompt in table["prompt"]]


def answers_of(table: pd.DataFrame) -> list[str]:
    """The model's answer in each row of TRL's table of completions."""
    return [completion[-1]["content"] for completion in table["completion"]]
