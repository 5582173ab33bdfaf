"""Find the tool calls of a completion: what the model wrote between tags, and what TRL parsed.

Calls are what stands between Qwen's and Hermes' tags, as TRL's parser finds them. The first `</tool_call>` ends a
call, in a string, too; `</think>` does not. TRL takes a whole completion as plain text if one of its calls cannot be
read; here the others are read nevertheless. Templates such as Qwen3.5's write no JSON between the tags:

    <tool_call>
    <function=weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

There the calls that TRL parsed are written as JSON again, judged as that, and the places are those of these tags.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from tempo_trl.rewards.answer_place import Judged

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile("</?(?:think|tool_call)>")
_ARGUMENT = re.compile(r'arguments(?:\.(?P<plain>[^.\[]+)|\["(?P<quoted>[^"\\]+)"\])')  # the key in a criterion's path


class Call(NamedTuple):
    """
    A call of an answer, in characters of it.

    Args:
        start: Where its opening tag begins.
        body: Where the opening tag ends.
        body_end: Where the tag that ended it begins.
        end: Where that tag ends; None for both at the end of an answer that did not close it.
        is_closed: Whether that tag is the closing tag. Another opening tag ends a call as well.
    """

    start: int
    body: int
    body_end: int
    end: int | None
    is_closed: bool


def calls_of(answer: str) -> tuple[list[Call], int]:
    """The calls of an answer, and the index at which its last thought ended; 0 if it had none or did not end."""
    calls, said, opened, thought = [], 0, None, None
    tags = [*_TAG.finditer(answer)]
    for tag, following in zip_longest(tags, tags[1:]):
        is_argument = opened is not None and following is not None and following[0] == CLOSE
        if thought is not None or (opened is None and tag[0] == "<think>"):
            thought = None if tag[0] == "</think>" else tag.start()
            said = tag.end() if thought is None else said
        elif tag[0] == "</think>" and not said and not is_argument:  # the prompt opened the thought
            calls, opened, said = [], None, tag.end()
        elif tag[0] in (OPEN, CLOSE):
            if opened is not None:
                calls.append(Call(*opened, *tag.span(), tag[0] == CLOSE))
            opened = tag.span() if tag[0] == OPEN else None
    if opened is not None:
        calls.append(Call(*opened, len(answer), None, False))
    return calls, 0 if thought is not None else said


def parsed_calls(completion: list[dict] | str | None) -> list[Any]:
    """The calls that TRL parsed from a completion, all turns of it."""
    messages = completion if isinstance(completion, list) else []
    return [call for message in messages for call in message.get("tool_calls") or []]


def written_calls(completion: list[dict]) -> str:
    """The assistant's messages with their parsed calls between tags."""
    return "\n".join(
        "".join([_content(message), *(f"{OPEN}{_json(call)}{CLOSE}" for call in parsed_calls([message]))])
        for message in _said(completion)
    )


def _said(completion: list[dict]) -> list[dict]:
    return [message for message in completion if message.get("role", "assistant") == "assistant"]


def _content(message: dict) -> str:
    return message["content"] if isinstance(message.get("content"), str) else ""


def _json(call: Any) -> str:
    """The JSON text of a parsed call; empty if it has none."""
    try:
        return json.dumps(call.get("function", call) if isinstance(call, dict) else call)
    except (TypeError, ValueError, RecursionError):
        return ""


def without_tool_answers(answer: str, completion: list[dict] | str | None) -> str:
    """An answer of the same length, with spaces for what tools said with tags in it."""
    at = 0
    for message in completion if isinstance(completion, list) else []:
        said = _content(message).strip() if message.get("role") == "tool" else ""
        found = answer.find(said, at) if _TAG.search(said) else -1
        if found >= 0:
            at = found + len(said)
            answer = answer[:found] + " " * len(said) + answer[at:]
    return answer


def are_written_elsewhere(answer: str, completion: list[dict] | str | None) -> bool:
    """Whether the messages have calls that the answer does not, or has in another form than JSON."""
    parsed = len(parsed_calls(completion))
    if not parsed:
        return False
    written = sum(_content(message).count(OPEN) for message in _said(completion))
    calls, _ = calls_of(answer)
    is_json = all(answer[call.body : call.body_end].lstrip()[:1] in ("{", "") for call in calls)
    return parsed + written > answer.count(OPEN) or (not is_json and parsed >= len(calls))


def placed(judged: Iterable[Judged], said: str, answer: str) -> Iterator[Judged]:
    """
    Criteria of [`written_calls`], `said`, with their places in an answer that has as many calls; else without places.

    A name stands in its `<function=...>`, an argument in its `<parameter=...>`, one that is missing in `</function>`,
    and everything else in the whole call, as all of it without such tags.
    """
    theirs, ours = calls_of(said)[0], calls_of(answer)[0]
    pairs = list(zip(theirs, ours, strict=True)) if len(theirs) == len(ours) else []
    for name, reward, start, _ in judged:
        found = [call for own, call in pairs if start is not None and own.start <= start < (own.end or len(said) + 1)]
        yield name, reward, *(_tag_of(name.partition("].")[2], answer, found[0]) if found else (None, None))


def _tag_of(criterion: str, answer: str, call: Call) -> tuple[int, int | None]:
    body, argument = answer[call.body : call.body_end], _ARGUMENT.match(criterion)
    found = re.search("<function=[^>]*>", body) if criterion == "name" else None
    if argument is not None:
        key = re.escape(argument["plain"] or argument["quoted"])
        found = re.search(f"<parameter={key}>.*?</parameter>", body, re.DOTALL) or re.search("</function>", body)
    return (call.start, call.end) if found is None else (call.body + found.start(), call.body + found.end())
