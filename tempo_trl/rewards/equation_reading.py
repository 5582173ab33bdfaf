r"""Find the equations of a worked calculation, `12 + 3 x 4 = 24`, with the characters of operands and result.

Left of the equals sign are two to ten numbers, in at most 200 characters of one line; right of it is one. Numbers may
have a minus sign, decimals, a dollar sign and commas between thousands (`-1,234.50`, `1{,}234`, `1\,234`), and
operators are `+ - * / × x · ÷ \times \cdot \div`. A number is read whole, or the line is no equation here: a letter, a
percent sign, brackets around a sum, a fraction behind a number, another operation and a number beside a mark, as in
`10:30`, make it none, and so does a word alone between two numbers, as in `1/2 of 10 + 2`. So do numbers of more than
30 digits, which keeps arithmetic fast. A dash and a space that begin a line are a bullet or a sign, as is right.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

MAX_OPERANDS, MAX_LEFT = 10, 200
_MAX_RESULTS = 64  # equals signs with a number behind them that are looked at
_COMMA = r"(?:,|\{,\}|\\[,!])"  # between thousands
_DIGITS = rf"(?:\d{{1,3}}(?:{_COMMA}\d{{3}}){{1,9}}(?!\d)|\d{{1,30}})(?:\.\d{{1,30}})?|\.\d{{1,30}}"
NUMBER = rf"(?:[-−]?\\?\$?|\\?\$[-−])(?:{_DIGITS})"
_SIGNS = "-+*/−×÷·"
_LEFT = f"0123456789 \t.,$\\()xX{_SIGNS}"  # what is left of an equals sign, once commands are signs
_COMMAND = re.compile(r"\\(?:times|cdot|div)(?![a-zA-Z])")
_SIGN_OF = {r"\times": "     ×", r"\cdot": "    ·", r"\div": "   ÷"}  # as long as they are
_SPACES = "[ \\t\u00a0\u202f]"
_STRANGE = "–—⋅•∗∕✕✖±"  # operators that are not read: between numbers they make it no equation
_MORE = (
    rf"{_SPACES}{{0,3}}(?:(?:[-+/−×÷·^xX{_STRANGE}]|\*\*?|\\(?:times|cdot|div)){_SPACES}{{0,3}}[\d$(]|\\?%|\^|√)"
    rf"|[:'’]\d|{_COMMA}\d|\\(?!text|times|cdot|div)[a-zA-Z]"  # 10:30, 1,2345 and 7\sqrt2
    rf"|[²³¹⁰-⁹¼-¾⅐-⅞]|{_SPACES}(?:\d{{1,9}}/\d|\d{{3}}(?!\d|[.,):]))"  # 5 1/2, 1 000
)
_OPERATION = re.compile(  # of what is left of a left side, and before it
    rf"(?:[\d)][ \t]*[%{_STRANGE}]|[\w)\]}}][ \t]*\^|\w_|√)[ \t]*$|\d[:'’]$"
)
_WORD = re.compile(r"(?P<result>=[ \t]*)?[^\s=]*[\d)]\\?%?[ \t]+[a-z]+$")  # alone behind a number
_CALL = re.compile(rf"\({NUMBER}\)", re.ASCII)  # behind a letter, as in `sqrt(16)`
_RESULT = re.compile(
    rf"=[ \t]{{0,3}}(?=[-\d.*\\$−])(?:\*\*|\\boxed\{{)?(?P<result>(?:[-−] (?=[\d.]))?{NUMBER})"
    rf"(?!\w|[.,]\d|{_MORE})",
    re.ASCII,
)
_LEAD = re.compile(
    rf"[ \t]*(?:\(?\d{{1,3}}[.,)][ \t]+(?![{_SIGNS}])|[.,)][ \t]+)?(?:\*\*|\\\()?"  # `2. `, `(2) `, `, `, `**`, `\(`
    rf"(?P<open>\((?!{NUMBER}\)))?[ \t]*",
    re.ASCII,
)
_BULLET = re.compile(r"[ \t]*[-*][ \t]+")
_OPERAND = re.compile(rf"\((?P<inner>{NUMBER})\)|(?P<bare>{NUMBER})", re.ASCII)
_OPERATOR = re.compile(rf"[ \t]*(?P<sign>[{_SIGNS}])[ \t]*|[xX](?=[\d$(])|[ \t]+[xX][ \t]+", re.ASCII)
_OPERATORS = {None: "*", "×": "*", "·": "*", "÷": "/", "−": "-"}  # one for each operation; x has no sign
_DECORATION = re.compile(r"[\\$,{}! ]")


class Number(NamedTuple):
    """A number of a text, and its characters `start` to `end`, the last one excluded."""

    value: int | Fraction
    start: int
    end: int


class Equation(NamedTuple):
    """Operands, the operators between them (`+`, `-`, `*` or `/`), and the result as it is written."""

    operands: tuple[Number, ...]
    operators: tuple[str, ...]
    result: Number


def equations_of(text: str, begin: int = 0) -> Iterator[Equation]:
    """The equations of a text from index `begin` on, in order."""
    for result in islice(_RESULT.finditer(text, begin), _MAX_RESULTS):
        equation = _equation(text, begin, result)
        if equation is not None:
            yield equation
        begin = result.end()


def number_at(text: str, start: int, end: int) -> Number:
    """The number that characters `start` to `end` of a text are."""
    digits = _DECORATION.sub("", text[start:end]).replace("−", "-")
    return Number(Fraction(digits) if "." in digits else int(digits), start, end)


def value_of(equation: Equation) -> int | Fraction | None:
    """The exact value of the left side, products before sums; None if it divides by zero."""
    total, term = 0, equation.operands[0].value
    for operator, operand in zip(equation.operators, equation.operands[1:], strict=True):
        if operator == "-":
            total, term = total + term, -operand.value
        elif operator == "+":
            total, term = total + term, operand.value
        elif operator == "*":
            term *= operand.value
        elif operand.value == 0:
            return None
        else:
            term = Fraction(term) / operand.value
    return total + term


def _equation(text: str, begin: int, found: re.Match) -> Equation | None:
    """The equation that has a result, None if its left side is anything but numbers and operators."""
    end = found.start()
    line = max(text.rfind("\n", max(begin, end - MAX_LEFT - 1), end) + 1, begin, end - MAX_LEFT)
    left = _COMMAND.sub(lambda command: _SIGN_OF[command[0]], text[line:end])
    offset = len(left.replace("{,}", ",,,").rstrip(_LEFT))
    offset += len(left[offset:]) - len(left[offset:].lstrip("xX"))
    before, word = text[line - 1 : line] + left[:offset], _WORD.search(left[:offset])
    if _continues(before, left[offset:]) or (word and not word["result"]):
        return None
    bullet = _BULLET.match(left) if offset == 0 else None
    lead = _LEAD.match(left, bullet.end() if bullet else offset)
    operands, operators, after = _operands(left, lead.end())
    if left[after:].strip(" \t*") not in ("", ")" if lead["open"] else "") or len(operands) < 2:
        return None
    moved = tuple(number._replace(start=number.start + line, end=number.end + line) for number in operands)
    equation = Equation(moved, operators, number_at(text, *found.span("result")))
    signed = equation._replace(operands=(moved[0]._replace(value=-moved[0].value), *moved[1:]))
    is_sign = bullet and bullet[0].strip() == "-" and value_of(signed) == equation.result.value
    return signed if is_sign else equation


def _continues(before: str, left: str) -> bool:
    """Whether what is before a left side belongs to it: `a3 + 4`, `sqrt(3) + 4`, `1 + 2 = 3 + 4`, `2^3 + 4`, ..."""
    is_result = before[-1:] == "=" and before[:-1].rstrip(" \t)*")[-1:].isdigit()
    is_word = before[-1:].isalnum() and (left[:1].isdigit() or _CALL.match(left))
    return bool(is_result or is_word or _OPERATION.search(before) or len(left) >= MAX_LEFT)


def _operands(left: str, at: int) -> tuple[tuple[Number, ...], tuple[str, ...], int]:
    """Operands from an index on, the operators between them, and the index after them."""
    operands, operators = [], []
    while len(operands) < MAX_OPERANDS:
        operand = _OPERAND.match(left, at)
        if operand is None:
            return (), (), at
        operands.append(number_at(left, *operand.span(operand.lastgroup)))
        at = operand.end()
        operator = _OPERATOR.match(left, at)
        if operator is None:
            break
        operators.append(_OPERATORS.get(operator["sign"], operator["sign"]))
        at = operator.end()
    return tuple(operands), tuple(operators[: len(operands) - 1]), at
