"""From characters of a completion's text to its tokens."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tempo_trl.runs.token_text import common_length, token_bytes


class TokenPlaces(NamedTuple):
    """
    The text of a completion with its special tokens, and the characters of each of its n tokens.

    Args:
        text (`str`): What `tokenizer.decode` returns; an incomplete character is U+FFFD.
        begins, ends (`np.ndarray` of shape `(n,)`): Token t has the characters `begins[t]` to `ends[t]`, the last one
            excluded. Tokens that share a character have it in common; a token without text has `begins == ends`.
    """

    text: str
    begins: np.ndarray
    ends: np.ndarray

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """
        The tokens that share a character with the characters `start` to `end`: the first one, and the one after the
        last. A place that reaches the end of the text has all tokens that follow, also those without text.
        """
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = len(self.ends) if end >= len(self.text) else int(np.searchsorted(self.begins, end, side="left"))
        return first, last

    def stretches(self, kept: Sequence[int]) -> list[tuple[int, int]]:
        """The characters of each run of tokens that are kept, the last one excluded, by a number for each token."""
        runs = stretches_of(np.asarray(kept, dtype=bool))
        return [(int(self.begins[first]), int(self.ends[last - 1])) for first, last in runs]


def stretches_of(marked: np.ndarray) -> list[list[int]]:
    """`[from, to)` of each run of marked positions."""
    return np.flatnonzero(np.diff(np.pad(marked.astype(int), 1))).reshape(-1, 2).tolist()


class TokenTexts:
    """
    Texts of completions, and the characters of their tokens.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): The tokenizer.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._pieces: dict[int, bytes] = {}  # of the tokens seen so far; none for a token that has no text

    def __call__(self, token_ids: Sequence[int]) -> TokenPlaces:
        """The text of a completion of n tokens."""
        token_ids = [int(token_id) for token_id in token_ids]  # a `rollout_func` may have returned an array
        text = self._decoded(token_ids)
        joined, begins, ends = _characters(self._pieces_of(token_ids))
        dropped = max(0, len(joined) - len(text))  # sentencepiece drops spaces at the beginning of a text
        if joined == " " * dropped + text:
            return TokenPlaces(text, (begins - dropped).clip(min=0), (ends - dropped).clip(min=0))
        whole = common_length(joined, text.partition("\ufffd")[0])
        known = int(np.searchsorted(ends, whole, side="right"))
        return TokenPlaces(text, *_by_prefixes(self._decoded, token_ids, text, begins[:known], ends[:known]))

    def _decoded(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _pieces_of(self, token_ids: Sequence[int]) -> list[bytes]:
        new = [i for i in dict.fromkeys(token_ids) if i not in self._pieces]
        for token_id, piece in zip(new, token_bytes(self._tokenizer, new), strict=True):
            is_silent = piece.strip() and not self._decoded([token_id])  # elsewhere it is shown by its name
            self._pieces[token_id] = b"" if is_silent else piece
        return [self._pieces[i] for i in token_ids]


def _characters(pieces: Sequence[bytes]) -> tuple[str, np.ndarray, np.ndarray]:
    """The joined text of pieces, and the characters of each, as in [`TokenPlaces`]."""
    raw = b"".join(pieces)
    text, is_first = _joined(raw)
    before = np.append(0, np.cumsum(is_first))  # characters that begin before each byte
    stop = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    start = np.append(0, stop[:-1])[: len(stop)]
    begins = np.where(stop > start, before[np.minimum(start + 1, len(raw))] - 1, before[start])
    ends = before[stop]
    # A token without text in the middle of a character has this character as well.
    return text, np.minimum.accumulate(begins[::-1])[::-1], np.maximum.accumulate(ends)


def _joined(raw: bytes) -> tuple[str, np.ndarray]:
    """The text of bytes, with U+FFFD for each incomplete character, and whether a character begins at each byte."""
    is_first = (np.frombuffer(raw, dtype=np.uint8) & 0xC0) != 0x80  # a copy, no view of the bytes
    at = 0
    while at < len(raw):
        try:
            raw[at:].decode()
            break
        except UnicodeDecodeError as error:
            is_first[at + error.start : at + error.end] = False
            is_first[at + error.start] = True
            at += error.end
    return raw.decode(errors="replace"), is_first


def _by_prefixes(
    decoded: Callable[[Sequence[int]], str], token_ids: Sequence[int], text: str, begins: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """
    The characters of each token, from the text of each prefix behind the tokens that are known. Slow: for what has
    another text by itself, such as tokens of WordPiece and bytes that a completion breaks off in.
    """
    begins, ends = begins.tolist(), ends.tolist()
    known = ends[-1] if ends else 0
    for count in range(len(begins) + 1, len(token_ids) + 1):
        prefix = decoded(token_ids[:count])
        shared = common_length(prefix, text)
        begins.append(known)
        known = max(known, shared)  # an incomplete character may change those before it, until it is complete
        ends.append(min(known + (shared < len(prefix)), len(text)))
    return np.array(begins, dtype=np.int64), np.maximum.accumulate(np.array(ends, dtype=np.int64))
