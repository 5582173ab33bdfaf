"""Steps that a delimiter cuts turns into: each ends with the token whose text completes the delimiter."""

import re
from typing import Any

import numpy as np
import torch

from tempo_trl.credit.turns import steps_of
from tempo_trl.runs.token_text import token_bytes

BREAK = b"\xff"  # in no delimiter, because no text has this byte in UTF-8


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
    rows, width = turns.shape
    place = np.flatnonzero(turns.numpy() >= 0)
    token, turn = completion_ids.cpu().numpy().ravel()[place], turns.numpy().ravel()[place]
    turn = np.cumsum(np.diff(place // width, prepend=-1).astype(bool) | np.diff(turn, prepend=-1).astype(bool)) - 1
    completes = _completing(tokenizer, token, turn, delimiter.encode())
    told = np.flatnonzero(~np.isin(token, _special_ids(tokenizer)))  # an end in front of EOS alone cuts nothing
    last = np.full(len(token), -1)  # of each turn: its last token with text
    last[turn[told]] = told  # of several, numpy keeps the last
    ends = np.zeros(rows * width, dtype=bool)
    ends[place[completes[completes < last[turn[completes]]]]] = True
    return steps_of(turns, torch.from_numpy(ends.reshape(rows, width)))


def _special_ids(tokenizer: Any) -> list[int]:
    """Tokens without text: `all_special_ids` are those with a name, such as `eos_token`, and not all."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return sorted({*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)})


def _completing(tokenizer: Any, token: np.ndarray, turn: np.ndarray, delimiter: bytes) -> np.ndarray:
    """Indices of the tokens that complete a delimiter within their turn, where turns are numbered over all rows."""
    known = np.flatnonzero(np.bincount(token)).tolist()
    texts = dict(zip(known, token_bytes(tokenizer, known), strict=True))
    shares = np.zeros(max(known, default=0) + 1, dtype=bool)
    shares[[i for i in known if not set(delimiter).isdisjoint(texts[i])]] = True
    found = np.flatnonzero(shares[token])  # all others have no byte of the delimiter
    apart = (np.diff(found, prepend=-2) > 1) | (np.diff(turn[found], prepend=-1) != 0)
    pieces = [BREAK * cut + texts[i] for cut, i in zip(apart.tolist(), token[found].tolist(), strict=True)]
    return found[completing(pieces, delimiter)]


def completing(pieces: list[bytes], delimiter: bytes) -> np.ndarray:
    """Whether each piece completes an occurrence of the delimiter in the joined text. Occurrences do not overlap."""
    found = [match.end() for match in re.finditer(re.escape(delimiter), b"".join(pieces))]
    completes = np.zeros(len(pieces), dtype=bool)
    completes[np.searchsorted(np.cumsum(list(map(len, pieces))), np.array(found, dtype=np.int64))] = True
    return completes
