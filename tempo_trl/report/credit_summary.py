"""Summary of a run's recorded trees: how much credit the method moved, and at which tokens."""

from collections import defaultdict

import numpy as np
import pandas as pd

from tempo_trl.report.criteria import judged
from tempo_trl.report.group import Group
from tempo_trl.runs.token_text import around, readable

CONTEXT = 24  # characters on each side of an example
EXAMPLES = 2  # examples per token and sign
TOP = 20
TOKEN = ["seen", "ups", "downs", "mass"]


class CreditSummary:
    """
    Sums over the recorded groups of a run. Records are added one at a time by [`add`]. For span credit, TD stands for
    the advantage, which lies on the places of criteria.

    Attributes:
        terms: The terms of the method's credit; None before the first record.
        groups, flat: Number of groups, and of those whose rewards are all equal.
        criteria: A row per judged criterion of a completion ([`~tempo_trl.report.criteria.judged`]).
        count, branch: Number of tokens of the loss, and of those with a non-zero TD.
        outcome, difference: Sums over the tokens of the loss: |GRPO's advantage|, |advantage - GRPO's|.
        tokens: One row per text of a token of the loss: how often it was `seen`, how often TD was positive (`ups`) or
            negative (`downs`), and the sum of |TD| (`mass`).
    """

    def __init__(self):
        self.terms = None
        self.groups = self.flat = self.count = self.branch = 0
        self.outcome = self.difference = 0.0
        self.criteria = judged([])
        self.tokens = pd.DataFrame(columns=TOKEN)
        self._examples: dict[tuple[str, bool], list[tuple[float, str, str]]] = defaultdict(list)

    def add(self, groups: list[Group]) -> None:
        """Count the groups of one step."""
        if not groups:
            return
        self.terms = groups[0].terms
        self.groups += len(groups)
        self.flat += sum(np.isnan(g.rewards).all() or np.nanmin(g.rewards) >= np.nanmax(g.rewards) for g in groups)
        self.criteria = pd.concat([self.criteria, judged(groups)], ignore_index=True)
        self._add_tokens(pd.concat(map(_frame, groups), ignore_index=True))
        for group in groups:
            for tokens, td, trained in zip(group.tokens, group.credit, group.loss_mask, strict=True):
                self._add_examples(readable(tokens), np.where(trained, td, 0.0))

    def moved(self) -> float:
        """
        Share of the credit that is not GRPO's: sum |A - g| / sum (|g| + |A - g|); 0 without any credit.

        For the prefix baseline g is over the mean of the other completions, as A is: n / (n - 1) times GRPO's in a
        group of n, which moves no credit.
        """
        total = self.outcome + self.difference
        return float(self.difference / total) if total else 0.0

    def facts(self) -> str:
        """The counts behind the share, in a line."""
        of_tokens = f"{self.branch:,} of {self.count:,} tokens have a non-zero |{self.terms.added}|"
        return f"{of_tokens} · all rewards are equal in {self.flat:,} of {self.groups:,} groups"

    def _add_tokens(self, frame: pd.DataFrame) -> None:
        frame = frame[frame["loss"]]
        own = frame.groupby("text", sort=False)[TOKEN].sum()
        both = pd.concat([self.tokens, own]) if len(self.tokens) else own
        self.tokens = both.groupby(level=0, sort=False).sum()
        self.count += len(frame)
        self.branch += int((frame["mass"] > 0).sum())
        self.outcome += frame["outcome"].sum()
        self.difference += frame["difference"].sum()

    def _add_examples(self, pieces: list[str], td: np.ndarray) -> None:
        """Keep the largest steps of each token, of each sign, in different contexts."""
        for t in np.flatnonzero(td):
            step, known = float(td[t]), self._examples[pieces[t], bool(td[t] > 0)]
            if len(known) == EXAMPLES and abs(step) <= abs(known[-1][0]):
                continue
            context = around(pieces, t, CONTEXT)
            if all(context != example[1:] for example in known):
                known.append((step, *context))
                known.sort(key=lambda example: -abs(example[0]))
                del known[EXAMPLES:]

    def examples(self, text: str) -> list[tuple[float, str, str]]:
        """The largest steps of a token, the larger first: TD, the text before it and the text after it."""
        return sorted(self._examples[text, True] + self._examples[text, False], key=lambda e: -abs(e[0]))

    def top_td(self) -> pd.DataFrame:
        """The tokens with the largest sum of |TD|."""
        return self.tokens[self.tokens["mass"] > 0].sort_values("mass", ascending=False, kind="stable")


def _frame(group: Group) -> pd.DataFrame:
    """One row per token of a group, with its contribution to each of the sums."""
    outcome = np.repeat(group.outcome, [len(row) for row in group.ids]).astype(float)
    trained, td = (np.concatenate(rows).astype(float) for rows in (group.advantages, group.credit))
    return pd.DataFrame(
        {
            "text": [piece for row in group.tokens for piece in readable(row)],
            "loss": np.concatenate(group.loss_mask).astype(bool),
            "outcome": np.abs(outcome),
            "difference": np.abs(trained - outcome),
            "seen": 1,
            "ups": td > 0,
            "downs": td < 0,
            "mass": np.abs(td),
        }
    )
