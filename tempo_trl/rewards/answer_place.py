"""Find an answer in the completion's text with special tokens, and its characters there."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import takewhile

from tempo_trl.rewards.boxed import completion_text
from tempo_trl.rewards.span_reward import SpanReward

Judged = tuple[str, float | None, int | None, int | None]  # criterion, reward, start and end in the answer

# What tokenizers use: <|im_end|>, <｜end▁of▁sentence｜>, </s>, <eos>, <end_of_turn>, [EOS].
_SPECIAL = (
    r"<[|｜][^<>|｜\s]{1,64}[|｜]>|</?s>|<(?:bos|eos|pad|unk|(?:start|end)_of_turn|turn\|)>|\[(?:BOS|EOS|PAD|SEP)\]"
)
_SPECIALS = re.compile(_SPECIAL)
_IGNORED = re.compile(rf"\s+|{_SPECIAL}")


class AnswerPlace:
    """
    The answer in a completion's text, and where its characters are.

    An answer is found if the text has it, or has it up to white space and special tokens: decoding may clean up
    spaces, and drops special tokens between words. Otherwise its characters have no place.

    Args:
        text (`str`):
            The completion with its special tokens.
        completion (`list[dict]` or `str`, *optional*):
            The completion as TRL passes it: a conversation, whose last assistant message is the answer, or a string.
            By default, the answer is the text without the special tokens at its end.
    """

    def __init__(self, text: str, completion: list[dict] | str | None = None):
        body = text[: _body_length(text)]
        self.text = text
        self.answer = body if completion is None else completion_text(completion)
        heard = _heard(completion)
        exact = _index(body, self.answer, heard) or _index(text, self.answer, heard)
        self._index = exact or _index_apart(text, self.answer, heard)

    def span(self, start: int | None, end: int | None) -> tuple[int, int] | tuple[None, None]:
        """
        Characters `start` to `end` of the answer as characters of the text, the last one excluded.

        An `end` of None is the end of the text, its special tokens included. A place that begins after the text's last
        character is this character. None for both if `start` is None, the answer was not found, or the text is empty.
        """
        if start is None or self._index is None or not self.text:
            return None, None
        first = min(self._index(min(start, len(self.answer))), len(self.text) - 1)
        return first, len(self.text) if end is None else min(self._index(end - 1) + 1, len(self.text))

    def spans(self, judged: Iterable[Judged]) -> list[SpanReward]:
        """Criteria with their places in the text. Without places, those of one criterion are the same: one is left."""
        return list(dict.fromkeys(SpanReward(name, reward, *self.span(*place)) for name, reward, *place in judged))


def answer_places(texts: list[str], completions: list | None) -> list[AnswerPlace]:
    """The [`AnswerPlace`] of each completion. `completions` may be left out."""
    completions = [None] * len(texts) if completions is None else completions
    return [AnswerPlace(text, completion) for text, completion in zip(texts, completions, strict=True)]


def _body_length(text: str) -> int:
    """Length of a text without special tokens, and white space between them, at its end."""
    length = len(text)
    for start, end in reversed([match.span() for match in _SPECIALS.finditer(text)]):
        if text[end:length].strip():
            break
        length = start
    return length


def _heard(completion: list[dict] | str | None) -> str:
    """What follows the last assistant message, if a completion ends in a tool's: it may repeat the answer."""
    if completion is None or isinstance(completion, str):
        return ""
    later = takewhile(lambda message: message.get("role", "assistant") != "assistant", reversed(completion))
    return "\n".join(str(message.get("content") or "") for message in later)


def _index(text: str, answer: str, heard: str) -> Callable[[int], int] | None:
    """Maps characters of an answer, and its end, to characters of a text. None if the text does not have it."""
    at = _last(text, answer, heard)
    return None if at < 0 else at.__add__


def _last(text: str, answer: str, heard: str) -> int:
    """Where a text has an answer last, but for the times in what was heard after it; -1 if it has it nowhere."""
    at = len(text)
    for _ in range(1 + heard.count(answer) if answer else 1):
        at = text.rfind(answer, 0, at) if at >= 0 else at
    return at


def _index_apart(text: str, answer: str, heard: str) -> Callable[[int], int] | None:
    """[`_index`] of an answer that the text has up to white space and special tokens."""
    own, theirs = _kept(answer), _kept(text)
    at = _last(*(_IGNORED.sub("", part) for part in (text, answer, heard)))
    if at < 0 or not own:
        return None

    def index(character: int) -> int:
        rank = bisect_left(own, character)
        is_after = rank == len(own)
        return theirs[at + rank - is_after] + is_after

    return index


def _kept(text: str) -> list[int]:
    """Indices of the characters that are neither white space nor in a special token."""
    ignored = {index for match in _IGNORED.finditer(text) for index in range(*match.span())}
    return [index for index in range(len(text)) if index not in ignored]
