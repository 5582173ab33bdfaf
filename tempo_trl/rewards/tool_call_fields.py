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

from tempo_trl.rewards.json_reading import Comparison, Node, Path, Reference, Verdict, compared, reference_of, scan
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import Reading, Segment, readings
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options

MAX_EXTRA = 16  # calls more than expected that are read
Place = tuple[int, int] | tuple[None, None]
Criterion = tuple[str, float, Place]  # of a call: name, reward and one of its places


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
    form, the place is the call from its name to its last value. Calls that are not in the text have no places. What
    tools and users say is not read.

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
    comparison = Comparison(fold, lists)
    what = 'a list of calls or its JSON text, such as [{"name": "weather", "arguments": {"city": "Paris"}}]'
    expected = referenced(columns, column, "tool_call_fields", partial(_references, comparison=comparison), what)
    rows = zip(readings(texts, completions), expected, strict=True)
    return [[] if references is None else [*_judged(said, references, ordered)] for said, references in rows]


# Expected calls


def _references(value: Any, comparison: Comparison) -> list[Reference]:
    """The references of a row."""
    calls = json.loads(value) if isinstance(value, str) else value
    if not isinstance(calls, list | tuple):
        raise ValueError(f"it is a {type(calls).__name__}, not a list")
    return [reference_of(json.dumps(_call(call)), comparison) for call in calls]


def _call(call: Any) -> dict[str, Any]:
    """Name and arguments of an expected call."""
    call = _filled(call)
    call = _filled(call["function"]) if [*call] == ["function"] else call
    name, arguments = call.get("name"), call.get("arguments")
    if call.keys() - {"name", "arguments"} or not isinstance(name, str) or not name:
        raise ValueError(f"a call has {reprlib.repr(call)}, expected the text of a name, arguments and nothing else")
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict | None):
        raise ValueError(f"the arguments of {name!r} are {reprlib.repr(arguments)}, not an object")
    return {"name": name, "arguments": arguments or {}}


def _filled(call: Any) -> dict[str, Any]:
    """What is filled in a call, without what messages have besides."""
    members = call.items() if isinstance(call, dict) else ()
    return {key: value for key, value in members if value is not None and key not in ("type", "id")}


# Calls beside expected ones


def _judged(said: Reading, references: list[Reference], ordered: bool) -> Iterator[SpanReward]:
    """The criteria of a completion: those of each expected call, then `extra_calls`."""
    calls = said.calls
    start, end = stop = _following(said, calls[-1]) if calls else said.answer.span(0, None)
    missing = Segment("call", "", None if start is None else [start], start, end)
    read = [*calls[: len(references) + MAX_EXTRA], *[missing] * (len(references) - len(calls))]
    matched = _matched(read, len(calls), references, ordered)
    for i, (_, criteria) in enumerate(matched):
        yield from (SpanReward(f"calls[{i}].{name}", reward, *place) for name, reward, place in criteria)
    if len(calls) <= len(references):
        yield SpanReward("extra_calls", 1.0, *(stop if calls else (None, None)))
    else:
        used = {j for j, _ in matched}
        places = {(call.start, call.end) for j, call in enumerate(read) if j not in used and call.end}
        yield from (SpanReward("extra_calls", 0.0, *place) for place in sorted(places) or [(None, None)])


def _matched(
    calls: list[Segment], written: int, references: list[Reference], ordered: bool
) -> list[tuple[int, list[Criterion]]]:
    """
    Of each expected call the index of the call that it is compared with, and the criteria: the first with the first if
    they are `ordered`, else those that give the most right names, and of these the most that is right. There are at
    least as many calls as are expected; those behind the first that are `written` are missing.
    """
    if ordered or not references:
        pairs = zip(calls, references, strict=False)
        return [(i, _of_call(call, reference)) for i, (call, reference) in enumerate(pairs)]
    found = [[_of_call(call, reference) for call in calls] for reference in references]
    rewards = [[{name: reward for name, reward, _ in criteria} for criteria in row] for row in found]
    right = np.array([[sum(each.values()) for each in row] for row in rewards])
    names, most = np.array([[each.get("name", 0.0) for each in row] for row in rewards]), right.sum() + 1
    i, j = np.indices(right.shape)
    # Of equal ones the first calls, the first with the first. Those that are missing have no order.
    size = sum(right.shape)
    order = np.where(j < written, i * j - size * (i + j), 0) / size**4
    _, matched = linear_sum_assignment(names * most + right + order, maximize=True)
    return [(int(j), found[i][j]) for i, j in enumerate(matched)]


def _of_call(call: Segment, reference: Reference) -> list[Criterion]:
    """The criteria of a call, each with its places. What TRL parsed are its values, and the text has their places."""
    is_parsed = call.parsed is not None
    root = scan(call.said, _begin(call.said, 0), is_parsed)
    leaves, additional = _compared(root, reference)
    rewards, others = _compared(scan(call.parsed, 0, True), reference) if is_parsed else (leaves, additional)
    criteria = [
        (name, rewards[name][0], _place(call, reference.leaves[name][0], *place))
        for name, (_, *place) in leaves.items()
    ]
    reward, *_ = others[0]
    places = [place for same, *place in additional if same == reward] or [(0, None)]
    criteria.append(("format", *_format(call, root)))
    return [*criteria, *dict.fromkeys(("additional", reward, _place(call, (), *place)) for place in places)]


def _compared(root: Node, reference: Reference) -> tuple[dict[str, Verdict], list[Verdict]]:
    """A call beside an expected one. If no arguments are expected, null or nothing will do."""
    leaves, additional = compared(root, reference)
    if "arguments" in leaves and root.opener == "{":
        node, depth = root.find(("arguments",))
        if node.end is not None and (depth == 0 or node.value is None):
            leaves["arguments"] = 1.0, *leaves["arguments"][1:]
    return leaves, additional


def _format(call: Segment, root: Node) -> tuple[float, Place]:
    if call.parsed is not None:
        return 1.0, (call.start, call.end)
    if root.end is None:
        return 0.0, call.span(root.error, None)
    if root.opener != "{":
        return 0.0, call.span(root.start, root.end)
    if call.said[root.end :].strip():
        return 0.0, call.span(_begin(call.said, root.end), None)
    return (1.0, (call.start, call.end)) if call.is_closed else (0.0, call.span(root.end, None))


def _place(call: Segment, path: Path, start: int, end: int | None) -> Place:
    """
    Characters of a call's JSON in the text. If it is written in another form, a name stands in its `<function=...>`,
    an argument in its last `<parameter=...>`, one that is missing in `</function>`, and all else in the whole call.
    """
    if call.is_json or call.at is None:
        return call.span(start, end)
    found = []
    if path == ("name",):
        found = [*islice(re.finditer("<function=[^>]*>", call.said), 1)]
    elif len(path) > 1:
        found = [*re.finditer(f"<parameter={re.escape(path[1])}>.*?</parameter>", call.said, re.DOTALL)]
        found = found or [*re.finditer("</function>", call.said)]
    return call.span(*found[-1].span()) if found else (call.start, call.end)


def _begin(text: str, start: int) -> int:
    """Index of the first character from `start` on that is not white space."""
    return start + len(text[start:]) - len(text[start:].lstrip())


def _following(said: Reading, call: Segment) -> Place:
    """The character after a call that the text has; what ended the text if the call ends the answer."""
    length, body = said.length
    if call.at is None or not call.is_json:
        return None, None
    if call.end < body:
        return call.end, call.end + 1
    return min(call.end if call.end < length else body, length - 1), length


tool_call_fields_reward = mean_reward(tool_call_fields)
