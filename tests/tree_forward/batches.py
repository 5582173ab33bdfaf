"""Batches of rows for the packing tests, and what they mean said in loops."""

import numpy as np
import torch
from hypothesis import strategies as st


@st.composite
def batches(draw):
    """(input_ids (B, L), attention_mask (B, L), width): prompts padded left, completions right, over few tokens."""
    tokens = st.integers(0, draw(st.sampled_from([0, 1, 2, 300])))
    prompts = draw(st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=3))
    completions = draw(st.lists(st.lists(tokens, max_size=8), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(st.sampled_from(prompts), st.sampled_from(completions)), min_size=1, max_size=8))
    cuts = [draw(st.integers(0, len(completion))) for _, completion in rows]  # rows that are prefixes of others
    rows = [(prompt, completion[:cut]) for (prompt, completion), cut in zip(rows, cuts, strict=True)]
    return padded([row[0] for row in rows], [row[1] for row in rows], draw(tokens))


def padded(prompts: list, completions: list, pad: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Prompts padded on the left and completions on the right, as TRL has them."""
    left, right = max(map(len, prompts)), max(1, *map(len, completions))
    ids = torch.full((len(prompts), left + right), pad)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        inside = slice(left - len(prompt), left + len(completion))
        ids[row, inside], mask[row, inside] = torch.tensor([*prompt, *completion]), 1
    return ids, mask, right


def rows_of(ids: torch.Tensor, mask: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row[inside].tolist()) for row, inside in zip(ids, mask.bool(), strict=True)]


def prefixes(rows: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The nodes of the trie of the rows, without its root."""
    return {row[:end] for row in rows for end in range(1, len(row) + 1)}


def random_tree_batch(prompts: int, group: int, prompt_tokens: int, completion_tokens: int, vocabulary: int, seed=0):
    """Groups whose completions part a few times, with a duplicate and ragged lengths: (ids, mask, width)."""
    rng = np.random.default_rng(seed)
    heads, tails = [], []
    for number in range(prompts):
        prompt = rng.integers(3, vocabulary, prompt_tokens - 3 * number)
        stems = rng.integers(3, vocabulary, (2, completion_tokens))
        stems[1, : completion_tokens // 4] = stems[0, : completion_tokens // 4]
        for place in range(group):
            own = stems[place % 2].copy()
            kept = int(rng.integers(0, completion_tokens))
            own[kept:] = rng.integers(3, vocabulary, completion_tokens - kept)
            heads.append(prompt.tolist())
            tails.append(own[: int(rng.integers(completion_tokens // 2, completion_tokens + 1))].tolist())
        tails[-1] = list(tails[-2])
    return padded(heads, tails)
