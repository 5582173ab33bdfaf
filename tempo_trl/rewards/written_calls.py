"""Calls as a text has them: between tags as JSON, between tags in another form, or as name and arguments in a row.

    call   {"name": "weather", "arguments": {"city": "Rome"}}
    JSON   <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>
    tags   <tool_call><function=weather><parameter=city>Rome</parameter></function></tool_call>
    a row  weather(city="Rome")

A call that TRL parsed is looked for by what it says. Where TRL parsed none, the tags alone tell a call.
"""

import json
import re
from contextlib import suppress
from itertools import zip_longest
from typing import Any, NamedTuple

OPEN, CLOSE = "<tool_call>", "</tool_call>"
TAG = re.compile("</?(?:think|tool_call)>")
_TAGGED = re.compile(f"{OPEN}(?P<body>.*?)(?:{CLOSE}|(?={OPEN})|\\Z)", re.DOTALL)


class Written(NamedTuple):
    """Where a call stands in a text: all of it, what is between its tags, and whether that is JSON."""

    place: tuple[int, int]
    body: tuple[int, int]
    is_json: bool = False


def _called(call: Any) -> tuple[str, dict]:
    """Name and arguments of a call, which a server gives as JSON text; empty if it is malformed."""
    function = call.get("function", call) if isinstance(call, dict) else None
    name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return name if isinstance(name, str) else "", arguments if isinstance(arguments, dict) else {}


def call_json(call: Any) -> str:
    """JSON of a call's name and arguments."""
    name, arguments = _called(call)
    return json.dumps({"name": name, "arguments": arguments}, default=str)


def find_call(call: Any, text: str, begin: int) -> Written | None:
    """The next one between tags that says a call which TRL parsed, else its name and arguments; None without any."""
    name, arguments = _called(call)
    keys = [*map(str, arguments)]
    for tagged in _TAGGED.finditer(text, begin):
        is_json = _is_said(name, keys, tagged["body"])
        if is_json is not None:
            return Written(tagged.span(), tagged.span("body"), is_json)
    with suppress(RecursionError):  # nested so deep that no reference is
        place = _in_a_row([{name}, *_pieces(arguments)], text, begin) if name else None
        return place and Written(place, place)
    return None


def _is_said(name: str, keys: list[str], body: str) -> bool | None:
    """Whether a call stands between tags as JSON; False if in another form; None if it is another call."""
    try:
        written = _called(json.loads(body))
    except (ValueError, RecursionError):
        begins = name and name in "".join(body.split(maxsplit=1)[:1])  # its first word is the name, or has it in a tag
        return False if begins and _in_a_row([{name}, *({key} for key in keys)], body, 0) else None
    return True if (name, keys) == (written[0], [*written[1]]) else None


def _pieces(value: Any) -> list[set[str]]:
    """The spellings of the keys and values of a call's arguments, in order."""
    match value:
        case dict():
            return [piece for key, each in value.items() for piece in ({str(key)}, *_pieces(each))]
        case list():
            return [piece for each in value for piece in _pieces(each)]
        case str():
            return [{value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}]
    return [{str(value), "null" if value is None else str(value).lower()}]


def _in_a_row(pieces: list[set[str]], text: str, begin: int) -> tuple[int, int] | None:
    """
    Where a text has pieces one after the other, each in one of its spellings: the shortest stretch up to where the
    last of them comes first.
    """
    end = begin
    for spellings in pieces:
        found = [(start, start + len(each)) for each in spellings if (start := text.find(each, end)) >= 0]
        if not found:
            return None
        end = min(found)[1]
    start = end
    for spellings in reversed(pieces):
        start = max(text.rfind(each, begin, start) for each in spellings)
    return start, end


def tagged_calls(text: str, is_thought_over: bool) -> list[tuple[int, int, int, int | None, bool]]:
    """
    The calls between tags outside of thoughts: start, begin and end of what is between the tags, end (None if it is
    that of the text), and whether the closing tag ended it, or another opening tag.
    """
    calls, said, opened, is_thought, last = [], is_thought_over, None, False, text.rfind("</think>")
    tags = [*TAG.finditer(text)]
    for tag, following in zip_longest(tags, tags[1:]):
        is_argument = opened is not None and following is not None and following[0] == CLOSE
        if is_thought or (opened is None and tag[0] == "<think>" and (not said or tag.end() <= last)):
            is_thought = tag[0] != "</think>"
            said = said or not is_thought
        elif tag[0] == "</think>" and not said and not is_argument:  # the prompt opened the thought
            calls, opened, said = [], None, True
        elif tag[0] in (OPEN, CLOSE):
            if opened is not None:
                calls.append((*opened, *tag.span(), tag[0] == CLOSE))
            opened = tag.span() if tag[0] == OPEN else None
    return calls if opened is None else [*calls, (*opened, len(text), None, False)]
