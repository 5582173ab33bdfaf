"""Span reward function for worked calculations: each equation is checked by arithmetic, then the final answer.

text    4 + 3 = 7
        7 * 2 = 15
        The answer is 15.<|im_end|>
answer  14

criterion         reward  place
line 1            1.0     `7`
line 2            0.0     `15`, behind the equals sign
line 2 continues  1.0     `7`, the operand that is the result of line 1 (with `chain=True`)
answer            0.0     `15`, the last number
"""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from numbers import Number
from typing import Any

from tempo_trl.rewards.boxed import box_spans, gold_answer
from tempo_trl.rewards.equation_reading import Equation, equations_of, value_of
from tempo_trl.rewards.math_equality import plain_number
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import Segment, readings
from tempo_trl.rewards.span_reward import SpanReward, referenced, refuse_columns_as_options

MAX_LINES = 32
_MAX_ANSWER = 80  # characters of a box that is read as a number
_GROUPED = r"\d{1,3}(?:(?:,|\{,\}|\\[,!]|[ \u00a0\u2009\u202f])\d{3})+(?!\d)"
_PLAIN = rf"(?:(?:{_GROUPED}|\d+)(?:\.\d+)?|\.\d+)"
# A word with its power, or a number as a whole: sign, currency, mixed number or fraction, power of ten.
_TIMES_TEN = r" ?(?:\\times|\\cdot|[×·*x]) ?10 ?\^ ?(?:\{[-−]?\d+\}|[-−]?\d+)"
_WHOLE = re.compile(
    rf"[^\W\d]\w*(?:\}}?\^\{{?-?\d+\}}?)?|(?P<number>(?P<sign>(?:(?<!\w)[-−+] ?)?)(?:\\?[$€£] ?(?:[-−] ?)?)?"
    rf"(?:\d+ \d{{1,2}}/\d+|{_PLAIN}(?: ?/ ?{_PLAIN}|{_TIMES_TEN})?"
    rf"|\\[dt]?frac ?(?:\{{[-−+]?{_PLAIN}\}}|\d) ?(?:\{{{_PLAIN}\}}|\d)))",
    re.ASCII,
)
_PART_BEFORE = re.compile(
    r"(?:[\w^√{\\]|[\^√{\\][-−+] ?|\d[.,:'’]|[\d)\]}%][ \t]*(?:[-+*/×·÷−–—xX]|\\(?:times|cdot|div))[ \t]*)$"
)
_PART_AFTER = re.compile(r"(?![a-zA-Z]{2})[\w^²³¹⁰-⁹√]|[.,:'’]\d|\\(?!text)[a-zA-Z]")
_CURRENCY = re.compile(r"^(\s*[-−+]?\s*)[€£]|[€£](?=[\s$.]*$)")
_PERCENT = re.compile(r"\\?%(?=[\s$.]*$)")
Readings = set[tuple[str, Fraction]]  # of a text, as a number and as a share
_TAIL = 400  # characters up to the last digit that are searched for the last number


def equations(
    texts: list[str],
    completions: list[list[dict[str, str]]] | list[str] | None = None,
    *,
    column: str | None = "answer",
    lines: int | None = None,
    chain: bool = False,
    **columns,
) -> list[list[SpanReward]]:
    r"""
    Span reward function: check the equations of each completion, and its final answer.

    What follows the last `</think>` is read. An equation has two to ten numbers left of the equals sign and one right
    of it, anywhere in a line: `12 + 3 x 4 = 24` ([`~tempo_trl.rewards.equation_reading`]). Each criterion earns 1.0 or
    0.0:

    - `line N`, whether the Nth equation is right, by exact arithmetic (`10 / 3 = 3.33` is wrong): its result, because
      the operands stand before it and only the result makes it right or wrong;
    - `line N continues` with `chain`, from the second on, whether the result of the equation before, as it is written,
      is one of its operands: that operand; without one, all operands. It is not judged if another equals sign stands
      between the two;
    - `answer`, whether the final answer is the reference's number: the content of the last `\boxed{}`, else the last
      number of the text, with its sign, thousands, fraction and percent. A power belongs to its letters (`cm^2`), and
      two or more letters directly behind a number are its unit (`50km`). A dash with a space behind it is a bullet, a
      separator or a sign, whichever is right. A last number that is part of something else, as in `7\sqrt2`, `5x` and
      `10:30`, makes the answer wrong. An answer without a number has no place.

    Use [`functools.partial`] to set the options:

        span_reward_funcs = partial(equations, column="total", lines=4)

    Args:
        texts: The completions with their special tokens. Places are characters of them.
        completions: Conversations (the last assistant message counts) or plain strings. By default, the answers are
            the texts without special tokens at the end. The criteria of an answer that is not in its text have no
            place.
        column: Dataset column of the final answers: numbers or texts (`27`, `"1,234.5"`, a worked solution that ends
            in `#### 27` or has a box). An empty one is unknown, and its criterion is not judged. None for no column.
        lines: How many equations an answer should have. Missing ones earn 0.0, with what follows the last equation as
            their place, and further ones are not judged. By default, the equations that there are count, up to 32: a
            completion with fewer lines is compared with others in the lines that it has.
        chain: Whether each equation has to continue from the result of the one before. Not in problems like those of
            GSM8K, where a line of a right solution often begins with other numbers of the question.
        **columns: The column of final answers, and whatever else TRL passes.

    Raises:
        ValueError: no such column, a column named like an option, a final answer that is not a number, or `lines` that
            is not 1 to 32.
    """
    refuse_columns_as_options("equations", column=column, lines=lines, chain=chain)
    if lines is not None and not 1 <= lines <= MAX_LINES:
        raise ValueError(f"`lines` is {lines}, expected 1 to {MAX_LINES}, or None for as many as there are.")
    golds = [None] * len(texts)
    if column is not None:
        expected = "a number or a text with one, such as 27, '1,234.5' or '... #### 27', or empty if it is unknown"
        golds = referenced(columns, column, "equations", _gold, expected)
    rows = zip(readings(texts, completions), golds, strict=True)
    return [_criteria(said.answer, gold, column, lines, chain) for said, gold in rows]


def _gold(value: Any) -> Readings | None:
    """The numbers that a final answer may mean; None if it is unknown."""
    if value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return None
    is_text = isinstance(value, str | Number) and not isinstance(value, bool)
    readings = _readings(gold_answer(str(value))) if is_text else set()
    if not readings:
        raise ValueError("it is not one number")
    return readings


def _readings(text: str) -> Readings:
    """What a text says as a number and as a share: `50%` is 50 and 0.5, `50` both times 50. Empty without a number."""
    number = plain_number(_PERCENT.sub("", _CURRENCY.sub(r"\1", text)))
    share = number / 100 if number is not None and _PERCENT.search(text) else number
    return set() if number is None else {("number", number), ("share", share)}


def _criteria(
    answer: Segment, gold: Readings | None, column: str | None, lines: int | None, chain: bool
) -> list[SpanReward]:
    said = answer.said if answer.kind == "content" else ""
    judged = [*_lines(said, [*islice(equations_of(said), lines or MAX_LINES)], lines or 0, chain)]
    if column is not None:
        readings, *place = _final(said)
        judged.append(("answer", None if gold is None else float(not readings.isdisjoint(gold)), *place))
    return [SpanReward(name, reward, *answer.span(*place)) for name, reward, *place in judged]


def _lines(
    said: str, found: list[Equation], lines: int, chain: bool
) -> Iterator[tuple[str, float | None, int | None, int | None]]:
    """Criterion, reward, and start and end in the answer, of each line."""
    for n, (operands, _, result) in enumerate(found, 1):
        yield f"line {n}", float(value_of(found[n - 1]) == result.value), result.start, result.end
        if chain and n > 1:
            before = found[n - 2].result
            same = [operand for operand in operands if operand.value == before.value]
            _, start, end = same[0] if same else (None, operands[0].start, operands[-1].end)
            is_known = "=" not in said[before.end : operands[0].start]
            yield f"line {n} continues", float(bool(same)) if is_known else None, start, end
    # Lines that the answer lacks have what follows the last one, and without an answer no place.
    rest = found[-1].result.end if found else 0 if said.strip() else None
    for n in range(len(found) + 1, lines + 1):
        yield f"line {n}", 0.0, rest, None
        if chain and n > 1:
            yield f"line {n} continues", 0.0, rest, None


def _final(answer: str) -> tuple[Readings, int | None, int | None]:
    """The numbers that the final answer may mean, none if it is a part of something else, and its characters."""
    spans = box_spans(answer)
    if spans:
        # The last one that is not empty; if all are empty, the first.
        start, end = [span for span in spans if answer[slice(*span)].strip() or span == spans[0]][-1]
        is_short = end - start <= _MAX_ANSWER
        return _readings(answer[start:end]) if is_short else set(), start, max(end, start + 1)
    digit = max(answer.rfind(digit) for digit in "0123456789")
    numbers = [each for each in _WHOLE.finditer(answer, max(0, digit - _TAIL), digit + 2) if each["number"]]
    if digit < 0 or not numbers:
        return set(), None, None
    number, (start, end) = numbers[-1], numbers[-1].span()
    if _PART_BEFORE.search(answer[max(0, start - 40) : number.end("sign")]) or _PART_AFTER.match(answer, end):
        return set(), start, end
    percent = re.compile(r" ?\\?%").match(answer, end)
    readings = _readings(number[0] + (percent[0] if percent else ""))
    is_dash = number["sign"] in ("- ", "− ")
    return readings | {(kind, -each) for kind, each in readings if is_dash}, start, end


equations_reward = mean_reward(equations)
