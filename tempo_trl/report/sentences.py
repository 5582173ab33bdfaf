"""The sentences of a report. Every number is computed from the recorded trees."""

import numpy as np
import pandas as pd

from tempo_trl.report.credit_summary import TOP, CreditSummary

# Smallest share of moved credit for each sentence: for methods that add TD errors, and for other methods.
VERDICTS = (
    (0.30, "{label} adds about as much credit as the outcome: at many tokens its update differs from GRPO's."),
    (0.10, "This is a clear difference: at many tokens the update differs from GRPO's."),
    (0.01, "This is a small difference: at nearly all tokens the update is close to GRPO's."),
    (0.0, "This is practically GRPO: {label} adds almost nothing to the outcome."),
)
TD_VERDICTS = (
    (0.30, "The tree contributes about as much credit as the outcome: at many tokens the update differs from GRPO's."),
    (0.10, "This is a clear difference: at the tokens where completions branch, the update differs from GRPO's."),
    (
        0.01,
        "This is a small difference: nearly all tokens get GRPO's update, and the tree changes a few tokens strongly.",
    ),
    (
        0.0,
        "This is practically GRPO: the outcome applies to every token, and only few tokens branch into different "
        "rewards.",
    ),
)
PLACES_VERDICTS = (
    (0.30, "At many tokens the update differs from GRPO's, which gives all tokens of a completion one advantage."),
    *VERDICTS[1:3],
    (0.0, "This is practically GRPO: almost no token has another advantage."),
)
NOTHING = (
    "No trees were recorded. The trainers of this package record them if log_trees_steps > 0; TRL's own trainer does "
    "not. The logged metrics are shown below."
)
LEAVE_ONE_OUT = (
    "Leaving a completion's own reward out of its baseline multiplies GRPO's advantages by n / (n - 1) in a group of "
    "n: this factor does not count."
)
GROWN = "Completions of a grown tree are dependent: what prefixes explain of their rewards is not estimated."
WORTH_IT = 0.02  # share of the squared error that a baseline must remove to be worth a word
LIMITS = "This shows where credit goes, not whether it helps: compare runs of several seeds with tempo-trl compare."


def honest_line(label: str | None, summary: CreditSummary) -> dict:
    """
    The line at the top of a report: the share of credit that the method moved relative to GRPO, and its meaning. Its
    `number` stands in `head` after the words `before`.
    """
    share = summary.moved()
    number, before = f"{share:.1%}", f"{summary.terms.first} moved "
    of = f" in {label}" if label else ""
    return {
        "share": share,
        "number": number,
        "before": before,
        "head": f"{before}{number} of the credit{of}; the rest is GRPO's.",
        "words": " ".join(
            [
                _verdict(summary),
                *_how_it_came(summary),
                *([LEAVE_ONE_OUT] if summary.terms.leave_one_out else []),
                *_explained(summary),
                *_predicted(summary),
                _flat(summary),
                *_flat_criteria(summary),
                LIMITS,
            ]
        ),
    }


def _verdict(summary: CreditSummary) -> str:
    share = summary.moved()
    if not share:
        return f"No credit moved: {summary.terms.nothing}, so this is GRPO."
    terms = summary.terms
    verdicts = TD_VERDICTS if terms.is_td else VERDICTS
    verdicts = PLACES_VERDICTS if terms.of_places else verdicts
    return next(words for least, words in verdicts if share >= least).format(label=terms.label)


def _how_it_came(summary: CreditSummary) -> list[str]:
    branch, tokens = summary.credit.loc["branch"], summary.credit["tokens"].sum()
    if not branch["tokens"]:
        return []
    mean = branch / branch["tokens"]
    return [
        f"{branch['tokens'] / tokens:.1%} of {tokens:,.0f} recorded tokens have {summary.terms.some}. At these tokens "
        f"the advantage differs from GRPO's by {mean['moved']:.2f} on average (GRPO's: {mean['outcome']:.2f})."
    ]


def _explained(summary: CreditSummary) -> list[str]:
    if summary.grown:
        return [GROWN]
    explained = summary.explained()
    if explained is None:
        return []
    return [
        f"Shared prefixes explain {explained:.0%} of the variance of the rewards. Credit from the prefix tree cannot "
        "see the rest."
    ]


def _predicted(summary: CreditSummary) -> list[str]:
    ratio = summary.value_errors.ratio()
    if ratio is None:
        return []
    helps = ratio <= 1 - WORTH_IT
    return [
        "Compared with the mean of the other completions, the squared error of predicting a completion's reward is "
        f"{ratio:.0%} with those that share its prefix. The prefix baseline would "
        f"{'remove noise here' if helps else 'not change much'}."
    ]


def _flat(summary: CreditSummary) -> str:
    flat, groups = summary.flat, summary.groups
    if not flat:
        return f"None of {groups:,} recorded group{'s' * (groups != 1)} has completions with equal rewards only."
    learns = "neither method learns" if summary.terms.is_td else "GRPO does not learn"
    return f"In {flat:,} of {groups:,} recorded groups all rewards are equal: {learns} from these groups."


def _flat_criteria(summary: CreditSummary) -> list[str]:
    judged = sum(sums.groups for sums in summary.criteria.values())
    if not judged:
        return []
    flat = sum(sums.flat for sums in summary.criteria.values()) / judged
    return [f"Where a criterion judged a group, its rewards are all equal in {flat:.0%} of cases, and give no credit."]


def tokens_lead(summary: CreditSummary) -> str:
    """Whether few tokens have most of the method's credit, and whether these are the uncertain ones."""
    ranked, uncertain, terms = summary.top_td(), summary.top_entropy(), summary.terms
    first, total = ranked[:TOP], ranked["mass"].sum()
    ever, top = "changed V" if terms.is_td else f"had {terms.some}", first["mass"].sum() / (total or 1.0)
    words = [
        f"{len(ranked):,} of {len(summary.tokens):,} different tokens {ever} at least once; "
        f"the first {len(first)} of them have {top:.0%} of all |{terms.added}|."
    ]
    if len(uncertain):
        both = first.index.intersection(uncertain.index)
        words.append(f"{len(both)} of them are among the {len(uncertain)} with the highest mean entropy.")
    share = summary.td_on_uncertain_tokens()
    if share is not None:
        words.append(
            f"{share:.0%} of |{terms.added}| is at the 20% of positions with the highest entropy (20% if it were "
            "independent of entropy)."
        )
    return " ".join(words)


def branch_words(summary: CreditSummary) -> str:
    """The table beside the histogram, summarized in a sentence."""
    total = summary.credit.sum()
    if not (summary.credit.loc["branch", "tokens"] and total["trained"] and total["outcome"]):
        return ""
    share = summary.credit.loc["branch"] / total
    return (
        f"{share['tokens']:.1%} of the tokens have {share['trained']:.1%} of {summary.terms.label}'s credit and "
        f"{share['outcome']:.1%} of GRPO's."
    )


def branch_credit(summary: CreditSummary) -> list[list[str]]:
    """Rows of the table that compares tokens with added credit to the other tokens."""
    sums, label = summary.credit, summary.terms.label
    shares, means = sums / sums.sum(), sums.div(sums["tokens"], axis=0)

    def row(name: str, cells: pd.Series, form: str) -> list[str]:
        return [name, *("–" if np.isnan(cell) else format(cell, form) for cell in cells)]

    rows = [
        row("tokens", sums["tokens"], ",.0f"),
        row("share of tokens", shares["tokens"], ".1%"),
        row("share of GRPO's |advantage|", shares["outcome"], ".1%"),
        row(f"share of {label}'s |advantage|", shares["trained"], ".1%"),
        row("mean |advantage|, GRPO", means["outcome"], ".3f"),
        row(f"mean |advantage|, {label}", means["trained"], ".3f"),
    ]
    # Where the advantage itself is shown, it has its row already.
    return rows if summary.terms.of_places else [*rows, row(f"mean |{summary.terms.added}|", means["td"], ".3f")]
