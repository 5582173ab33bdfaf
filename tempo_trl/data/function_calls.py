r"""Function calls to train on: about 1,900 requests, each with tools to choose from and the calls that answer it.

https://huggingface.co/datasets/NousResearch/hermes-function-calling-v1, config `func_calling_singleturn`, one row of
its only split (not loaded here: rows of the same form were):

    id             753d8365-0e54-43b1-9514-3f9b819fd31c
    conversations  [{"from": "system", "value": "You are a function calling AI model. ... <tools>[...]</tools> ..."},
                    {"from": "human", "value": "I'm planning a kayaking trip and looking to book flights ..."},
                    {"from": "gpt", "value": "<tool_call>\n{'arguments': {'departure_city': 'Los Angeles', ...},
                     'name': 'search_flights'}\n</tool_call>"}]
    tools          [{"type": "function", "function": {"name": "search_flights", "description": ..., ...}}]

Calls are JSON or, as here, Python's literals. The system message asks for JSON instead, in the words of Qwen3's chat
template. Rows whose first answer has no calls, or calls that cannot be read, are left out.
"""

import ast
import json
import re
from typing import Any

from tempo_trl.data.cells import cell, objects

SYSTEM_PROMPT = """\
You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def tagged(calls: list[dict]) -> str:
    """Calls as Qwen and Hermes write them: each as JSON between tags, on lines of its own."""
    return "\n".join(f"<tool_call>\n{json.dumps(each)}\n</tool_call>" for each in calls)


def to_row(row: dict) -> dict | None:
    """A request with its tools in the system message, and the expected calls as JSON; None without such calls."""
    calls = _calls(_said(row, "gpt"))
    if not calls:
        return None
    tools = "\n".join(json.dumps(tool) for tool in objects(row, "tools", "a list of tools, or its JSON", _read))
    words = {"question": _said(row, "human").strip(), "system_prompt": SYSTEM_PROMPT.format(tools=tools)}
    return {"solution": tagged(calls), "calls": json.dumps(calls), **words}


def _said(row: dict, speaker: str) -> str:
    """What a speaker says first."""
    expected = f"a list of turns with `from` and `value`, one of them from {speaker}"
    turns = objects(row, "conversations", expected, _read)
    said = [turn.get("value") for turn in turns if turn.get("from") == speaker]
    cell(row, "conversations", expected, bool(said) and isinstance(said[0], str))
    return said[0]


def _calls(answer: str) -> list[dict]:
    """The calls of an answer; none if one of them cannot be read."""
    calls = []
    for call in _CALL.findall(answer):
        match _read(call):
            case {"name": str(name), "arguments": dict(arguments)} if name:
                calls.append({"name": name, "arguments": arguments})
            case _:
                return []
    return calls


def _read(text: str) -> Any:
    """The value of a text in JSON or in Python's literals; None if it has neither, or JSON has no such value."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
            json.dumps(value, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return value
    return None
