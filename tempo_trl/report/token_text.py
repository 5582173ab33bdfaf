"""Tokens as people read them: the text of a token by itself, and of a run of tokens that share a character."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby

BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte that is no character by itself, as sentencepiece spells it
# What would not be seen, or would turn the text around it: controls, halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")


def token_pieces(tokenizer, token_ids: Sequence[int]) -> list[str]:
    """
    Text of each token by itself, spaces in front of it kept.

    A token that holds only some of the bytes of a character has them spelled out, `<0xF0><0x9F>`; [`readable`] joins
    them with those of the tokens around it. A special token has its name.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The tokenizer; of a processor, its `tokenizer`.
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
    if raw.startswith("▁") and not text.startswith(" "):
        return " " + text  # sentencepiece drops the space in front of what it takes for a beginning
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


def readable(pieces: Sequence[str]) -> list[str]:
    """
    Pieces in a row with the characters that their bytes make together: the first token of a character has it, and the
    others have the empty text. Bytes that make no character stay spelled out. As many as were given.
    """
    read = list(pieces)
    for spelled, run in groupby(range(len(pieces)), key=lambda i: bool(pieces[i]) and not BYTE.sub("", pieces[i])):
        if spelled:
            places = list(run)
            read[places[0] : places[-1] + 1] = _joined([pieces[i] for i in places])
    return read


def _joined(spelled: list[str]) -> list[str]:
    """Texts of neighbouring pieces that are spelled in bytes."""
    owner = [i for i, piece in enumerate(spelled) for _ in BYTE.findall(piece)]
    raw = bytes(int(byte, 16) for piece in spelled for byte in BYTE.findall(piece))
    texts, at = [""] * len(spelled), 0
    for character in raw.decode(errors="surrogateescape"):
        undecodable = "\udc80" <= character <= "\udcff"
        texts[owner[at]] += f"<0x{raw[at]:02X}>" if undecodable else character
        at += 1 if undecodable else len(character.encode())
    return texts


def visible(text: str) -> str:
    """The text with a sign in place of each character that is not seen or that turns the order of others around."""
    return _UNSEEN.sub(_sign, text)


def _sign(match: re.Match) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"


def one_line(text: str) -> str:
    """[`visible`] text on one line, with a sign for each line break and tab, and for spaces at its ends."""
    text = visible(text.replace("\r\n", "\n")).replace("\n", "⏎").replace("\t", "⇥")
    inner = text.strip(" ")
    left = len(text) - len(text.lstrip(" ")) if inner else len(text)
    return "␣" * left + inner + "␣" * (len(text) - left - len(inner) if inner else 0)


def label_of(token: str) -> str:
    """A token's text as a table or a picture names it."""
    return one_line(token) or "·"


def cut(text: str, length: int) -> str:
    """The beginning of a text, with a sign where it was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def shortened(text: str, longest: int) -> str:
    """The beginning and the end of a text, and how much lies between, if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    head, tail = longest * 2 // 3, longest // 6
    return f"{text[:head]} …{len(text) - head - tail:,} characters… {text[-tail:]}"


def prompt_text(prompt: str | list[dict]) -> str:
    """A prompt as one text: of messages a line each, `role: content`, and of a content in parts what is text."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {_content_text(message.get('content'))}" for message in prompt)


def _content_text(content: str | list[dict] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return " ".join(part.get("text") or f"[{part.get('type', '?')}]" for part in content)
