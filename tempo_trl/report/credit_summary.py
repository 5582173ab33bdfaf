"""What the recorded trees of a run say together: how much credit moved, on which tokens, how deep."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tempo_trl.credit.advantages import flat_groups, prefix_tree
from tempo_trl.credit.metrics import credit_sums, tree_sums
from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance, pair_statistics
from tempo_trl.report.credit_terms import TEMPO
from tempo_trl.report.folded_tree import first_branch
from tempo_trl.report.group import Group
from tempo_trl.report.token_text import one_line, readable

CONTEXT = 24  # characters on each side of an example
EXAMPLES = 2  # of a token, of each sign
BINS = 24  # of the histogram over depth, at most
TOP = 20
ENOUGH = 30  # groups with different rewards, from which on what prefixes explain is more than chance
RARE = 5  # a token seen less often has no mean entropy worth a rank


@dataclass
class TokenRecord:
    """One token text: how often it was seen, and its TD errors where they were not 0, in units of the advantages."""

    seen: int = 0
    ups: int = 0
    downs: int = 0
    mass: float = 0.0  # sum of |TD|
    net: float = 0.0  # sum of TD
    entropy: float = 0.0  # sum, in nats
    scored: int = 0  # tokens with an entropy
    examples: list[tuple[float, str, str]] = field(default_factory=list)  # TD, text before, text after


@dataclass
class CreditSums:
    """Sums over tokens of the loss: `[tokens, |GRPO's advantage|, |TD|, |what trains|, |what trains - GRPO's|]`."""

    branch: np.ndarray = field(default_factory=lambda: np.zeros(5))
    other: np.ndarray = field(default_factory=lambda: np.zeros(5))

    def moved(self) -> float:
        """Share of the credit that is not GRPO's: sum |A - g| / sum (|g| + |A - g|); 0 without any credit."""
        _, outcome, _, _, moved = self.branch + self.other
        return float(moved / (outcome + moved)) if outcome + moved else 0.0


class CreditSummary:
    """
    Sums over the recorded groups of a run, taken one record at a time by [`add`].

    Attributes:
        terms: The terms of the method's credit.
        groups, flat: Groups, and those whose rewards are all equal.
        credit: [`CreditSums`].
        tokens: [`TokenRecord`] by the text of the token.
        depths: `{depth: [tokens, |GRPO's advantage|, |TD|]}`.
        first_branch: Mean reward of each group by the branches of its first branching state.
        series: `{metric: [(step, value)]}`.
    """

    def __init__(self):
        self.terms = TEMPO
        self.groups = self.flat = 0
        self.credit = CreditSums()
        self.tokens: dict[str, TokenRecord] = defaultdict(TokenRecord)
        self.first_branch: dict[int, list[float]] = defaultdict(list)
        self.series: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._pairs = PairStatistics()
        self._depths = np.zeros((3, 0))
        self._by_entropy: list[tuple[np.ndarray, np.ndarray]] = []  # (entropies, |TD|) of the tokens of the loss

    def add(self, groups: list[Group]) -> None:
        """Count the groups of one step."""
        firsts = []
        for group in groups:
            self.groups += 1
            self.flat += int(np.nanmin(group.rewards) >= np.nanmax(group.rewards)) if _scored(group) else 1
            firsts += self._add_first_branch(group)
            self._pairs += _pair_statistics(group)
            for row in range(len(group.ids)):
                self._add_row(group, row)
        if groups:
            self.terms = groups[0].terms
            self._add_series(groups, firsts)

    def _add_first_branch(self, group: Group) -> list[int]:
        branch = first_branch(group.nodes)
        if branch is None:
            return []
        node, ways = branch
        if _scored(group):
            self.first_branch[ways].append(float(np.nanmean(group.rewards)))
        return [node.end]

    def _add_row(self, group: Group, row: int) -> None:
        mask = group.loss_mask[row]
        td, advantages = np.abs(group.td_errors[row]), group.advantages[row]
        outcome = np.full(len(mask), group.outcome[row])
        columns = np.stack([np.ones(len(mask)), np.abs(outcome), td, np.abs(advantages), np.abs(advantages - outcome)])
        self.credit.branch += columns[:, mask & (td > 0)].sum(axis=1)
        self.credit.other += columns[:, mask & (td == 0)].sum(axis=1)
        if len(mask) > self._depths.shape[1]:
            self._depths = np.pad(self._depths, ((0, 0), (0, len(mask) - self._depths.shape[1])))
        self._depths[:, : len(mask)] += columns[:3] * mask
        entropies = group.entropies[row] if group.entropies is not None else None
        if entropies is not None:
            self._by_entropy.append((entropies[mask], td[mask]))
        self._add_tokens(group, row, entropies)

    def _add_tokens(self, group: Group, row: int, entropies: np.ndarray | None) -> None:
        pieces, td = readable(group.tokens[row]), group.td_errors[row]
        for text, count in Counter(pieces).items():
            self.tokens[text].seen += count
        if entropies is not None:
            for text, entropy in zip(pieces, entropies.tolist(), strict=True):
                record = self.tokens[text]
                record.entropy, record.scored = record.entropy + entropy, record.scored + 1
        for t in np.flatnonzero(td):
            record, step = self.tokens[pieces[t]], float(td[t])
            record.mass, record.net = record.mass + abs(step), record.net + step
            record.ups, record.downs = record.ups + (step > 0), record.downs + (step < 0)
            same = [known for known in record.examples if (known[0] > 0) == (step > 0)]
            if len(same) < EXAMPLES or abs(step) > abs(same[-1][0]):
                example = step, _end("".join(pieces[max(0, t - CONTEXT) : t])), _start(pieces[t + 1 : t + 1 + CONTEXT])
                if all(example[1:] != known[1:] for known in same):
                    same = sorted([*same, example], key=lambda e: -abs(e[0]))[:EXAMPLES]
                    other = [known for known in record.examples if (known[0] > 0) != (step > 0)]
                    record.examples = sorted(same + other, key=lambda e: -abs(e[0]))

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
        """Share of the rewards' variance that the longest shared prefix explains; None of too few groups to tell."""
        if self._pairs.groups < ENOUGH:
            return None
        covariance = PrefixCovariance()
        covariance.update(self._pairs)
        return covariance.explained

    def depth_bins(self) -> list[dict]:
        """Shares of tokens, GRPO's credit and |TD| that lie in ranges of depth, `from` and `to` inclusive."""
        depth = self._depths.shape[1]
        if not depth:
            return []
        edges = np.arange(0, depth + (width := -(-depth // BINS)), width)  # equally wide, or in a long one growing
        if depth > 4 * BINS:
            edges = np.unique((np.geomspace(1, depth + 1, BINS + 1) - 1).round().astype(int))
        sums = np.add.reduceat(self._depths, edges[:-1], axis=1)
        shares = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-30)
        names = ("tokens", "outcome", "td")
        return [
            {"from": int(a), "to": int(b) - 1} | dict(zip(names, column.tolist(), strict=True))
            for a, b, column in zip(edges, edges[1:], shares.T, strict=False)
        ]

    def top_td(self) -> list[tuple[str, TokenRecord]]:
        """The tokens with the largest sum of |TD|."""
        credited = [(text, record) for text, record in self.tokens.items() if record.mass > 0]
        return sorted(credited, key=lambda pair: -pair[1].mass)

    def top_entropy(self) -> list[tuple[str, TokenRecord]]:
        """The tokens with the highest mean entropy among those that are not rare."""
        known = [(text, record) for text, record in self.tokens.items() if record.scored >= RARE]
        return sorted(known, key=lambda pair: -pair[1].entropy / pair[1].scored)[:TOP]

    def td_on_uncertain_tokens(self, share: float = 0.2) -> float | None:
        """Share of |TD| on the `share` of tokens with the highest entropy; None without entropies or TD errors."""
        if not self._by_entropy:
            return None
        entropies, td = (np.concatenate(columns) for columns in zip(*self._by_entropy, strict=True))
        if not td.sum():
            return None
        return float(td[entropies >= np.quantile(entropies, 1 - share)].sum() / td.sum())


def _scored(group: Group) -> bool:
    return not np.isnan(group.rewards).all()


def _pair_statistics(group: Group) -> PairStatistics:
    tree = prefix_tree(_padded(group.ids, torch.long), torch.tensor([len(row) for row in group.ids]), len(group.ids))
    return pair_statistics(tree, torch.tensor(group.outcome, dtype=torch.float64))


def _padded(rows: list, dtype: torch.dtype) -> torch.Tensor:
    """Rows of any lengths as a matrix with 0 past their ends."""
    return pad_sequence([torch.tensor(np.asarray(row), dtype=dtype) for row in rows], batch_first=True)


def _sums(groups: list[Group], size: int) -> dict[str, tuple[float, float]]:
    """Numerators and denominators of the `tempo/*` metrics over the recorded groups."""
    rows = [(group, row) for group in groups for row in range(size)]
    lengths = torch.tensor([len(group.ids[row]) for group, row in rows])
    ids = _padded([group.ids[row] for group, row in rows], torch.long)
    td = _padded([group.td_errors[row] for group, row in rows], torch.float32)
    mask = _padded([group.loss_mask[row] for group, row in rows], torch.float32)
    outcome = torch.tensor([group.outcome[row] for group, row in rows], dtype=torch.float32)
    sums = tree_sums(prefix_tree(ids, lengths, size), slice(0, len(groups)))
    credit = credit_sums(outcome.nan_to_num(), td, mask)
    rewards = torch.tensor([group.rewards[row] for group, row in rows])
    flat = flat_groups(rewards, size)
    reward = rewards.nansum().item(), int((~rewards.isnan()).sum())
    sums |= {"flat_groups": (int(flat.sum()), len(flat)), "reward": reward}
    return sums | {name: tuple(pairs.sum(dim=0).tolist()) for name, pairs in credit.items()}


def _end(text: str) -> str:
    return one_line(text)[-CONTEXT:]


def _start(pieces: list[str]) -> str:
    return one_line("".join(pieces))[:CONTEXT]
