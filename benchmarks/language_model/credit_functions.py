"""Credit functions of the oracle and of the variants of span credit, for `credit_func` in a recipe."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from benchmarks.language_model.decisive import decisive_token, without_end
from benchmarks.learning.oracles import hopeful_values
from tempo_trl import Batch, Credit
from tempo_trl.credit import td_errors
from tempo_trl.credit.advantages import EPSILON
from tempo_trl.credit.spans import Criteria, criterion_advantages
from tempo_trl.demo.language_model import language_model
from tempo_trl.methods.span_credit import span_credit
from tempo_trl.runs.token_text import token_pieces

KNOWN = ("no_comma", "no_letter")  # whose truth is in the text so far: the first comma, or letter, ends all hope


def one_scale(batch: Batch) -> Credit:
    """Span credit with one scale for all criteria of a group, so that one that hardly varies counts less."""
    spans, size = batch.criteria, batch.num_generations
    deviations = criterion_advantages(spans.rewards, size, "none").view(-1, size, len(spans.names))
    judged = spans.rewards.isfinite().view(deviations.shape).any(dim=1).sum(dim=1)  # criteria of a group
    variance = deviations.square().sum(dim=(1, 2)) / (judged * (size - 1)).clamp(min=1)
    scale = (variance.sqrt() + EPSILON).repeat_interleave(size)
    scaled = spans._replace(rewards=spans.rewards.double() / scale[:, None])
    return span_credit(replace(batch, criteria=scaled), 0.0, scale="none", with_outcome=False)


def shuffled_places(batch: Batch) -> Credit:
    """Span credit with the places of each completion permuted among its criteria: is it the place that helps?"""
    ids = [row[:length].tolist() for row, length in zip(batch.completion_ids, batch.lengths, strict=True)]
    return span_credit(replace(batch, criteria=permuted(batch.criteria, ids)), 0.0, with_outcome=False)


def permuted(spans: Criteria, completion_ids: Sequence[list[int]]) -> Criteria:
    """The criteria, each with the place of another one of its completion, which are its tokens."""
    order = torch.stack(list(map(_permutation, spans.rewards, completion_ids)))
    index = order[:, :, None].expand_as(spans.starts)
    return spans._replace(starts=spans.starts.gather(1, index), ends=spans.ends.gather(1, index))


def _permutation(rewards: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """A permutation of the criteria that a completion was judged by, the same when a step is repeated, `(K,)`."""
    generator = torch.Generator().manual_seed(sum(place * token for place, token in enumerate(ids, 1)))
    judged = rewards.isfinite().nonzero().flatten()
    order = torch.arange(len(rewards))
    order[judged] = judged[torch.randperm(len(judged), generator=generator)]
    return order


def oracle(batch: Batch) -> torch.Tensor:
    """
    TEMPO with true knowledge in place of prefixes, for the kinds [`KNOWN`]; GRPO for the others.

    The value after t tokens is the worst of the group's outcomes once a comma has been written, else the mean outcome
    of the completions that are still without one, or that ended without.
    """
    advantages = batch.advantages.nan_to_num(0.0)[:, None].repeat(1, batch.completion_ids.shape[1]).double()
    for begin in range(0, len(advantages), batch.num_generations):
        group = slice(begin, begin + batch.num_generations)
        if batch.columns["kind"][begin] in KNOWN:
            advantages[group] += _known_td(batch, group)
    return advantages.float()


def _known_td(batch: Batch, group: slice) -> torch.Tensor:
    """Changes of the true value at each token, float64 (G, T)."""
    rows, width = range(group.start, group.stop), batch.completion_ids.shape[1]
    broken = torch.tensor([_first_break(batch, row) for row in rows])
    outcome = batch.advantages[group].nan_to_num(0.0).double()
    return td_errors(hopeful_values(broken, outcome, width), batch.lengths[group])


def _first_break(batch: Batch, row: int) -> int:
    """Index of the token that broke the instruction; the width of the batch if none did."""
    ids = batch.completion_ids[row, : batch.lengths[row]].tolist()
    pieces = without_end(token_pieces(_tokenizer(), ids))
    given = (batch.columns[name][row] for name in ("kind", "words", "number"))
    place = decisive_token(pieces, *given)
    return place if place < len(pieces) else batch.completion_ids.shape[1]


@cache
def _tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(language_model().path)
