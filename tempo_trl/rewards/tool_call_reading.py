"""Find tool calls between Qwen's and Hermes' tags, `<tool_call>` and `</tool_call>`, as TRL's parser finds them.

The first `</tool_call>` ends a call, in a string, too, and what stands in a thought is not a call. TRL takes a whole
completion as plain text if one of its calls cannot be read; here the others are read nevertheless.
"""

import json
import re
from typing import Any, NamedTuple

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile("</?(?:think|tool_call)>")


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
    for tag in _TAG.finditer(answer):
        if thought is not None or (opened is None and tag[0] == "<think>"):
            thought = None if tag[0] == "</think>" else tag.start()
            said = tag.end() if thought is None else said
        elif tag[0] == "</think>" and not said:  # the prompt opened the thought
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
    said = [message for message in completion if message.get("role", "assistant") == "assistant"]
    return "\n".join(
        "".join([_content(message), *(f"{OPEN}{_json(call)}{CLOSE}" for call in parsed_calls([message]))])
        for message in said
    )


def _content(message: dict) -> str:
    return message["content"] if isinstance(message.get("content"), str) else ""


def _json(call: Any) -> str:
    """The JSON text of a parsed call; empty if it has none."""
    try:
        return json.dumps(call.get("function", call) if isinstance(call, dict) else call)
    except (TypeError, ValueError, RecursionError):
        return ""
