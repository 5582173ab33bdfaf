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
import re
import reprlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from tempo_trl.rewards.json_reading import Branch, Comparison, JsonReading, read_json, read_reference, reference_tree
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import Reading, Segment, readings
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options

MAX_EXTRA = 16  # calls more than expected that are read
_ARGUMENT = re.compile(r'arguments(?:\.(?P<plain>[^.\[]+)|\["(?P<quoted>[^"\\]+)"\])')  # the key in a criterion's path
Place = tuple[int, int] | tuple[None, None]


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

    Calls are those that TRL parsed, with the values that the tool gets: of a repeated argument the last one. Where TRL
    parsed none, as without `tools` or where it cannot read one, a call is JSON between `<tool_call>` and
    `</tool_call>`, outside of thoughts. All completions of one reference have the same criteria, and each earns 1.0 or
    0.0. For the expected call 0, and likewise for the others:

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

    The places are those of the JSON in the text, or of Qwen3.5's tags for names and arguments. Of a call in another
    form, the place is the whole call. Calls that are not in the text have no places. What tools and users say is not
    read.

    Args:
        texts: The completions with their special tokens, all turns of them. Places are characters of them.
        completions: Conversations or plain strings.
        column: Dataset column of the expected calls, a list per row: of `{"name": ..., "arguments": {...}}`, or of
            what messages have as `tool_calls`, with the arguments as an object or as JSON text. JSON text of such a
            list is recommended, because `datasets` gives all objects of a column the same keys and fills in null. An
            empty list expects no call. A completion whose expected calls are None is not judged.
        ordered: Whether the first call is compared with the first expected call, the second with the second, and so
            on. If not, they are matched so that the most names are right, and then the most criteria. Of equal matches
            the first calls count, and the first expected call is matched with the first. At most 16 calls more than
            expected are read.
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
    rows = zip(readings(texts, completions), expected, strict=True)
    return [[] if roots is None else [*_judged(said, roots, comparison, ordered)] for said, roots in rows]


# Expected calls


def _roots(value: Any, comparison: Comparison) -> list[Branch]:
    """The references of a row."""
    calls = json.loads(value) if isinstance(value, str) else value
    if not isinstance(calls, list | tuple):
        raise ValueError(f"it is a {type(calls).__name__}, not a list")
    return [reference_tree(_call(call), comparison) for call in calls]


def _call(call: Any) -> dict[str, Any]:
    """Name and arguments of an expected call."""
    call = _only(call, "function") if isinstance(call, dict) and call.get("function") is not None else call
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"a call is {reprlib.repr(call)}, without the text of a name")
    arguments = _only(call, "arguments", "name")
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict | None):
        raise ValueError(f"the arguments of {name!r} are {reprlib.repr(arguments)}, not an object")
    return {"name": name, "arguments": arguments or {}}


def _only(call: dict, key: str, *others: str) -> Any:
    """What a call has at a key. Raises ValueError if it has more than that and what messages have besides."""
    for unknown, value in call.items():
        if value is not None and unknown not in (key, *others, "type", "id"):
            raise ValueError(f"a call has the key {unknown!r}, where it may have {', '.join((*others, key))}")
    return call.get(key)


# Calls beside expected ones

Matched = dict[int, tuple[Segment, JsonReading]]


def _judged(said: Reading, roots: list[Branch], comparison: Comparison, ordered: bool) -> Iterator[SpanReward]:
    """The criteria of a completion: those of each expected call, then `extra_calls`."""
    calls = said.calls
    read = calls[: len(roots) + MAX_EXTRA]
    matched = _matched(read, roots, comparison, ordered)
    stop = _following(said, calls[-1]) if calls else _whole(said.answer)
    for i, root in enumerate(roots):
        criteria = _of_call(root, *matched[i]) if i in matched else _missing(root, stop)
        yield from (SpanReward(f"calls[{i}].{name}", reward, *place) for name, reward, place in criteria)
    extra = [call for call in read if all(call is not own for own, _ in matched.values())]
    if len(calls) <= len(roots):
        yield SpanReward("extra_calls", 1.0, *(stop if calls else (None, None)))
    else:
        yield from dict.fromkeys(SpanReward("extra_calls", 0.0, call.start, call.end) for call in extra)


def _matched(calls: list[Segment], roots: list[Branch], comparison: Comparison, ordered: bool) -> Matched:
    """
    Calls by the expected call that each is compared with: the first with the first if they are `ordered`, else those
    that give the most right names, and of these the most that is right.
    """
    if ordered:
        pairs = zip(range(len(roots)), range(len(calls)), strict=False)
        return {i: (calls[j], _read(calls[j], roots[i], comparison)) for i, j in pairs}
    found = [[_read(call, root, comparison) for call in calls] for root in roots]
    right = np.array([[_right(*pair) for pair in zip(calls, row, strict=True)] for row in found], dtype=float)
    if not right.size:
        return {}
    names, most = np.array([[_is_named(each) for each in row] for row in found]), right.sum() + 1
    i, j = np.indices(right.shape)
    # Of equal ones the first calls, the first with the first.
    size = sum(right.shape)
    order = (i * j - size * (i + j)) / size**4
    rows, columns = linear_sum_assignment(names * most + right + order, maximize=True)
    return {int(i): (calls[j], found[i][j]) for i, j in zip(rows, columns, strict=True)}


def _is_named(reading: JsonReading) -> bool:
    return reading.leaves.get("name", (0.0,))[0] == 1.0


def _right(call: Segment, reading: JsonReading) -> float:
    """How many criteria of a call are right."""
    leaves = sum(reward for reward, *_ in reading.leaves.values())
    return leaves + _format(call, reading)[0] + reading.verdicts_on_additional(None)[0][0]


def _read(call: Segment, root: Branch, comparison: Comparison) -> JsonReading:
    """A call beside an expected one. What TRL parsed are its values, and the text has their places."""
    written = _read_json(call.said, root, comparison, call.parsed is not None)
    if call.parsed is None:
        return written
    parsed = _read_json(call.parsed, root, comparison, True)
    places = {name: place for name, (_, *place) in written.leaves.items()}
    parsed.leaves = {name: (value[0], *places.get(name, (0, 1))) for name, value in parsed.leaves.items()}
    parsed.additional = parsed.additional and (written.additional or (0, len(call.said)))
    if parsed.end is not None:
        parsed.closers, parsed.end = written.closers, len(call.said)
    return parsed


def _read_json(text: str, root: Branch, comparison: Comparison, is_lenient: bool) -> JsonReading:
    start = _begin(text, 0)
    reading = read_json(text, start, root, comparison, is_lenient)
    if "arguments" in root.names and text[start : start + 1] == "{" and "arguments" in reading.leaves:
        _, *found = reading.leaves["arguments"]  # none are expected, so that null or nothing will do
        if reading.additional == tuple(found):  # it came again
            return reading
        if text[slice(*found)] == "}" or text[slice(*found)].endswith("null"):
            reading.leaves["arguments"] = 1.0, *found
    return reading


def _of_call(root: Branch, call: Segment, reading: JsonReading) -> Iterator[tuple[str, float, Place]]:
    """The criteria of a call, each with its places in the completion's text."""
    undecided = 0.0, reading.error, None
    for name in root.names:
        reward, *place = reading.leaves.get(name, undecided)
        yield name, reward, _place(call, name, *place)
    yield "format", *_format(call, reading)
    verdicts = [(reward, _place(call, "", *place)) for reward, *place in reading.verdicts_on_additional(None)]
    yield from (("additional", *verdict) for verdict in dict.fromkeys(verdicts))


def _format(call: Segment, reading: JsonReading) -> tuple[float, Place]:
    said = call.said
    start = _begin(said, 0)
    if reading.end is None:
        return 0.0, call.span(reading.error, None)
    if call.parsed is not None:
        return 1.0, (call.start, call.end)
    if said[start] != "{":
        return 0.0, call.span(start, reading.end)
    if said[reading.end :].strip():
        return 0.0, call.span(_begin(said, reading.end), None)
    return (1.0, (call.start, call.end)) if call.is_closed else (0.0, call.span(reading.end, None))


def _place(call: Segment, criterion: str, start: int, end: int | None) -> Place:
    """
    Characters of a call's JSON in the text. If it is written in another form, a name stands in its `<function=...>`,
    an argument in its last `<parameter=...>`, one that is missing in `</function>`, and all else in the whole call.
    """
    if call.is_json or call.at is None:
        return call.span(start, end)
    argument, found = _ARGUMENT.match(criterion), []
    if criterion == "name":
        found = [*islice(re.finditer("<function=[^>]*>", call.said), 1)]
    elif argument is not None:
        key = re.escape(argument["plain"] or argument["quoted"])
        found = [*re.finditer(f"<parameter={key}>.*?</parameter>", call.said, re.DOTALL)]
        found = found or [*re.finditer("</function>", call.said)]
    return call.span(*found[-1].span()) if found else (call.start, call.end)


def _missing(root: Branch, place: Place) -> Iterator[tuple[str, float, Place]]:
    return ((name, 0.0, place) for name in (*root.names, "format", "additional"))


def _begin(text: str, start: int) -> int:
    """Index of the first character from `start` on that is not white space."""
    return start + len(text[start:]) - len(text[start:].lstrip())


def _whole(answer: Segment) -> Place:
    return (min(answer.start, answer.end - 1), answer.end) if answer.end else (None, None)


def _following(said: Reading, call: Segment) -> Place:
    """The character after a call that the text has; what ended the text if the call ends the answer."""
    length, body = said.length
    if call.at is None or not call.is_json:
        return None, None
    if call.end < body:
        return call.end, call.end + 1
    return min(call.end if call.end < length else body, length - 1), length


tool_call_fields_reward = mean_reward(tool_call_fields)
