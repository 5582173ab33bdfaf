"""The terms that a report uses for a method's credit: the method's name, and what it adds to GRPO's advantage."""

from typing import NamedTuple

from tempo_trl.methods import METHODS

# Baselines without the own reward. The last is that of older recordings.
LEAVE_ONE_OUT = ("prefix_baseline", "anchor_baseline", "kernel_baseline")


class CreditTerms(NamedTuple):
    """
    The terms of one method. The defaults are TEMPO's, because records of earlier versions without a method are its.

    Args:
        label: Name of the method.
        added: What it adds to GRPO's advantage, in a heading or between bars: `|TD|`.
        added_credit: The same in a sentence: a token has a "TD error".
        more, less: Labels of tokens to which it added a positive or a negative number.
        lead: What it does in addition to GRPO.
        nothing: Why it added nothing to any token.
        marked: Why a token is underlined.
        leave_one_out: Whether its baseline leaves out the completion's own reward.
        of_places: Whether its credit lies on the places of criteria: it is then the advantage itself that is shown.
    """

    label: str = "TEMPO"
    added: str = "TD"
    added_credit: str = "TD error"
    more: str = "V rose"
    less: str = "V fell"
    lead: str = "TEMPO adds each token's TD error to it."
    nothing: str = "no completions of a group branched into different rewards"
    marked: str = "its TD error is not zero"
    leave_one_out: bool = False
    of_places: bool = False

    @property
    def first(self) -> str:
        """The label at the beginning of a sentence. The name of a user's function is left as it is."""
        ours = any(method.label == self.label for method in METHODS.values())
        return self.label[:1].upper() + self.label[1:] if ours else self.label

    @property
    def is_td(self) -> bool:
        """Whether TEMPO's TD errors are what the method adds."""
        return self.added == "TD"

    @property
    def some(self) -> str:
        """The term for what the method adds to a token, with its article."""
        return f"a {self.added_credit}" if self.is_td else self.added_credit


TEMPO = CreditTerms()
OF_PLACES = CreditTerms(
    "span credit",
    added="credit",
    added_credit="credit",
    more="above 0",
    less="below 0",
    nothing="no criterion had both a place and two different rewards in a group",
    marked="a criterion has its place there",
    of_places=True,
)


def terms_of(method: str, label: str) -> CreditTerms:
    """The terms of a method, by its name in the table of methods. An empty label is replaced by the table's."""
    label = label or (METHODS[method].label if method in METHODS else "the method")
    first = CreditTerms(label).first
    if method == "tempo":
        return CreditTerms(label, lead=f"{label} adds each token's TD error to it.")
    if method == "span_credit":
        lead = f"{first} compares completions criterion by criterion; each advantage falls on the criterion's place."
        return OF_PLACES._replace(label=label, lead=lead)
    lead = f"{first} adds a positive or negative number to it at each token."
    if method in LEAVE_ONE_OUT:
        lead = f"{first} subtracts its own estimate of the value at each token instead of the mean of the group."
    words = ("added", "added credit", "more than GRPO", "less than GRPO")
    nothing, marked = "every advantage is GRPO's", "its added credit is large"
    return CreditTerms(label, *words, lead, nothing, marked, method in LEAVE_ONE_OUT)
