"""Compare credit with the token that decided: `slips.py` for real text, on the task `instructions`."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tempo_trl.data.instructions import INSTRUCTIONS, generated_rows
from tempo_trl.report.group import Group
from tempo_trl.rewards.boxed import after_thinking
from tempo_trl.rewards.instruction_checks import Verdict, verdict
from tempo_trl.runs.token_text import readable

# Kinds whose failures happen at one token, the first that no right answer has there.
AT_ONE_TOKEN = ("first_word", "no_comma", "no_letter", "max_words", "sum")


def decisive_token(pieces: Sequence[str], kind: str, words: Sequence[str], number: int) -> int:
    """
    Index of the token that decided whether an answer follows its instruction.

    Args:
        pieces: The texts of an answer's tokens, the end of the sequence without text or not among them.
        kind, words, number: See [`~tempo_trl.rewards.instruction_checks.verdict`].

    Returns:
        `int` from 0 to `len(pieces)`: the length where the answer's end decided and has no token of its own.
    """
    texts = readable(pieces)
    ends = list(accumulate(map(len, texts)))
    decided = _verdict("".join(texts), kind, words, number).decided
    return next((index for index, end in enumerate(ends) if decided < end), len(pieces))


def _verdict(text: str, kind: str, words: Sequence[str], number: int) -> Verdict:
    """The verdict on what follows the thinking, as the reward grades it; its index counts from the start of `text`."""
    said = after_thinking(text)
    judged = verdict(said, kind, list(words), number)
    return judged._replace(decided=len(text) - len(said) + judged.decided)


def rows_by_prompt() -> dict[str, dict]:
    """The rows of all splits of the task by their text, as a record of trees has it."""
    return {f"user: {row['instruction']}": row for split in INSTRUCTIONS.splits for row in generated_rows(split)}


def decisive_shares(groups: Sequence[Group]) -> dict[str, np.ndarray]:
    """
    Negative credit on the decisive tokens of failures, and on all of their tokens.

    Only failures of the kinds [`AT_ONE_TOKEN`] count. Groups of equal rewards have no credit, so they add nothing.

    Returns:
        `dict[str, np.ndarray]`: for `td`, `advantage` and `outcome` the two sums.
    """
    known, sums = rows_by_prompt(), {name: np.zeros(2) for name in ("td", "advantage", "outcome")}
    for group in groups:
        row = known.get(group.prompt)
        if row is None or row["kind"] not in AT_ONE_TOKEN:
            continue
        for index in np.flatnonzero(group.rewards == 0):
            pieces = without_end(group.tokens[index])
            if _verdict("".join(readable(pieces)), row["kind"], row["words"], row["number"]).passed:
                continue  # it failed as prose
            place = decisive_token(pieces, row["kind"], row["words"], row["number"])
            for name, credit in _credits(group, index).items():
                lost = -np.minimum(credit, 0.0)
                sums[name] += lost[place] if place < len(lost) else 0.0, lost.sum()
    return sums


def _credits(group: Group, index: int) -> dict[str, np.ndarray]:
    advantages = np.asarray(group.advantages[index], dtype=float)
    return {
        "td": np.asarray(group.td_errors[index], dtype=float),
        "advantage": advantages,
        "outcome": np.full(len(advantages), float(group.outcome[index])),
    }


def without_end(pieces: Sequence[str]) -> list[str]:
    """The tokens of the text: a special token at the end is not part of it."""
    return list(pieces[:-1]) if pieces and pieces[-1].startswith("<|") else list(pieces)
