"""How a report speaks of the credit that it shows beside GRPO's: whose it is, and what it adds to GRPO's advantage."""

from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from tempo_trl.methods import METHODS

OF_PREFIX_VALUES = ("tempo", "prefix_baseline")  # methods that add TD errors of prefix values


class CreditTerms(NamedTuple):
    """
    The terms of one method. The defaults are TEMPO's, which alone recorded trees before the record named its method.

    Args:
        label: Whose credit it is.
        added: What it adds to GRPO's advantage, in a heading or between bars: `|TD|`.
        added_credit: The same in a sentence: a token has a "TD error".
        more, less: A token to which it added more, or less, than nothing.
        lead: What it does beside GRPO.
        nothing: Why it added nothing to any token.
        marked: Why a token is underlined: it may add something to every token.
    """

    label: str = "TEMPO"
    added: str = "TD"
    added_credit: str = "TD error"
    more: str = "V rose"
    less: str = "V fell"
    lead: str = "TEMPO adds each token's TD error to it."
    nothing: str = "no completions of a group parted between different rewards"
    marked: str = "its TD error is not zero"

    @property
    def is_td(self) -> bool:
        """Whether it adds TD errors of prefix values."""
        return self.added == "TD"

    @property
    def some(self) -> str:
        """What a token has to which the method adds something."""
        return f"a {self.added_credit}" if self.is_td else self.added_credit


TEMPO = CreditTerms()


def terms_of(method: str, label: str) -> CreditTerms:
    """The terms of a method by its name in the table and its label; the table's label if this is empty."""
    label = label or (METHODS[method].label if method in METHODS else "the method")
    if method in OF_PREFIX_VALUES:
        return CreditTerms(label, lead=f"{label} adds each token's TD error to it.")
    lead = f"{label} adds to it, or takes from it, at each token."
    words = ("added", "added credit", "more than GRPO", "less than GRPO")
    return CreditTerms(label, *words, lead, "every advantage is GRPO's", "much was added to it")


def recorded_terms(path: Path) -> CreditTerms:
    """The terms of the method that a file of recorded trees names in its metadata."""
    metadata = {key.decode(): value.decode() for key, value in (pq.read_schema(path).metadata or {}).items()}
    return terms_of(metadata.get("method", "tempo"), metadata.get("credit", ""))
