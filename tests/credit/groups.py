"""Groups of completions for the tests, and the paper's definitions in plain loops to hold the fast code against."""

import math

import numpy as np
import torch
from hypothesis import strategies as st

from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.prefix_baseline import baseline_tokens, tree_baselines
from tempo_trl.credit.prefix_tree import prefix_tree

PAD = 9  # hypothesis draws it as a token too: a pad id equal to a sampled id must not matter


def as_tensors(rows: list[list[int]], rewards: list[float]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows as right-padded ids (B, T), lengths (B,) and rewards (B,)."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows], dtype=torch.long).reshape(len(rows), width)
    return ids, torch.tensor([len(row) for row in rows]), torch.tensor(rewards)


@st.composite
def groups(draw, min_size=1, max_size=7, rewards=None, ends_with_eos=False):
    """One to three groups as (rows, rewards, num_generations): ragged, with duplicates and proper prefixes."""
    num_generations = draw(st.integers(min_size, max_size))
    count = num_generations * draw(st.integers(1, 3))
    tokens = st.sampled_from([0, 1, PAD])
    row = st.lists(tokens, max_size=6).map(lambda ids: [*ids, 5] if ends_with_eos else ids)
    rows = draw(st.lists(row, min_size=count, max_size=count))
    values = st.sampled_from([0.0, 1.0, 0.7, -2.5, math.nan]) if rewards is None else rewards
    return rows, draw(st.lists(values, min_size=count, max_size=count)), num_generations


def values_by_definition(rows, rewards, num_generations) -> list[list[float]]:
    """V(s) = mean of the scorable rewards of the group's rows that begin with s; the state before's where none is."""
    result = []
    for i, row in enumerate(rows):
        start = i // num_generations * num_generations
        group = range(start, start + num_generations)
        values, value = [], 0.0
        for t in range(len(row) + 1):
            votes = [rewards[j] for j in group if rows[j][:t] == row[:t] and not math.isnan(rewards[j])]
            value = sum(votes) / len(votes) if votes else value
            values.append(value)
        result.append(values)
    return result


def advantages_by_definition(rows, rewards, num_generations, scale_rewards, td_coef) -> list[list[float]]:
    """[r - mean + c * TD] / scale, 0 for flat groups, groups of one and unscorable rows."""
    values = values_by_definition(rows, rewards, num_generations)
    batch = [r for r in rewards if not math.isnan(r)]
    result = []
    for i, row in enumerate(rows):
        start = i // num_generations * num_generations
        votes = [r for r in rewards[start : start + num_generations] if not math.isnan(r)]
        if math.isnan(rewards[i]) or len(set(votes)) < 2:
            result.append([0.0] * len(row))
            continue
        scale = {"group": std(votes) + 1e-4, "batch": std(batch) + 1e-4, "none": 1.0}[scale_rewards]
        outcome = rewards[i] - sum(votes) / len(votes)
        result.append(
            [(outcome + td_coef * (values[i][t + 1] - values[i][t])) / scale for t in range(len(row))],
        )
    return result


def predicted_by_definition(among: np.ndarray, shared: np.ndarray, rewards: np.ndarray, covariance) -> float:
    """A state's best linear unbiased prediction from others: how far each agrees `among` them, and with the state."""
    matrix, one = covariance(among), np.ones(len(rewards))
    np.fill_diagonal(matrix, covariance.variance or 1.0)
    inverse = np.linalg.inv(matrix)
    mean = one @ inverse @ rewards / (one @ inverse @ one)
    return mean + covariance(shared) @ inverse @ (rewards - mean)


def prefix_baselines(ids, lengths, rewards, size, covariance, branches=None, prompts=None) -> torch.Tensor:
    tree = prefix_tree(ids, lengths, size, prompts)
    return torch.from_numpy(tree_baselines(tree, rewards, ids.shape[1], covariance, branches)).float()


def prefix_baseline_advantages(ids, lengths, rewards, size, covariance, scale="group", branches=None) -> torch.Tensor:
    outcome = outcome_advantages(rewards, size, scale)
    return baseline_tokens(prefix_tree(ids, lengths, size), outcome, ids.shape[1], covariance, branches)


def mean_of_others(rewards: torch.Tensor, size: int) -> torch.Tensor:
    """Of each completion's group, in float64: RLOO's baseline."""
    groups = rewards.double().view(-1, size)
    return ((groups.sum(dim=1, keepdim=True) - groups) / (size - 1)).flatten()


def common(a: list, b: list) -> int:
    """Number of tokens that two rows share."""
    return next((t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def std(numbers: list[float]) -> float:
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1)) if len(numbers) > 1 else 0.0


def padded(rows: list[list[float]], width: int, repeat_last: bool = False) -> torch.Tensor:
    return torch.tensor(
        [row + [row[-1] if repeat_last else 0.0] * (width - len(row)) for row in rows], dtype=torch.float32
    ).reshape(len(rows), width)
