"""What a report says in words. Every number is from the recorded trees."""

import numpy as np
import pandas as pd

from tempo_trl.report.credit_summary import TOP, CreditSummary

# From which share of moved credit on which sentence is true: of TD errors, and of the credit of other methods.
VERDICTS = (
    (0.30, "What {label} adds weighs about as much as the outcome: on many tokens the update is not GRPO's."),
    (0.10, "A marked shift: many tokens are trained on clearly differently than by GRPO."),
    (0.01, "A nudge: GRPO's number decides on nearly all tokens."),
    (0.0, "Practically GRPO: beside the outcome, what {label} adds weighs next to nothing."),
)
TD_VERDICTS = (
    (0.30, "The tree has as much to say as the outcome: on many tokens the update is not GRPO's."),
    (0.10, "A marked shift: the tokens at which completions part are trained on clearly differently than by GRPO."),
    (
        0.01,
        "A nudge: GRPO's number decides on nearly all tokens, and the tree corrects a few of them, those strongly.",
    ),
    (
        0.0,
        "Practically GRPO: beside the outcome, which is on every token, the few tokens at which completions part "
        "between different rewards weigh next to nothing.",
    ),
)
# What prefixes explain of the rewards, and what followed on the tasks of docs/evidence.md, whose gradient is known.
EXPLAINED = (
    (0.4, "TEMPO was nearer to the true gradient than GRPO in about half of them, the prefix baseline in all"),
    (0.2, "TEMPO was nearer to the true gradient than GRPO in a third of them, the prefix baseline in all"),
    (
        0.0,
        "TEMPO was nearer to the true gradient than GRPO in none of them, and the prefix baseline was level with it",
    ),
)
NOTHING = (
    "No trees were recorded: the trainers of this package record them with log_trees_steps > 0, TRL's own never does. "
    "What the log holds is shown below."
)
LIMITS = "This says where credit went. Whether that helps is for tempo-trl compare to say, with seeds."


def honest_line(label: str | None, summary: CreditSummary) -> dict:
    """The line at the top of a report: the share of credit that the method moved against GRPO, and what that means."""
    share = summary.moved()
    number = f"{share:.1%}"
    of = f" in {label}" if label else ""
    return {
        "share": share,
        "number": number,
        "head": f"{number} of the credit{of} was moved by {summary.terms.label}; the rest is where GRPO puts it.",
        "words": " ".join([_verdict(summary), *_how_it_came(summary), *_explained(summary), _flat(summary), LIMITS]),
    }


def _verdict(summary: CreditSummary) -> str:
    share = summary.moved()
    if not share:
        return f"Nothing moved: {summary.terms.nothing}, so this is GRPO."
    verdicts = TD_VERDICTS if summary.terms.is_td else VERDICTS
    return next(words for least, words in verdicts if share >= least).format(label=summary.terms.label)


def _how_it_came(summary: CreditSummary) -> list[str]:
    branch, tokens = summary.credit.loc["branch"], summary.credit["tokens"].sum()
    if not branch["tokens"]:
        return []
    mean = branch / branch["tokens"]
    return [
        f"{branch['tokens'] / tokens:.1%} of {tokens:,.0f} recorded tokens have {summary.terms.some}; there the "
        f"advantage differs from GRPO's by {mean['moved']:.2f} on average, where GRPO's own is {mean['outcome']:.2f}."
    ]


def _explained(summary: CreditSummary) -> list[str]:
    explained = summary.explained()
    if explained is None:
        return []
    meaning = next(words for least, words in EXPLAINED if explained >= least)
    return [
        f"Shared prefixes explain {explained:.0%} of the variance of the rewards. On tasks with about as much, "
        f"{meaning} (docs/evidence.md)."
    ]


def _flat(summary: CreditSummary) -> str:
    flat, groups = summary.flat, summary.groups
    if not flat:
        return f"Of {groups:,} recorded group{'s' * (groups != 1)} none has completions that all earn the same."
    learns = "neither method learns" if summary.terms.is_td else "GRPO learns nothing"
    return f"In {flat:,} of {groups:,} recorded groups all completions earn the same: {learns} from those."


def tokens_lead(summary: CreditSummary) -> str:
    """How concentrated the method's credit is on few tokens, and whether those are the uncertain ones."""
    ranked, uncertain, terms = summary.top_td(), summary.top_entropy(), summary.terms
    first, total = ranked[:TOP], ranked["mass"].sum()
    ever, top = "moved V" if terms.is_td else f"had {terms.some}", first["mass"].sum() / (total or 1.0)
    words = [
        f"{len(ranked):,} of {len(summary.tokens):,} different tokens ever {ever}; "
        f"the first {len(first)} of them hold {top:.0%} of all |{terms.added}|."
    ]
    if len(uncertain):
        both = first.index.intersection(uncertain.index)
        words.append(f"{len(both)} of them are among the {len(uncertain)} with the highest mean entropy.")
    share = summary.td_on_uncertain_tokens()
    if share is not None:
        words.append(
            f"{share:.0%} of |{terms.added}| lies on the most uncertain fifth of all positions (20% if it had "
            "nothing to do with entropy)."
        )
    return " ".join(words)


def branch_words(summary: CreditSummary) -> str:
    """The table beside the histogram as a sentence."""
    total = summary.credit.sum()
    if not (summary.credit.loc["branch", "tokens"] and total["trained"] and total["outcome"]):
        return ""
    share = summary.credit.loc["branch"] / total
    return (
        f"{share['tokens']:.1%} of the tokens have {share['trained']:.1%} of {summary.terms.label}'s credit and "
        f"{share['outcome']:.1%} of GRPO's."
    )


def branch_credit(summary: CreditSummary) -> list[list[str]]:
    """Rows of the table: tokens to which the method adds credit against the others."""
    sums, label = summary.credit, summary.terms.label
    shares, means = sums / sums.sum(), sums.div(sums["tokens"], axis=0)

    def row(name: str, cells: pd.Series, form: str) -> list[str]:
        return [name, *("–" if np.isnan(cell) else format(cell, form) for cell in cells)]

    return [
        row("tokens", sums["tokens"], ",.0f"),
        row("share of tokens", shares["tokens"], ".1%"),
        row("share of GRPO's |advantage|", shares["outcome"], ".1%"),
        row(f"share of {label}'s |advantage|", shares["trained"], ".1%"),
        row("mean |advantage|, GRPO", means["outcome"], ".3f"),
        row(f"mean |advantage|, {label}", means["trained"], ".3f"),
        row(f"mean |{summary.terms.added}|", means["td"], ".3f"),
    ]
