"""What a report says in words. Every number is from the recorded trees."""

from tempo_trl.report.statistics import TOP, RunStatistics

# From which share of moved credit on which sentence is true.
VERDICTS = (
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
    "No trees were recorded. Only TEMPO records them, with log_trees_steps > 0: what the log holds is shown below."
)
LIMITS = "This says where credit went. Whether that helps is for tempo-trl compare to say, with seeds."


def honest_line(label: str | None, statistics: RunStatistics) -> dict:
    """The line at the top of a report: the share of credit that TEMPO moved against GRPO, and what that means."""
    share = statistics.credit.moved()
    number = f"{share:.1%}"
    of = f" in {label}" if label else ""
    return {
        "share": share,
        "number": number,
        "head": f"{number} of the credit{of} was moved by TEMPO; the rest is where GRPO puts it.",
        "words": " ".join(
            [_verdict(statistics), *_how_it_came(statistics), *_explained(statistics), _flat(statistics), LIMITS]
        ),
    }


def _verdict(statistics: RunStatistics) -> str:
    share = statistics.credit.moved()
    if not share:
        return "Nothing moved: no completions of a group parted between different rewards, so this is GRPO."
    return next(words for least, words in VERDICTS if share >= least)


def _how_it_came(statistics: RunStatistics) -> list[str]:
    branch, other = statistics.credit.branch, statistics.credit.other
    tokens = branch[0] + other[0]
    if not branch[0]:
        return []
    return [
        f"{branch[0] / tokens:.1%} of {tokens:,.0f} recorded tokens have a TD error; there the advantage differs "
        f"from GRPO's by {branch[4] / branch[0]:.2f} on average, where GRPO's own is {branch[1] / branch[0]:.2f}."
    ]


def _explained(statistics: RunStatistics) -> list[str]:
    explained = statistics.explained()
    if explained is None:
        return []
    meaning = next(words for least, words in EXPLAINED if explained >= least)
    return [
        f"Shared prefixes explain {explained:.0%} of the variance of the rewards. On tasks with about as much, "
        f"{meaning} (docs/evidence.md)."
    ]


def _flat(statistics: RunStatistics) -> str:
    flat, groups = statistics.flat, statistics.groups
    if not flat:
        return f"Of {groups:,} recorded group{'s' * (groups != 1)} none has completions that all earn the same."
    return (
        f"In {flat:,} of {groups:,} recorded groups all completions earn the same: neither method learns from those."
    )


def tokens_lead(statistics: RunStatistics) -> str:
    """How concentrated TD is on few tokens, and whether those are the uncertain ones."""
    ranked = statistics.top_td()
    total = sum(record.mass for _, record in ranked)
    top = sum(record.mass for _, record in ranked[:TOP]) / total if total else 0.0
    words = [
        f"{len(ranked):,} of {len(statistics.tokens):,} different tokens ever moved V; "
        f"the first {min(TOP, len(ranked))} of them hold {top:.0%} of all |TD|."
    ]
    uncertain = statistics.top_entropy()
    if uncertain:
        both = {text for text, _ in ranked[:TOP]} & {text for text, _ in uncertain}
        words.append(f"{len(both)} of them are among the {len(uncertain)} with the highest mean entropy.")
    share = statistics.td_on_uncertain_tokens()
    if share is not None:
        words.append(
            f"{share:.0%} of |TD| lies on the most uncertain fifth of all positions (20% if it had nothing to do with "
            "entropy)."
        )
    return " ".join(words)


def branch_words(statistics: RunStatistics) -> str:
    """The table beside the histogram as a sentence."""
    branch, other = statistics.credit.branch, statistics.credit.other
    total = branch + other
    if not (branch[0] and total[3] and total[1]):
        return ""
    return (
        f"{branch[0] / total[0]:.1%} of the tokens have {branch[3] / total[3]:.1%} of TEMPO's credit and "
        f"{branch[1] / total[1]:.1%} of GRPO's."
    )


def branch_credit(statistics: RunStatistics) -> list[list[str]]:
    """Rows of the table: tokens with a TD error against the others."""
    columns = statistics.credit.branch, statistics.credit.other
    total = columns[0] + columns[1]

    def share(i: int) -> list[str]:
        return [f"{c[i] / total[i]:.1%}" if total[i] else "–" for c in columns]

    def mean(i: int) -> list[str]:
        return [f"{c[i] / c[0]:.3f}" if c[0] else "–" for c in columns]

    return [
        ["tokens", *(f"{c[0]:,.0f}" for c in columns)],
        ["share of tokens", *share(0)],
        ["share of GRPO's |advantage|", *share(1)],
        ["share of TEMPO's |advantage|", *share(3)],
        ["mean |advantage|, GRPO", *mean(1)],
        ["mean |advantage|, TEMPO", *mean(3)],
        ["mean |TD|", *mean(2)],
    ]
