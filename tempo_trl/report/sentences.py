"""What a report says in words. Every number is from the recorded trees."""

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
    share = summary.credit.moved()
    number = f"{share:.1%}"
    of = f" in {label}" if label else ""
    return {
        "share": share,
        "number": number,
        "head": f"{number} of the credit{of} was moved by {summary.terms.label}; the rest is where GRPO puts it.",
        "words": " ".join([_verdict(summary), *_how_it_came(summary), *_explained(summary), _flat(summary), LIMITS]),
    }


def _verdict(summary: CreditSummary) -> str:
    share = summary.credit.moved()
    if not share:
        return f"Nothing moved: {summary.terms.nothing}, so this is GRPO."
    verdicts = TD_VERDICTS if summary.terms.is_td else VERDICTS
    return next(words for least, words in verdicts if share >= least).format(label=summary.terms.label)


def _how_it_came(summary: CreditSummary) -> list[str]:
    branch, other = summary.credit.branch, summary.credit.other
    tokens = branch[0] + other[0]
    if not branch[0]:
        return []
    return [
        f"{branch[0] / tokens:.1%} of {tokens:,.0f} recorded tokens have {summary.terms.some}; there the advantage "
        f"differs from GRPO's by {branch[4] / branch[0]:.2f} on average, where GRPO's own is "
        f"{branch[1] / branch[0]:.2f}."
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
    ranked, terms = summary.top_td(), summary.terms
    ever = "moved V" if terms.is_td else f"had {terms.some}"
    total = sum(record.mass for _, record in ranked)
    top = sum(record.mass for _, record in ranked[:TOP]) / total if total else 0.0
    words = [
        f"{len(ranked):,} of {len(summary.tokens):,} different tokens ever {ever}; "
        f"the first {min(TOP, len(ranked))} of them hold {top:.0%} of all |{terms.added}|."
    ]
    uncertain = summary.top_entropy()
    if uncertain:
        both = {text for text, _ in ranked[:TOP]} & {text for text, _ in uncertain}
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
    branch, other, label = summary.credit.branch, summary.credit.other, summary.terms.label
    total = branch + other
    if not (branch[0] and total[3] and total[1]):
        return ""
    return (
        f"{branch[0] / total[0]:.1%} of the tokens have {branch[3] / total[3]:.1%} of {label}'s credit and "
        f"{branch[1] / total[1]:.1%} of GRPO's."
    )


def branch_credit(summary: CreditSummary) -> list[list[str]]:
    """Rows of the table: tokens to which the method adds credit against the others."""
    columns, label = (summary.credit.branch, summary.credit.other), summary.terms.label
    total = columns[0] + columns[1]

    def share(i: int) -> list[str]:
        return [f"{c[i] / total[i]:.1%}" if total[i] else "–" for c in columns]

    def mean(i: int) -> list[str]:
        return [f"{c[i] / c[0]:.3f}" if c[0] else "–" for c in columns]

    return [
        ["tokens", *(f"{c[0]:,.0f}" for c in columns)],
        ["share of tokens", *share(0)],
        ["share of GRPO's |advantage|", *share(1)],
        [f"share of {label}'s |advantage|", *share(3)],
        ["mean |advantage|, GRPO", *mean(1)],
        [f"mean |advantage|, {label}", *mean(3)],
        [f"mean |{summary.terms.added}|", *mean(2)],
    ]
