"""Answers to orders, read from TRL's tables of completions and judged by field."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from tempo_trl.data.orders import generated_rows
from tempo_trl.rewards.json_fields import json_fields

FIELDS = ("date", "customer", "city", "item", "quantity", "express")


@cache
def references() -> dict[str, str]:
    """The JSON of each order, of all splits."""
    return {row["order"]: row["truth"] for split in ("train", "test") for row in generated_rows(split)}


def _last(conversations: pd.Series) -> pd.Series:
    """The text of the last message of each conversation."""
    return conversations.map(lambda messages: messages[-1]["content"])


def checks(answers: Sequence[str], orders: Sequence[str]) -> pd.DataFrame:
    """Rewards of [`~tempo_trl.rewards.json_fields`], a row per answer; `all` is 1.0 if all fields are right."""
    judged = json_fields(list(answers), truth=[references()[order] for order in orders])
    frame = pd.DataFrame([{span.name: span.reward for span in spans} for spans in judged])
    return frame.assign(all=frame[list(FIELDS)].min(axis=1))


def held_out_answers(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """
    TRL's tables of a run's answers to held-out orders before and after, with the columns `asked` and `answer` more.

    TRL keeps as many rows as a generation has: all that were answered if they are not more, and among them rows of
    training if they are fewer, which are left out.

    Raises:
        ValueError: the tables are not of the same orders.
    """
    files = sorted((folder / "completions").glob("completions_*.parquet"))
    tables = [pd.read_parquet(file) for file in (files[0], files[-1])]
    tables = [table.assign(asked=_last(table["prompt"]), answer=_last(table["completion"])) for table in tables]
    held_out = {row["order"] for row in generated_rows("test")}
    before, after = (table[table["asked"].isin(held_out)].reset_index(drop=True) for table in tables)
    if before.empty or before["asked"].tolist() != after["asked"].tolist():
        raise ValueError(
            f"{folder} has no answers of the trained policy to the held-out orders. Remove the folder, and train "
            "again."
        )
    return before, after


def held_out_rates(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Shares of right answers, `before` and `after`, by field, of all six, and of JSON that can be read."""
    tables = {"before": before, "after": after}
    return pd.DataFrame({when: checks(own["answer"], own["asked"]).mean() for when, own in tables.items()})
