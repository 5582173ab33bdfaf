"""Steps that a delimiter cuts turns into: each ends with the token whose text completes the delimiter."""

import re
from typing import Any

import torch

from tempo_trl.credit.turns import steps_of
from tempo_trl.runs.token_places import TokenTexts


def delimited_steps(tokenizer: Any, completion_ids: torch.Tensor, turns: torch.Tensor, delimiter: str) -> torch.Tensor:
    """
    The step of each token, `(B, T)`, int64: its turn, or what the delimiter cuts its turn into.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The tokenizer.
        completion_ids (`torch.Tensor` of shape `(B, T)`, integer):
            Token ids.
        turns (`torch.Tensor` of shape `(B, T)`, int64):
            Turn of each token; -1 for tokens of tools and environments and for padding.
        delimiter (`str`):
            Text that ends a step.
    """
    texts, special = TokenTexts(tokenizer), _special_ids(tokenizer)
    ends = torch.zeros(turns.shape, dtype=torch.bool)
    for row, of_row in enumerate(turns):
        for turn in of_row[of_row >= 0].unique():
            place = (of_row == turn).nonzero().flatten()
            ids = completion_ids[row, place].tolist()
            last = max((t for t, token in enumerate(ids) if token not in special), default=0)
            text = texts(ids)
            completing = (
                text.tokens(m.end() - 1, m.end())[1] - 1 for m in re.finditer(re.escape(delimiter), text.text)
            )
            ends[row, place[[t for t in completing if t < last]]] = True  # an end before EOS alone cuts nothing
    return steps_of(turns, ends)


def _special_ids(tokenizer: Any) -> set[int]:
    """Tokens without text: `all_special_ids` are those with a name, such as `eos_token`, and not all."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
