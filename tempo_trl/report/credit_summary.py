"""Summary of a run's recorded trees: how much credit the method moved, at which tokens and depths."""

from collections import defaultdict

import numpy as np
import pandas as pd
import torch

from tempo_trl.credit.advantages import flat_groups
from tempo_trl.credit.level_covariance import PairStatistics
from tempo_trl.credit.metrics import credit_sums, tree_sums
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.report.credit_terms import TEMPO
from tempo_trl.report.criteria import CriterionSums, add_criteria
from tempo_trl.report.folded_tree import first_branch
from tempo_trl.report.group import Group, padded
from tempo_trl.report.value_errors import ValueErrors
from tempo_trl.runs.token_text import around, readable

CONTEXT = 24  # characters on each side of an example
EXAMPLES = 2  # examples per token and sign
BINS = 24  # maximum number of bins in the histogram over depth
TOP = 20
ENOUGH = 30  # minimum number of groups with different rewards for an estimate of what prefixes explain
RARE = 5  # minimum number of occurrences of a token to rank its mean entropy
CREDIT = ["tokens", "outcome", "td", "trained", "moved"]
TOKEN = ["seen", "ups", "downs", "mass", "net", "entropy", "scored"]


class CreditSummary:
    """
    Sums over the recorded groups of a run. Records are added one at a time by [`add`]. For span credit, TD stands for
    the advantage, which lies on the places of criteria.

    Attributes:
        terms: The terms of the method's credit.
        groups, flat: Number of groups, and of those whose rewards are all equal.
        criteria: Sums of each criterion, by name.
        credit: Sums over the tokens of the loss, for tokens with a non-zero TD (`branch`) and `other` tokens: number
            of `tokens`, |GRPO's advantage| (`outcome`), |TD|, |advantage| (`trained`), |advantage - GRPO's| (`moved`).
        tokens: One row per text of a token of the loss: how often it was `seen`, how often TD was positive (`ups`) or
            negative (`downs`), the sums of |TD| (`mass`), of TD (`net`) and of the `entropy`, and how often an entropy
            is known (`scored`).
        depths: The same sums as in `credit`, one row per depth.
        first_branch: Mean reward of each group by the branches of its first branching state.
        series: `{metric: [(step, value)]}`.
        value_errors: How well shared prefixes predict the rewards.
        grown: Whether completions are leaves of trees that were grown. They are dependent, and a leaf may repeat, so
            neither what prefixes explain nor value errors are estimated from them.
    """

    def __init__(self):
        self.terms = TEMPO
        self.groups = self.flat = 0
        self.criteria: dict[str, CriterionSums] = {}
        self.credit = pd.DataFrame(0.0, index=["branch", "other"], columns=CREDIT)
        self.tokens = pd.DataFrame(columns=TOKEN)
        self.depths = pd.DataFrame(columns=CREDIT, dtype=float)
        self.first_branch: dict[int, list[float]] = defaultdict(list)
        self.series: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.value_errors = ValueErrors()
        self.grown = False
        self._pairs = PairStatistics()
        self._examples: dict[tuple[str, bool], list[tuple[float, str, str]]] = defaultdict(list)
        self._by_entropy: list[np.ndarray] = []  # (entropy, |TD|) of the tokens of the loss, arrays of (tokens, 2)

    def add(self, groups: list[Group]) -> None:
        """Count the groups of one step."""
        if not groups:
            return
        self.terms = groups[0].terms
        self.groups += len(groups)
        self.flat += sum(not _scored(g) or np.nanmin(g.rewards) >= np.nanmax(g.rewards) for g in groups)
        self.grown = groups[0].grown
        if not self.grown:
            self._pairs += sum(map(_pair_statistics, groups), PairStatistics())
            self.value_errors.add(groups)
        self._add_series(groups, [depth for group in groups for depth in self._add_first_branch(group)])
        add_criteria(self.criteria, groups)
        self._add_tokens(pd.concat(map(_frame, groups), ignore_index=True))
        for group in groups:
            for tokens, td, trained in zip(group.tokens, group.credit, group.loss_mask, strict=True):
                self._add_examples(readable(tokens), np.where(trained, td, 0.0))

    def moved(self) -> float:
        """
        Share of the credit that is not GRPO's: sum |A - g| / sum (|g| + |A - g|); 0 without any credit.

        For leave-one-out baselines A is multiplied by (n - 1) / n in a group of n scorable completions: they multiply
        all of GRPO's advantages by n / (n - 1), which moves no credit.
        """
        outcome, moved = self.credit[["outcome", "moved"]].sum()
        return float(moved / (outcome + moved)) if outcome + moved else 0.0

    def _add_first_branch(self, group: Group) -> list[int]:
        branch = first_branch(group.nodes)
        if branch is None:
            return []
        node, ways = branch
        if _scored(group):
            self.first_branch[ways].append(float(np.nanmean(group.rewards)))
        return [node.end]

    def _add_tokens(self, frame: pd.DataFrame) -> None:
        frame = frame[frame["loss"]]
        own = frame.groupby("text", sort=False)[TOKEN].sum()
        both = pd.concat([self.tokens, own]) if len(self.tokens) else own
        self.tokens = both.groupby(level=0, sort=False).sum()
        kind = np.where(frame["td"] > 0, "branch", "other")
        self.credit = self.credit.add(frame.groupby(kind)[CREDIT].sum(), fill_value=0.0)
        self.depths = self.depths.add(frame.groupby("depth")[CREDIT].sum(), fill_value=0.0)
        self._by_entropy.append(frame.loc[frame["scored"], ["entropy", "td"]].to_numpy())

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

    def _add_series(self, groups: list[Group], firsts: list[int]) -> None:
        step, size = groups[0].step, len(groups[0].ids)
        if firsts:
            self.series["first_branch"].append((step, float(np.mean(firsts))))
        if any(len(group.ids) != size for group in groups):
            return  # of a file of completions, whose groups may have any size
        for name, (numerator, denominator) in _sums(groups, size).items():
            if denominator:
                self.series[name].append((step, float(numerator / denominator)))

    def explained(self) -> float | None:
        """Share of the rewards' variance that the longest shared prefix explains; None if there are too few groups."""
        if self._pairs.groups < ENOUGH:
            return None
        covariance = PrefixCovariance()
        covariance.update(self._pairs)
        return covariance.explained

    def depth_bins(self) -> list[dict]:
        """Shares of tokens, GRPO's credit and |TD| in ranges of depth, `from` and `to` inclusive."""
        if self.depths.empty:
            return []
        depth = int(self.depths.index.max()) + 1
        width = -(-depth // BINS)
        edges = np.arange(0, depth + width, width)  # of equal width, or growing for long completions
        if depth > 4 * BINS:
            edges = np.unique((np.geomspace(1, depth + 1, BINS + 1) - 1).round().astype(int))
        sums = np.add.reduceat(self.depths[CREDIT[:3]].reindex(range(depth), fill_value=0.0).to_numpy(), edges[:-1])
        shares = sums / np.maximum(sums.sum(axis=0), 1e-30)
        return [
            {"from": int(a), "to": int(b) - 1} | dict(zip(CREDIT[:3], row, strict=True))
            for a, b, row in zip(edges, edges[1:], shares.tolist(), strict=False)
        ]

    def top_td(self) -> pd.DataFrame:
        """The tokens with the largest sum of |TD|."""
        return self.tokens[self.tokens["mass"] > 0].sort_values("mass", ascending=False, kind="stable")

    def top_entropy(self) -> pd.DataFrame:
        """The tokens with the highest mean entropy, `mean_entropy`, among those that are not rare."""
        known = self.tokens[self.tokens["scored"] >= RARE]
        known = known.assign(mean_entropy=known["entropy"] / known["scored"])
        return known.sort_values("mean_entropy", ascending=False, kind="stable")[:TOP]

    def td_on_uncertain_tokens(self, share: float = 0.2) -> float | None:
        """Share of |TD| on the `share` of tokens with the highest entropy; None without entropies or TD errors."""
        entropies, td = np.concatenate([np.zeros((0, 2)), *self._by_entropy]).T
        if not td.sum():
            return None
        return float(td[entropies >= np.quantile(entropies, 1 - share)].sum() / td.sum())


def _frame(group: Group) -> pd.DataFrame:
    """One row per token of a group, with its contribution to each of the sums."""
    lengths = [len(row) for row in group.ids]
    outcome = np.repeat(group.outcome, lengths).astype(float)
    trained, td = (np.concatenate(rows).astype(float) for rows in (group.advantages, group.credit))
    entropy = np.full(len(td), np.nan) if group.entropies is None else np.concatenate(group.entropies).astype(float)
    return pd.DataFrame(
        {
            "text": [piece for row in group.tokens for piece in readable(row)],
            "depth": np.concatenate([np.arange(length) for length in lengths]),
            "loss": np.concatenate(group.loss_mask).astype(bool),
            "tokens": 1,
            "outcome": np.abs(outcome),
            "td": np.abs(td),
            "trained": np.abs(trained),
            "moved": np.abs(trained * _leave_one_out_factor(group) - outcome),
            "seen": 1,
            "ups": td > 0,
            "downs": td < 0,
            "mass": np.abs(td),
            "net": td,
            "entropy": np.nan_to_num(entropy),
            "scored": ~np.isnan(entropy),
        }
    )


def _leave_one_out_factor(group: Group) -> float:
    """(n - 1) / n for n scorable completions and a leave-one-out baseline: (r - mean of others) in units of GRPO."""
    n = int((~np.isnan(group.rewards)).sum())
    return (n - 1) / n if group.terms.leave_one_out and n > 1 else 1.0


def _scored(group: Group) -> bool:
    return not np.isnan(group.rewards).all()


def _pair_statistics(group: Group) -> PairStatistics:
    return pair_statistics(group.prefix_tree(), torch.tensor(group.known_outcome, dtype=torch.float64))


def _sums(groups: list[Group], size: int) -> dict[str, tuple[float, float]]:
    """Numerators and denominators of the `tempo/*` metrics over the recorded groups."""
    ids = [row for group in groups for row in group.ids]
    tree = prefix_tree(padded(ids, torch.long), torch.tensor([len(row) for row in ids]), size)
    td = padded([row for group in groups for row in group.td_errors], torch.float32)
    mask = padded([row for group in groups for row in group.loss_mask], torch.float32)
    outcome = torch.tensor(np.concatenate([group.outcome for group in groups]), dtype=torch.float32)
    rewards = torch.tensor(np.concatenate([group.rewards for group in groups]))
    sums = tree_sums(tree, slice(0, len(groups)))
    credit = credit_sums(outcome.nan_to_num(), td, mask)
    flat = flat_groups(rewards, size)
    reward = rewards.nansum().item(), int((~rewards.isnan()).sum())
    sums |= {"frac_zero_std": (int(flat.sum()), len(flat)), "reward": reward}
    return sums | {name: tuple(pairs.sum(dim=0).tolist()) for name, pairs in credit.items()}
