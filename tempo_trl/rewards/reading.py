"""One reading of a completion: thoughts, what was said, each call and each tool's answer, with their characters.

    text     <think>so</think>Let me see.<tool_call>{"name": "f", "arguments": {}}</tool_call><|im_end|>...
    message  {"reasoning_content": "so", "content": "Let me see.", "tool_calls": [...]}, then {"role": "tool", ...}

    thought  `so</think>`
    content  `Let me see.`
    call     `<tool_call>...</tool_call>`
    heard    what the tool answered

TRL parsed the messages, so they say what is a thought and what is a call. The text says where that stands. A message
that TRL left whole is read here: its thought ends at the last `</think>`, behind which `<think>` is text, and its
calls are what stands between `<tool_call>` and `</tool_call>` outside of thoughts. Each part of a message is looked
for behind the one before, in the message's turn if the text knows its turns, as in span credit. So nothing that a tool
says is taken for the model's.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tempo_trl.rewards.written_calls import CLOSE, OPEN, TAG, call_json, find_call, tagged_calls

_THOUGHT_END = re.compile(r"\s*</think>")
_BRACKETED = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{1,32}\]")
# Special tokens at the end of a text that comes without messages.
_SPECIAL = (
    r"<[|｜][^<>|｜\s]{1,64}[|｜]>|</?s>|<(?:bos|eos|pad|unk|(?:start|end)_of_turn|turn\|)>|\[(?:BOS|EOS|PAD|SEP)\]"
)


class SampledText(str):
    """
    The text of a completion that knows what the policy said: `turns` are the characters of each of its turns, from the
    first to the one after the last. Between two turns stand answers of tools and what the chat template adds.
    """

    turns: list[tuple[int, int]]

    def __new__(cls, text: str, turns: list[tuple[int, int]]):
        made = super().__new__(cls, text)
        made.turns = turns
        return made


class Segment(NamedTuple):
    """
    A part of a completion.

    Args:
        kind: `"thought"`, `"content"`, `"call"` or `"heard"` (what others said). An answer that is a thought did not
            end.
        said: Its characters without special tokens; of a call, what is between the tags.
        at: Where each character of `said`, and its end, stands in the completion's text; None if it is not there.
        start, end: Its place in the text, with tags and the special tokens behind it; None for both without one.
        is_closed: Whether a thought or a call came to its end.
        parsed: JSON text of the call that TRL parsed; None if TRL parsed none.
        is_json: Whether a call is written as JSON of a name and arguments, or should be.
    """

    kind: str
    said: str
    at: Sequence[int] | None
    start: int | None = None
    end: int | None = None
    is_closed: bool = True
    parsed: str | None = None
    is_json: bool = True

    def span(self, start: int | None, end: int | None) -> tuple[int, int] | tuple[None, None]:
        """
        Characters `start` to `end` of `said` as characters of the text, the last one excluded.

        An `end` of None is the end of the segment. A place that begins after its last character is this character.
        None for both if `start` is None, or the text does not have the segment.
        """
        if start is None or self.at is None or not self.end:
            return None, None
        first = min(self.at[min(start, len(self.said))], self.end - 1)
        return first, max(first + 1, self.end if end is None else min(self.at[end - 1] + 1, self.end))


class Reading(NamedTuple):
    """
    A completion.

    Args:
        segments: Its parts in order. What TRL left in the content stays in it: a call that it could not read is a
            segment of its own, too.
        length: Length of the text, and that without the special tokens at its end.
    """

    segments: list[Segment]
    length: tuple[int, int]

    @property
    def answer(self) -> Segment:
        """What the last message of the assistant says; a thought if that did not end."""
        said = [
            part for part in self.segments if part.kind == "content" or not (part.is_closed or part.kind == "call")
        ]
        return said[-1] if said else Segment("content", "", [0], 0, self.length[0])

    @property
    def calls(self) -> list[Segment]:
        return [part for part in self.segments if part.kind == "call"]


def read_completion(text: str, completion: list[dict] | str | None = None) -> Reading:
    """
    Read a completion.

    Args:
        text (`str`): The completion with its special tokens, a [`SampledText`] if its turns are known.
        completion (`list[dict]` or `str`, *optional*):
            The completion as TRL passes it. By default, the text without the special tokens at its end.
    """
    said = text[: _body_length(text, _SPECIAL)] if completion is None else completion
    messages = [{"content": said}] if isinstance(said, str) else said
    special = _special(text, messages)
    end = _body_length(text, _SPECIAL if completion is None else _any_of(special))
    reader, turns = _Reader(text, special, end), _turns(text, messages)
    for index, (message, turn) in enumerate(zip(messages, turns, strict=True), 1):
        reader.read(message, turn, is_last=index == len(messages))
    return Reading(_ended(reader.segments, len(text)), (len(text), end))


def readings(texts: list[str], completions: list | None) -> list[Reading]:
    """The [`Reading`] of each completion. `completions` may be left out."""
    completions = [None] * len(texts) if completions is None else completions
    return [read_completion(*row) for row in zip(texts, completions, strict=True)]


def _turns(text: str, messages: list[dict]) -> list[tuple[int, int] | None]:
    """Of each message the characters in which it is looked for, as far as they are known."""
    is_own = [message.get("role", "assistant") == "assistant" for message in messages]
    own, found, turn = getattr(text, "turns", []), [], 0
    if len(own) != sum(is_own):
        return [None] * len(messages)
    edges = [0, *chain(*own), len(text)]
    for is_policys in is_own:
        found.append(own[turn] if is_policys else (edges[2 * turn], edges[2 * turn + 1]))
        turn += is_policys
    return found


def rendered(message: dict) -> str:
    """A message of the assistant as text, with its thought and its calls between tags."""
    thought = _thought(message)
    return (f"<think>{thought}</think>" if thought else "") + _behind_thought(message)


def _behind_thought(message: dict) -> str:
    calls = (f"{OPEN}{call_json(call)}{CLOSE}" for call in message.get("tool_calls") or [])
    return "".join([content_of(message), *calls])


def _texts(message: dict) -> list[str]:
    """The texts of a message's content, which may be a list of parts."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def content_of(message: dict) -> str:
    """The text of a message's content."""
    return "".join(_texts(message))


def _thought(message: dict) -> str:
    thought = message.get("reasoning_content") or message.get("thinking")
    return thought.strip() if isinstance(thought, str) else ""


def _special(text: str, messages: list[dict]) -> list[str]:
    """The special tokens: words in brackets that a text has, and no message."""
    said = "\n".join(_thought(each) + _behind_thought(each) for each in messages)
    return [word for word in set(_BRACKETED.findall(text)) if word not in said]


def _any_of(words: list[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"


def _body_length(text: str, special: str) -> int:
    """Length of a text without special tokens, and white space between them, at its end."""
    length = len(text)
    for start, end in reversed([match.span() for match in re.finditer(special, text)]):
        if text[end:length].strip():
            break
        length = start
    return length


def _ended(segments: list[Segment], length: int) -> list[Segment]:
    """Segments of which each that has no end yet ends where another one begins behind it."""

    def end(part: Segment) -> int:
        others = (other.start for other in segments if other is not part and other.start is not None)
        return min((start for start in others if start >= max(part.at[-1], 1)), default=length)

    return [part._replace(end=end(part)) if part.end is None and part.at else part for part in segments]


class _Reader:
    """Finds the parts of messages in a text, each behind the one before."""

    def __init__(self, text: str, special: list[str], body_length: int):
        self.whole, self.whole_body, self.segments = text, body_length, []
        self.text, self.body_length, self.cursor = text, body_length, 0  # up to the end of a turn, if it is known
        self.special = _any_of(special)
        self.silent = _any_of([word for word in special if not TAG.fullmatch(word)])
        self.kept, self.index = _kept(text, rf"\s+|{self.special}")

    def read(self, message: dict, turn: tuple[int, int] | None, is_last: bool) -> None:
        """Read a message, in the characters of its turn if these are known."""
        if turn is None:
            return self._read(message, is_last)
        before, self.text = len(self.segments), self.whole[: turn[1]]
        self.cursor, self.body_length = max(self.cursor, turn[0]), min(self.whole_body, turn[1])
        self._read(message, is_last)
        self.segments[before:] = _ended(self.segments[before:], turn[1])

    def _read(self, message: dict, is_last: bool) -> None:
        if message.get("role", "assistant") != "assistant":
            for said in _texts(message):
                self._hear(said.strip())
            return
        thought, calls, begin = _thought(message), message.get("tool_calls") or [], self.cursor
        if thought:
            begin = self._think(thought)
            if begin == len(self.text) and not calls and not content_of(message):
                return  # it did not end
        if calls:
            said = content_of(message)
            first = self._find(said, begin, len(self.text))
            if first and self._is_all(said, begin, first[-1]):
                self.cursor = first[-1]  # the words of a call are not those of what was said before it
            self._say_beside(said, begin, [self._call(call) for call in calls])
        else:
            self._say(content_of(message), bool(thought), is_last)

    def _hear(self, said: str) -> None:
        """What a tool or a user said, which a template may have written as JSON."""
        forms = dict.fromkeys((said, json.dumps(said)[1:-1], json.dumps(said, ensure_ascii=False)[1:-1]))
        found = [(at, form) for form in forms if (at := self._find(form, self.cursor, len(self.text)))]
        if found:  # the model may say the same later, in another form
            at, form = min(found, key=lambda each: each[0][0])
            self.segments.append(Segment("heard", said, at if form == said else None, at[0], at[-1]))
            self.cursor = at[-1]

    def _think(self, said: str) -> int:
        at = self._find(said, self.cursor, len(self.text))
        if at:
            closed = _THOUGHT_END.match(self.text, at[-1])
            self.cursor = closed.end() if closed else at[-1]
        place = (at[0], self.cursor) if at else (None, None)
        self.segments.append(Segment("thought", said, at, *place, is_closed=self.cursor < len(self.text)))
        return self.cursor

    def _say(self, said: str, is_thought_over: bool, is_last: bool) -> None:
        """A message that is read here: a thought, then what was said, with calls in it."""
        at = self._find(said, self.cursor, len(self.text), is_last)
        if not said.strip():
            at = [max(self.body_length, self.cursor) if is_last else self.cursor] * (len(said) + 1)
        body, index = self._body(at) if at else (said, range(len(said) + 1))
        over = 0 if is_thought_over or "</think>" not in body else body.rindex("</think>") + len("</think>")
        is_open = not (is_thought_over or over) and "<think>" in body
        first = bisect_left(at or index, index[over], hi=len(said))
        if over:
            self.segments.append(
                Segment("thought", said[:first], at and at[: first + 1], at and index[0], at and index[over])
            )
        for start, inner, inner_end, end, is_closed in tagged_calls(body, is_thought_over):
            stop = len(self.text) if end is None and is_last else index[len(body) if end is None else end]
            place = (index[start], stop) if at else (None, None)
            inside = at and index[inner : inner_end + 1]
            self.segments.append(Segment("call", body[inner:inner_end], inside, *place, is_closed))
        kind, start = "thought" if is_open else "content", at and at[first]
        start = self.cursor if at and not self.text[self.cursor : start].strip() else start  # space behind a thought
        self.segments.append(Segment(kind, said[first:], at and at[first:], start, None, not is_open))
        self.cursor = max(self.cursor, index[-1]) if at else self.cursor

    def _body(self, at: Sequence[int]) -> tuple[str, Sequence[int]]:
        """
        A message with tags that are special tokens, without the others, and the index of each character in the text.
        """
        behind = re.compile(rf"(?:\s|{self.special})*").match(self.text, at[-1]).end()
        begin = self.cursor + _body_length(self.text[self.cursor : at[0]], self.special)
        body, kept = _kept(self.text[begin:behind], self.silent)
        return body, (begin + np.append(kept, kept[-1] + 1 if kept.size else 0)).tolist()

    def _say_beside(self, said: str, begin: int, calls: list[Segment]) -> None:
        """What TRL took for the content of a message with calls: the text between two calls, if one is just that."""
        edges = [edge for call in calls if call.end is not None for edge in (call.start, call.end)]
        edges = [begin, *edges, max(self.body_length, self.cursor)]
        gaps = sorted(zip(edges[::2], edges[1::2], strict=True), key=lambda gap: not self._is_all(said, *gap))
        found = filter(None, (self._find(said, *gap) for gap in gaps))
        at = next(found, None) if said.strip() else [self.cursor] * (len(said) + 1)
        self.segments += [Segment("content", said, at, at and at[0]), *calls]
        self.cursor = max(self.cursor, at[-1]) if at else self.cursor

    def _call(self, call: Any) -> Segment:
        """A call that TRL parsed."""
        parsed, written = call_json(call), find_call(call, self.text, self.cursor)
        if written is None:
            return Segment("call", "", None, parsed=parsed)
        self.cursor = written.place[1]
        start, end = written.body
        at = range(start, end + 1)
        return Segment("call", self.text[start:end], at, *written.place, parsed=parsed, is_json=written.is_json)

    def _is_all(self, said: str, begin: int, end: int) -> bool:
        return self.kept[slice(*np.searchsorted(self.index, (begin, end)))] == "".join(said.split())

    def _find(self, said: str, begin: int, end: int, is_last: bool = False) -> Sequence[int] | None:
        """
        Characters of a part between two indices of the text, the first or the last ones that are the part up to space
        and special tokens.
        """
        own, ours = _kept(said, r"\s+")
        low, high = np.searchsorted(self.index, (begin, end))
        at = (str.rfind if is_last else str.find)(self.kept, own, low, high) if own else -1
        if at < 0:
            return None
        places = self.index[at : at + len(own)]
        start = int(places[0] - ours[0])
        if start >= begin and self.text.startswith(said, start):
            return range(start, start + len(said) + 1)
        ranks = np.searchsorted(ours, np.arange(len(said) + 1))
        return np.append(places, places[-1] + 1)[ranks].tolist()


def _kept(text: str, ignored: str) -> tuple[str, np.ndarray]:
    """A text without what is ignored, and the index of each character that is left."""
    edges = np.array([0, *chain.from_iterable(match.span() for match in re.finditer(ignored, text)), len(text)])
    begins, lengths = edges[::2], edges[1::2] - edges[::2]
    index = np.arange(lengths.sum()) + np.repeat(begins - (lengths.cumsum() - lengths), lengths)
    return re.sub(ignored, "", text), index
