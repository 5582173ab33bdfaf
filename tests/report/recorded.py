"""Runs made of given texts: trees on disk as a trainer leaves them, without training."""

import json
from pathlib import Path

import numpy as np
import torch

from tempo_trl.credit import prefix_values, td_errors, tempo_advantages
from tempo_trl.credit.spans import criteria_of, criterion_advantages, span_advantages
from tempo_trl.report.credit_summary import CreditSummary
from tempo_trl.report.group import recorded_groups
from tempo_trl.runs.criteria import spans_of
from tempo_trl.runs.trees import trees_path, write_trees

HAND_WORKED = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]
HAND_REWARDS = [1.0, 0.0, 0.0, 1.0]
HAND_TREE = [  # below its prompt
    "└── 7+5=   n=4  V=0.50",
    "    ├── 2;2-3=   n=3  V=0.67  TD=+0.17",
    "    │   ├── 8#8   n=1  V=0.00  TD=-0.67",
    "    │   └── 9#9   n=2  V=1.00  TD=+0.33",
    "    └── 3;3-3=0#0   n=1  V=0.00  TD=-0.50",
]
BELL, NUL, OVERRIDE = "\x07", "\x00", "\u202e"
ORDERS = [
    '{"city": "Oslo", "item": "lamp"}',
    '{"city": "Rome", "item": "lamp"}',
    '{"city": "Oslo", "item": "desk"}',
    '{"city": "Rome"}',
]
SMILE = ["<0xF0><0x9F>", "<0x98>", "<0x80>"]  # the bytes of one character, in three tokens
WINK = [*SMILE[:2], "<0x89>"]
HOSTILE = [
    ["</script>", "<script>", "window.attacked=1", "</script>"],
    ["</script>", '<img src=x onerror="window.attacked=2">', "{{data}}", "<!--"],
    ["مرحبا", " ", "بالعالم", OVERRIDE, "txt.exe"],
    ["שלום", "🙂", NUL, BELL, "\x1b[2J", "\u2028", "$x_1$"],
    [*SMILE, " ends"],
    [*WINK, " ends"],
    ["\n\n", "\t", "  ", "&lt;b&gt;", "<0xFF>", "'\"`"],
    [],
]


def rows_of(completions, rewards, prompt="?", step=0, group=0, entropies=None) -> list[dict]:
    """Rows of a record for one group; a completion is a list of token texts."""
    size = len(completions)
    vocabulary = {text: i for i, text in enumerate(sorted({piece for row in completions for piece in row}))}
    lengths = torch.tensor([len(row) for row in completions])
    ids = torch.zeros(size, max(int(lengths.max()), 1), dtype=torch.long)
    for target, row in zip(ids, completions, strict=True):
        target[: len(row)] = torch.tensor([vocabulary[piece] for piece in row], dtype=torch.long)
    rewards = torch.tensor(rewards, dtype=torch.float)
    values = prefix_values(ids, lengths, rewards, size)
    total = tempo_advantages(ids, lengths, rewards, size)
    grpo = tempo_advantages(ids, lengths, rewards, size, td_coef=0.0)
    rows = []
    for i, pieces in enumerate(completions):
        own = slice(0, len(pieces))
        row = {"step": step, "group": group, "row": group * size + i, "prompt": prompt, "tokens": list(pieces)}
        row |= {"completion_ids": ids[i, own].tolist(), "values": values[i, : len(pieces) + 1].tolist()}
        row |= {"td_errors": (total - grpo)[i, own].tolist(), "advantages": total[i, own].tolist()}
        row |= {"outcome": grpo[i, 0].item() if pieces else 0.0, "reward": rewards[i].item(), "rewards": "{}"}
        row |= {"loss_mask": [True] * len(pieces), "turns": [0] * len(pieces), "calls": [""], "observed": [""]}
        rows.append(row | {"states": [1], "entropies": None if entropies is None else entropies[i, own].tolist()})
    scored = ~rewards.isnan()
    assert torch.equal(td_errors(values, lengths)[scored] != 0, (total != grpo)[scored])
    return rows


def order_rows(step=0, group=0, trace_lambda=0.0) -> list[dict]:
    """
    Orders in JSON, a token per character: city and item have a place, politeness has none. Oslo and the lamp are
    right, and the last completion has no item. The rewards are the means of the criteria.
    """
    judged = []
    for text in ORDERS:
        found = {"city": (float("Oslo" in text), [(9, 15)]), "polite": (0.0, [])}
        judged.append(found | ({"item": (float("lamp" in text), [(25, 31)])} if "item" in text else {}))
    completions = [list(text) for text in ORDERS]
    return span_rows(completions, judged, ("city", "item", "polite"), "An order?", step, group, trace_lambda)


def span_rows(completions, judged, names, prompt, step=0, group=0, trace_lambda=0.0) -> list[dict]:
    """Rows of a record of span credit for one group; `judged` has reward and places of each criterion by name."""
    criteria, size = criteria_of(judged, dict.fromkeys(names, 1.0), 2), len(completions)
    rows = rows_of(completions, criteria.mean_reward().tolist(), prompt, step, group)
    lengths = torch.tensor([len(pieces) for pieces in completions])
    places, width = (criteria.rewards, criteria.starts, criteria.ends, lengths), int(lengths.max())
    advantages = span_advantages(*places, width, size, trace_lambda=trace_lambda)
    spans = spans_of(criteria, criterion_advantages(criteria.rewards, size))
    for row, own, entries, length in zip(rows, advantages, spans, lengths.tolist(), strict=True):
        own = own[:length]
        row |= {"advantages": own.tolist(), "td_errors": (own - row["outcome"]).tolist()}
        row |= {"spans": [entry._asdict() for entry in entries]}
    return rows


def order_run(folder: Path, trace_lambda: float = 0.0) -> Path:
    """A run of span credit that recorded one step of two equal groups."""
    groups = [order_rows(group=group, trace_lambda=trace_lambda) for group in range(2)]
    return record(folder, groups, method="span_credit", trace_lambda=str(trace_lambda))


def record(
    folder: Path,
    groups: list[list[dict]],
    mode: str = "train",
    method: str = "tempo",
    credit: str = "",
    trace_lambda: str = "0.0",
) -> Path:
    """Write the groups of one step into a run's folder."""
    metadata = {"method": method, "credit": credit, "trace_lambda": trace_lambda}
    rows = [row for group in groups for row in group]
    write_trees(trees_path(folder, mode, rows[0]["step"]), rows, metadata)
    return folder


def summary_of(run_dir: Path) -> CreditSummary:
    """The summary of the first step that a run recorded."""
    summary = CreditSummary()
    summary.add(recorded_groups(run_dir, 0))
    return summary


def write(folder: Path, lines: list[dict | str]) -> Path:
    """A file of completions for `tempo-trl credit`."""
    path = folder / "completions.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def hand_worked_run(folder: Path, steps=(0, 4)) -> Path:
    """The README's group and a flat one, at two steps; the second has an evaluation, too."""
    texts = [list(text) for text in HAND_WORKED]
    entropies = np.linspace(0, 2, 4 * 13).reshape(4, 13)
    for step in steps:
        flat = rows_of(texts, [1.0] * 4, "1+1?", step, 1, entropies)
        record(folder, [rows_of(texts, HAND_REWARDS, "7+5-3?", step, 0, entropies), flat])
    record(folder, [rows_of(texts, HAND_REWARDS, "7+5-3?", steps[-1], 0)], "eval")
    return folder


def hostile_run(folder: Path) -> Path:
    """A group of everything that a page could trip over, with a title of that kind."""
    return record(folder, [rows_of(HOSTILE, [0.0, 1.0] * 4, "<script>window.attacked=3</script>" + NUL + OVERRIDE)])


def large_run(folder: Path, groups: int = 64, size: int = 8, tokens: int = 1024) -> Path:
    """Random completions that share prefixes, in records of eight groups."""
    generator = np.random.default_rng(0)
    vocabulary = np.array([f" word{i}" if i % 3 else f"part{i}" for i in range(20_000)], dtype=object)
    for step in range(0, groups, 8):
        record(folder, [_random_group(generator, vocabulary, size, tokens, step, group) for group in range(8)])
    return folder


def _random_group(generator, vocabulary, size: int, tokens: int, step: int, group: int) -> list[dict]:
    ids = np.minimum(generator.zipf(1.2, (size, tokens)), len(vocabulary) - 1)
    for row in range(1, size):
        shared = int(generator.geometric(0.01))
        ids[row, :shared] = ids[generator.integers(row), :shared]
    rewards = generator.integers(0, 2, size).astype(float).tolist()
    pieces = [vocabulary[row].tolist() for row in ids]
    return rows_of(pieces, rewards, f"Question {step}-{group}", step, group, generator.exponential(0.5, ids.shape))
