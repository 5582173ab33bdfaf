"""The terms that a report uses for a method's credit: the method's name, and what it adds to GRPO's advantage."""

from typing import NamedTuple

from tempo_trl.methods import method_label


class CreditTerms(NamedTuple):
    """
    The terms of one method.

    Args:
        label: Name of the method.
        added: What it adds to GRPO's advantage, in a heading or between bars: `|TD|`.
        more, less: Labels of tokens to which it added a positive or a negative number.
        of_places: Whether its credit lies on the places of criteria: it is then the advantage itself that is shown.
    """

    label: str
    added: str = "added"
    more: str = "more than GRPO"
    less: str = "less than GRPO"
    of_places: bool = False


def terms_of(method: str, label: str = "") -> CreditTerms:
    """The terms of a method, by its name in the table of methods. An empty label is replaced by the table's."""
    label = label or method_label(method)
    if method == "tempo":
        return CreditTerms(label, "TD", "V rose", "V fell")
    if method == "span_credit":
        return CreditTerms(label, "credit", "above 0", "below 0", of_places=True)
    return CreditTerms(label)
