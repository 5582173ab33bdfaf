"""Readable text of tokens: of single tokens, and of runs of tokens that share a character."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby, takewhile
from operator import eq

BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte of an incomplete character, as sentencepiece writes it
# Invisible characters, and those that change the direction of text: controls, surrogates.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")


def token_pieces(tokenizer, token_ids: Sequence[int]) -> list[str]:
    """
    Text of each token by itself, with leading spaces.

    A token with an incomplete character shows its bytes, `<0xF0><0x9F>`; [`readable`] joins them with those of the
    neighbouring tokens. A special token shows its name.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The tokenizer; for a processor, its `tokenizer`.
        token_ids (`Sequence[int]` of length T):
            Token ids.

    Returns:
        `list[str]` of length T.
    """
    known = {token_id: _piece(tokenizer, token_id) for token_id in dict.fromkeys(token_ids)}
    return [known[token_id] for token_id in token_ids]


def _piece(tokenizer, token_id: int) -> str:
    raw = tokenizer.convert_ids_to_tokens(token_id)
    if raw is None:
        return f"<{token_id}>"  # the model's vocabulary may be larger than the tokenizer's
    if isinstance(raw, bytes):
        return _text_or_bytes(raw)
    if BYTE.fullmatch(raw):
        return _text_or_bytes(bytes([int(raw[3:5], 16)]))
    text = tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if "\ufffd" in text and all(character in _byte_of() for character in raw):
        return _text_or_bytes(bytes(_byte_of()[character] for character in raw))
    spaced = raw.replace("▁", " ")
    if raw.startswith("▁") and spaced.lstrip(" ") == text.lstrip(" "):
        return spaced  # sentencepiece drops leading spaces of what it takes for the beginning of a text
    return text or raw


@cache
def _byte_of() -> dict[str, int]:
    """The byte behind each character of the alphabet of byte-level BPE."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # seconds, and no report needs it

    return {character: byte for byte, character in bytes_to_unicode().items()}


def _text_or_bytes(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in raw)


def token_bytes(tokenizer, token_ids: Sequence[int]) -> list[bytes]:
    """Bytes of the text of each token by itself, UTF-8; those of a token with an incomplete character are its own."""
    return [_raw(piece) if _is_spelled(piece) else piece.encode() for piece in token_pieces(tokenizer, token_ids)]


def _is_spelled(piece: str) -> bool:
    """Whether a piece is written as bytes."""
    return bool(piece) and not BYTE.sub("", piece)


def _raw(spelled: str) -> bytes:
    return bytes(int(byte, 16) for byte in BYTE.findall(spelled))


def readable(pieces: Sequence[str]) -> list[str]:
    """
    Join the bytes of neighbouring pieces to characters. The first token of a character gets it, the others get an
    empty text. Bytes that do not form a character are kept. Returns as many pieces as were given.
    """
    read = list(pieces)
    for spelled, run in groupby(range(len(pieces)), key=lambda i: _is_spelled(pieces[i])):
        if spelled:
            places = list(run)
            read[places[0] : places[-1] + 1] = _joined([pieces[i] for i in places])
    return read


def _joined(spelled: list[str]) -> list[str]:
    """Texts of neighbouring pieces that are written as bytes."""
    owner = [i for i, piece in enumerate(spelled) for _ in BYTE.findall(piece)]
    raw = _raw("".join(spelled))
    texts, at = [""] * len(spelled), 0
    for character in raw.decode(errors="surrogateescape"):
        undecodable = "\udc80" <= character <= "\udcff"
        texts[owner[at]] += f"<0x{raw[at]:02X}>" if undecodable else character
        at += 1 if undecodable else len(character.encode())
    return texts


def visible(text: str) -> str:
    """
    The text with a symbol for each character that is invisible or changes the direction of text. Line breaks and tabs
    stay.
    """
    return _UNSEEN.sub(_sign, text.replace("\r\n", "\n"))


def _sign(match: re.Match) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def one_line(text: str) -> str:
    """[`visible`] text on one line, with symbols for line breaks, tabs, and spaces at its ends."""
    text = visible(text).replace("\n", "⏎").replace("\t", "⇥")
    return re.sub("^ +| +$", lambda outer: "␣" * len(outer[0]), text)


def around(pieces: Sequence[str], t: int, length: int) -> tuple[str, str]:
    """The last characters before piece t on one line, and the first ones after it."""
    before, after = "".join(pieces[max(0, t - length) : t]), "".join(pieces[t + 1 : t + 1 + length])
    return one_line(before)[-length:], one_line(after)[:length]


def common_length(a: Sequence, b: Sequence) -> int:
    """Number of tokens, or of characters, with which both begin."""
    return sum(takewhile(bool, map(eq, a, b)))


def cut(text: str, length: int) -> str:
    """The beginning of a text, with an ellipsis if it was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def shortened(text: str, longest: int) -> str:
    """The beginning and end of a text with more than `longest` characters, and the number of characters between."""
    if len(text) <= longest:
        return text
    head, tail = longest * 2 // 3, longest // 6
    return f"{text[:head]} …{len(text) - head - tail:,} characters… {text[-tail:]}"
