"""Span reward function for answers in JSON: each leaf of a reference is a criterion, with the place of its decision.

    text        Sure: {"city": "Paris", "quantity": 3}<|im_end|>
    truth             {"city": "Rome", "quantity": 3, "express": true}

    criterion   reward  place
    city        0.0     `"city": "Paris"`
    quantity    1.0     `"quantity": 3`
    express     0.0     `}`, which closed the object without it
    json        1.0     the object
    additional  1.0     `}`
    outside     0.0     `Sure: `

Where the JSON cannot be read, all that is undecided earns 0.0 from there on.
"""

import json
import re
from collections.abc import Callable
from functools import partial

from tempo_trl.rewards.json_reading import Comparison, Node, Reference, Verdict, compared, reference_of, scan
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import Segment, readings
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options


def json_fields(
    texts: list[str],
    completions: list[list[dict[str, str]]] | list[str] | None = None,
    *,
    column: str = "truth",
    fold: bool = False,
    lists: str = "ordered",
    **columns,
) -> list[list[SpanReward]]:
    """
    Span reward function: compare the JSON in each completion with a reference, leaf by leaf.

    The answer is the text after the last `</think>`, and its JSON begins at the first `{` (`[` if the reference is a
    list). All completions of one reference have the same criteria, and each earns 1.0 or 0.0:

    - every leaf, named by its path (`address.street`, `items[0].name`, `["a.b"]` for a key with a dot): from the first
      character of its key, or of its value in a list, to the end of its value. If it is missing, the bracket that
      closed its object or list. If an object or list that should hold it is another kind of value, that value with its
      key;
    - `json`, whether the JSON can be read to its end: the object, or all from the error on;
    - `additional`, no keys or list elements beside the reference's: the brackets that close objects and lists, or the
      first additional key or element with its value. A key that comes again is additional, and its leaves are wrong;
    - `outside`, no text before and after the JSON but white space: the opening bracket and what follows the JSON, or
      the text outside. Special tokens do not count.

    Whatever an error leaves undecided is 0.0 from the error on. Without a JSON object that is the whole answer.

    Numbers are compared by value (3 is 3.0); booleans are not numbers, and null is equal to nothing else. Use
    [`functools.partial`] to set the options:

        span_reward_funcs = partial(json_fields, column="order", fold=True)

    Args:
        texts: The completions with their special tokens. Places are characters of them.
        completions: Conversations (the last assistant message counts) or plain strings. By default, the answers are
            the texts without special tokens at the end. The criteria of an answer that is not in its text have no
            place.
        column: Dataset column of the references: texts of a JSON object or array, which is recommended, or the objects
            themselves. `datasets` gives all objects of a column the same keys, and fills in null. A completion whose
            reference is None is not judged.
        fold: Whether strings are equal up to case, surrounding and repeated white space, and Unicode's compatibility
            forms (NFKC). Keys are always exact.
        lists: `"ordered"` compares lists element by element. `"set"` compares each as a whole, as one leaf, in any
            order, and counts how often an element occurs.
        **columns: The reference's column, and whatever else TRL passes.

    Raises:
        ValueError: an unknown option, a dataset column named like one, no such column, or a reference that is not the
            text of a JSON object or array.
    """
    refuse_columns_as_options("json_fields", column=column, fold=fold, lists=lists)
    comparison = Comparison(fold, lists)
    references = referenced(
        columns,
        column,
        "json_fields",
        lambda cell: reference_of(cell if isinstance(cell, str) else json.dumps(cell), comparison),
        'the text of a JSON object or array, such as {"city": "Paris"}',
    )
    rows = zip(readings(texts, completions), references, strict=True)
    return [
        [] if reference is None else judged(said.answer, reference.opener, partial(_leaves, reference=reference))
        for said, reference in rows
    ]


def _leaves(root: Node, reference: Reference) -> tuple[list[tuple], list[Verdict]]:
    leaves, additional = compared(root, reference)
    return [(name, *verdict) for name, verdict in leaves.items()], additional


def judged(
    answer: Segment, openers: str, check: Callable[[Node], tuple[list[tuple], list[Verdict]] | None]
) -> list[SpanReward]:
    """
    The criteria of an answer: those of a check, then `json`, `additional` and `outside`.

    Args:
        answer: The answer.
        openers: The brackets that its JSON may begin with.
        check: From the JSON to verdicts, each after its criterion's name, and to those on `additional`; None if the
            answer is not judged.
    """
    said = answer.said
    first = len(said) - len(said.lstrip()) if said.strip() else 0
    found = re.search(f"[{re.escape(openers)}]", said) if answer.kind == "content" else None
    root = scan(said, found.start()) if found else Node(first, error=first)
    checked = check(root)
    if checked is None:
        return []
    verdicts, additional = checked
    verdicts.append(("json", 1.0, root.start, root.end) if root.end else ("json", 0.0, root.error, None))
    verdicts += [("additional", *verdict) for verdict in additional]
    verdicts += [("outside", *verdict) for verdict in _outside(said, first, root)]
    # Without places, those of one criterion are the same: one is left.
    return list(dict.fromkeys(SpanReward(name, reward, *answer.span(*place)) for name, reward, *place in verdicts))


def _outside(said: str, first: int, root: Node) -> list[tuple[float, int, int | None]]:
    before = [(0.0, first, root.start)] if first < root.start else []
    if root.end is None:
        return before or [(0.0, root.error, None)]
    rest = said[root.end :]
    if rest.strip():
        return [*before, (0.0, root.end + len(rest) - len(rest.lstrip()), None)]
    return before or [(1.0, root.start, root.start + 1), (1.0, root.end, None)]


json_fields_reward = mean_reward(json_fields)
