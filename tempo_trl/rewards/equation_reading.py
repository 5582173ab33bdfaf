r"""Find the equations of a worked calculation, `12 + 3 x 4 = 24`, with the characters of operands and result.

Left of the equals sign are two to ten numbers, right of it is one, all in a line. Numbers may have a minus sign,
decimals, a dollar sign and commas between thousands (`-1,234.50`, `1{,}234`, `1\,234`), and operators are
`+ - * / × x · ÷ \times \cdot \div`. A number is read whole, or the line is no equation here: a letter, a percent sign,
brackets around a sum, a fraction behind a number, another operation, also with an unknown, and a number beside a mark,
as in `10:30`, make it none, and so does a word alone between two numbers, as in `1/2 of 10 + 2`. So do numbers of more
than 30 digits, which keeps arithmetic fast. A dash and a space that begin a line are a bullet or a sign, as is right.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

_COMMA = r"(?:,|\{,\}|\\[,!])"  # between thousands
_DIGITS = rf"(?:\d{{1,3}}(?:{_COMMA}\d{{3}}){{1,9}}(?!\d)|\d{{1,30}})(?:\.\d{{1,30}})?|\.\d{{1,30}}"
_NUMBER = rf"(?:[-−]?\\?\$?|\\?\$[-−])(?:{_DIGITS})"
_OPERAND = rf"(?>\({_NUMBER}\)|{_NUMBER})"
_SPACE = r"[ \t]{0,3}+"
_COMMANDS = r"\\(?:times|cdot|div)(?![a-zA-Z])"
_OPERATOR = rf"(?>{_SPACE}(?:[-+*/−×÷·]|{_COMMANDS}){_SPACE}|[xX](?=[\d$(])|[ \t]{{1,3}}+[xX][ \t]{{1,3}}+)"
_STRANGE = "–—⋅•∗∕✕✖±"  # operators that are not read: between numbers they make it no equation
_MORE = (
    r"\w|[.,]\d"
    rf"|[ \t\u00a0\u202f]{{0,3}}(?:(?:[-/−^xX{_STRANGE}]|\*\*?){_SPACE}[\d$(]|[+×÷·]|{_COMMANDS}|\\?%|\^|√)"
    rf"|{_SPACE}[-/−]{_SPACE}[a-zA-Z](?![a-zA-Z])|[ \t]\*[ \t]|\("  # an unknown: 3 - x, 3 * x, 3(x + 1)
    rf"|[ \t]{{1,3}}[a-z]{{1,20}}+[ \t]{{1,3}}(?:[-+*/−×÷·]|{_COMMANDS}){_SPACE}[\d$(]"  # 40 apples + 20
    rf"|[:'’]\d|{_COMMA}\d|\\(?!text|times|cdot|div)[a-zA-Z]"  # 10:30, 1,2345 and 7\sqrt2
    r"|[²³¹⁰-⁹¼-¾⅐-⅞]|[ \t\u00a0\u202f](?:\d{1,9}/\d|\d{3}(?!\d|[.,):]))"  # 5 1/2, 1 000
)
_EQUATION = re.compile(
    rf"(?P<open>\({_SPACE})?(?P<first>{_OPERAND})(?P<others>(?:{_OPERATOR}{_OPERAND}){{1,9}}+)"
    rf"[ \t*]{{0,5}}+(?(open)\)[ \t*]{{0,5}}+)=[ \t]{{0,3}}(?:\*\*|\\boxed\{{)?"
    rf"(?P<result>(?>(?:[-−] (?=[\d.]))?{_NUMBER}))(?!{_MORE})",
    re.ASCII,
)
_NEXT = re.compile(rf"(?P<operator>{_OPERATOR})(?P<operand>{_OPERAND})", re.ASCII)
_OPERATORS = {"−": "-", "÷": "/", r"\div": "/"} | dict.fromkeys(("×", "·", "x", "X", r"\times", r"\cdot"), "*")
_DECORATION = re.compile(r"[\\$,{}! ]")
_BULLET = re.compile(r"[ \t]*(?:\(?\d{1,3}\)|[-*])[ \t]+")
_BEFORE = 60  # characters before an equation that are looked at
_CONTINUED = re.compile(  # what is before an equation that it is a part of
    r"[\w^√)]$|\d[.,:'’]$|\d\)?%?[ \t]+$|[\d)][ \t*]*=[ \t]*$"  # a3, 10:30, 1 000, = 3 + 4
    rf"|(?:[-+/−×÷·^]|\\(?:times|cdot|div))[ \t]*$|[\d)%][ \t]*[%{_STRANGE}][ \t]*$|(?<!\w)[xX][ \t]+$"
    r"|[\w)\]}][ \t]*\*{1,2}[ \t]+$|\w\*+$|[\d)\]}][ \t]*\*+$"  # 2 ** 3, and not `so **3 + 4 = 7**`
    r"|(?:^|[^=\s][ \t]+)[^\s=]*[\d)]\\?%?[ \t]+[a-z]+[ \t]+$"  # a word alone, but for `= 7 apples`
)


class Number(NamedTuple):
    """A number of a text, and its characters `start` to `end`, the last one excluded."""

    value: Fraction
    start: int
    end: int


class Equation(NamedTuple):
    """Operands, the operators between them (`+`, `-`, `*` or `/`), and the result as it is written."""

    operands: tuple[Number, ...]
    operators: tuple[str, ...]
    result: Number


def equations_of(text: str) -> Iterator[Equation]:
    """The equations of a text, in order."""
    for found in _EQUATION.finditer(text):
        start = found.start()
        begin = max(start - _BEFORE, 0)
        line = text[max(begin, text.rfind("\n", begin, start) + 1) : start]
        bullet = _BULLET.fullmatch(line)
        if bullet or not _CONTINUED.search(line):
            equation = _equation(text, found)
            first = equation.operands[0]
            signed = equation._replace(operands=(first._replace(value=-first.value), *equation.operands[1:]))
            is_sign = bullet and "-" in bullet[0] and value_of(signed) == equation.result.value
            yield signed if is_sign else equation


def _equation(text: str, found: re.Match) -> Equation:
    others = [*_NEXT.finditer(text, *found.span("others"))]
    operands = [_number(text, *span) for span in (found.span("first"), *(each.span("operand") for each in others))]
    signs = [each["operator"].strip() for each in others]
    return Equation(
        tuple(operands), tuple(_OPERATORS.get(sign, sign) for sign in signs), _number(text, *found.span("result"))
    )


def _number(text: str, start: int, end: int) -> Number:
    if text[start] == "(":
        start, end = start + 1, end - 1
    return Number(Fraction(_DECORATION.sub("", text[start:end]).replace("−", "-")), start, end)


def value_of(equation: Equation) -> Fraction | None:
    """The exact value of the left side, products before sums; None if it divides by zero."""
    terms = [equation.operands[0].value]
    for operator, operand in zip(equation.operators, equation.operands[1:], strict=True):
        if operator in "+-":
            terms.append(operand.value if operator == "+" else -operand.value)
        elif operator == "*":
            terms[-1] *= operand.value
        elif operand.value == 0:
            return None
        else:
            terms[-1] /= operand.value
    return sum(terms)
