"""Span reward function for tool calls: name and arguments of each expected call, with the place of their decision.

text   <tool_call>
       {"name": "weather", "arguments": {"city": "Rome"}}
       </tool_call><|im_end|>
calls  [{"name": "weather", "arguments": {"city": "Paris", "days": 3}}]

criterion                reward  place
calls[0].name            1.0     `"name": "weather"`
calls[0].arguments.city  0.0     `"city": "Rome"`
calls[0].arguments.days  0.0     the first `}`, which closed the arguments without it
calls[0].format          1.0     the call, from tag to tag
calls[0].additional      1.0     both `}`
extra_calls              1.0     `<|im_end|>`, where another call could have begun
"""

import json
import reprlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from tempo_trl.rewards.answer_place import AnswerPlace, Judged
from tempo_trl.rewards.json_reading import Branch, Comparison, Reading, read_json, read_reference, reference_tree
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options
from tempo_trl.rewards.tool_call_reading import (
    Call,
    are_written_elsewhere,
    calls_of,
    placed,
    without_tool_answers,
    written_calls,
)

MAX_EXTRA = 16  # calls more than expected that are read


def tool_call_fields(
    texts: list[str],
    completions: list[list[dict]] | list[str] | None = None,
    *,
    column: str = "calls",
    ordered: bool = True,
    fold: bool = False,
    lists: str = "ordered",
    **columns,
) -> list[list[SpanReward]]:
    """
    Span reward function: compare the tool calls of each completion with expected ones, argument by argument.

    A call is JSON between `<tool_call>` and `</tool_call>`, outside of thoughts. All completions of one reference have
    the same criteria, and each earns 1.0 or 0.0. For the expected call 0, and likewise for the others:

    - `calls[0].name`, and each argument by its path, such as `calls[0].arguments.address.street`: from the first
      character of its key to the end of its value. If it is missing, the bracket that closed its object. `arguments`
      may be missing or null if none are expected;
    - `calls[0].format`, whether the call is one JSON object with nothing else between its tags: the whole call, or all
      from the error to the end of the call. Without a closing tag that is what stands instead;
    - `calls[0].additional`, no keys or arguments beside the reference's: the brackets that close objects and lists, or
      the first additional key with its value. A key that comes again is additional, and its leaves are wrong.

    Whatever an error leaves undecided is 0.0 from there to the end of the call. All criteria of a missing call are 0.0
    at the first character after the last call, or in the whole answer if there is none. `extra_calls`, whether there
    are no more calls than expected, has that first character as its place, too, or each extra call; none if nothing is
    called. Values are compared as in [`~tempo_trl.rewards.json_fields`].

    With TRL's `tools`, completions are messages with parsed `tool_calls`. Where a template writes calls in another way
    than as JSON between these tags, the parsed calls are judged: with the places of Qwen3.5's tags for names and
    arguments, with the whole call as the place if there are only the tags of calls, else without places. Answers of
    tools are not read.

    Args:
        texts: The completions with their special tokens, all turns of them. Places are characters of them.
        completions: Conversations or plain strings.
        column: Dataset column of the expected calls, a list per row: of `{"name": ..., "arguments": {...}}`, or of
            what messages have as `tool_calls`, with the arguments as an object or as JSON text. JSON text of such a
            list is recommended, because `datasets` gives all objects of a column the same keys and fills in null. An
            empty list expects no call.
        ordered: Whether the first call is compared with the first expected call, the second with the second, and so
            on. If not, the pair that has the most in common is matched first, a right name before all; of equal pairs
            the first expected call with the first call. At most 16 calls more than expected are read.
        fold: Whether strings, names of functions included, are equal up to case, surrounding and repeated white space,
            and Unicode's compatibility forms (NFKC). Keys are always exact.
        lists: `"ordered"` compares lists element by element, `"set"` each as a whole, in any order.
        **columns: The column of expected calls, and whatever else TRL passes.

    Raises:
        ValueError: an unknown option, a dataset column named like one, no such column, or expected calls of another
            form.
    """
    refuse_columns_as_options("tool_call_fields", column=column, ordered=ordered, fold=fold, lists=lists)
    comparison = Comparison.of(fold, lists)
    cells = referenced(columns, column, "tool_call_fields", "the expected calls")
    what = 'a list of calls or its JSON text, such as [{"name": "weather", "arguments": {"city": "Paris"}}]'
    read = partial(_roots, comparison=comparison)
    expected = [read_reference(*cell, read, what, "expected calls") for cell in cells]
    completions = [None] * len(texts) if completions is None else completions
    rows = zip(texts, completions, expected, strict=True)
    return [_criteria(text, said, roots, comparison, ordered) for text, said, roots in rows]


# Expected calls


def _roots(value: Any, comparison: Comparison) -> list[Branch]:
    """The references of a row."""
    calls = json.loads(value) if isinstance(value, str) else value
    if not isinstance(calls, list | tuple):
        raise ValueError(f"it is a {type(calls).__name__}, not a list")
    return [reference_tree(_call(call), comparison) for call in calls]


def _call(call: Any) -> dict[str, Any]:
    """Name and arguments of an expected call."""
    call = call.get("function", call) if isinstance(call, dict) else call
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"a call is {reprlib.repr(call)}, without the text of a name")
    arguments = call.get("arguments") or {}
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name!r} are {reprlib.repr(arguments)}, not an object")
    return {"name": name, "arguments": arguments}


# Calls beside expected ones

Matched = dict[int, tuple[Call, Reading]]


def _criteria(
    text: str, completion: list[dict] | str | None, roots: list[Branch], comparison: Comparison, ordered: bool
) -> list[SpanReward]:
    place = AnswerPlace(text)
    answer = without_tool_answers(place.answer, completion)
    if are_written_elsewhere(answer, completion):
        said = written_calls(completion)
        return place.spans(placed(_judged(said, roots, comparison, ordered), said, answer))
    return place.spans(_judged(answer, roots, comparison, ordered))


def _judged(answer: str, roots: list[Branch], comparison: Comparison, ordered: bool) -> Iterator[Judged]:
    """The criteria of an answer: those of each expected call, then `extra_calls`."""
    calls, said = calls_of(answer)
    read = calls[: len(roots) + MAX_EXTRA]
    matched = _matched(answer, read, roots, comparison, ordered)
    stop = _following(answer, calls[-1].end) if calls else (said, None)
    for i, root in enumerate(roots):
        criteria = _of_call(answer, root, *matched[i]) if i in matched else _missing(root, *stop)
        yield from ((f"calls[{i}].{name}", *verdict) for name, *verdict in criteria)
    extra = [call for call in read if all(call is not own for own, _ in matched.values())]
    if len(calls) <= len(roots):
        yield "extra_calls", 1.0, *(stop if calls else (None, None))
    yield from (("extra_calls", 0.0, call.start, call.end) for call in extra if len(calls) > len(roots))


def _matched(answer: str, calls: list[Call], roots: list[Branch], comparison: Comparison, ordered: bool) -> Matched:
    """
    Calls by the expected call that each is compared with: the first with the first if they are `ordered`, else the
    pair that has the most in common first.
    """
    pairs = [
        (i, j, _read(answer, call, root, comparison))
        for i, root in enumerate(roots)
        for j, call in enumerate(calls)
        if i == j or not ordered
    ]
    matched, taken = {}, set()
    for i, j, reading in sorted(pairs, key=lambda pair: _common(pair[2]), reverse=True):
        if i not in matched and j not in taken:
            matched[i] = calls[j], reading
            taken.add(j)
    return matched


def _common(reading: Reading) -> tuple[float, float]:
    rewards = {name: reward for name, (reward, *_) in reading.leaves.items()}
    return rewards.get("name", 0.0), sum(rewards.values())


def _read(answer: str, call: Call, root: Branch, comparison: Comparison) -> Reading:
    """The JSON of a call beside its reference."""
    start = _begin(answer, call.body, call.body_end)
    reading = read_json(answer[: call.body_end], start, root, comparison)
    if "arguments" in root.names and answer[start : start + 1] == "{" and "arguments" in reading.leaves:
        _, *found = reading.leaves["arguments"]  # none are expected, so that null or nothing will do
        if reading.additional == tuple(found):  # it came again
            return reading
        if answer[slice(*found)] == "}" or answer[slice(*found)].endswith("null"):
            reading.leaves["arguments"] = 1.0, *found
    return reading


def _of_call(answer: str, root: Branch, call: Call, reading: Reading) -> Iterator[Judged]:
    """The criteria of a call."""
    undecided = 0.0, reading.error, call.end
    for name in root.names:
        yield name, *reading.leaves.get(name, undecided)
    yield "format", *(undecided if reading.end is None else _format(answer, call, reading.end))
    yield from (("additional", *verdict) for verdict in reading.verdicts_on_additional(call.end))


def _format(answer: str, call: Call, json_end: int) -> tuple[float, int, int | None]:
    start = _begin(answer, call.body, call.body_end)
    if answer[start] != "{":
        return 0.0, start, json_end
    if answer[json_end : call.body_end].strip():
        return 0.0, _begin(answer, json_end, call.body_end), call.end
    return (1.0, call.start, call.end) if call.is_closed else (0.0, json_end, call.end)


def _missing(root: Branch, start: int, end: int | None) -> Iterator[Judged]:
    return ((name, 0.0, start, end) for name in (*root.names, "format", "additional"))


def _begin(answer: str, start: int, end: int) -> int:
    """Index of the first character that is not white space."""
    return start + len(answer[start:end]) - len(answer[start:end].lstrip())


def _following(answer: str, end: int | None) -> tuple[int, int | None]:
    """The character after a call; what ended the text if the call ends the answer."""
    return (len(answer), None) if end is None or end >= len(answer) else (end, end + 1)


tool_call_fields_reward = mean_reward(tool_call_fields)
