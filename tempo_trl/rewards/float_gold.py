r"""Golds that are floats, such as GSM-Hard's `-9867630.0`, `1234567.3333` and `2.0107e-06`: what equals them.

A gold is a float by its form: a bare literal as Python writes it, with a point or an exponent. MATH's golds stand in
the box of a worked solution and are not; `\boxed{6.17}` is text for math-verify. How close an answer has to be follows
from the literal too:

- up to two decimals and no exponent: equal. It says all there is to say, as `142.0` and `1173896.6` do.
- more of them: within 0.005, so that cents are close enough, but never further than a thousandth of the gold, so that
  2.01e-6 is close to `2.0107e-06` and 0 is not.

Half the step between two floats at the gold comes on top. At a thousandth neither an answer that is off by one, nor
one with the other sign, nor one with the point elsewhere is close.
"""

import math
import re
from fractions import Fraction
from typing import NamedTuple

_LITERAL = re.compile(r"-?\d+(?:\.(?P<decimals>\d+))?(?P<exponent>e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_CENTS = Fraction(5, 1000)
_THOUSANDTH = Fraction(1, 1000)


class FloatGold(NamedTuple):
    """The number of a gold, how far from it an answer may be, and whether the literal has more than it needs."""

    value: Fraction
    tolerance: Fraction
    rounded: bool

    def text(self) -> str:
        """The number in digits alone, for math-verify: it reads the e of `1e+16` as Euler's number."""
        return str(self.value) if self.value.denominator == 1 else repr(float(self.value))

    def equals(self, readings: tuple[Fraction, ...]) -> bool:
        """Whether one of an answer's readings is close enough."""
        return any(abs(reading - self.value) <= self.tolerance for reading in readings)


def float_gold(solution: str) -> FloatGold | None:
    """The float that a whole gold is the literal of; None where it is anything else, a bare integer among them."""
    literal = _LITERAL.fullmatch(solution.strip())
    if literal is None or literal["decimals"] is literal["exponent"] is None:
        return None
    value, number = Fraction(literal[0]), float(literal[0])
    if not math.isfinite(number):
        return None
    rounded = literal["exponent"] is not None or len(literal["decimals"]) > 2
    rounded = rounded and value.denominator != 1  # 1e+16 is as whole as 142.0
    slack = min(_CENTS, abs(value) * _THOUSANDTH) if rounded else 0
    return FloatGold(value, slack + Fraction(math.ulp(number)) / 2, rounded)


def _digits(name: str) -> str:
    """Pattern of a number without sign: thousands apart by one kind of comma or space, or not at all."""
    grouped = rf"\d{{1,3}}(?P<{name}_gap>[, ])\d{{3}}(?:(?P={name}_gap)\d{{3}})*"
    return rf"(?P<{name}>(?:{grouped}|\d+)(?:\.\d*)?|\.\d+)"


_SIGN = "[-+\N{MINUS SIGN}]"
_MONEY = "(?:\\\\?[$]|[€£])"
_POWER = r"(?:\^\{?[23]\}?|[²³])"
# What a box may hold around a number: a name, `=` and the like before it, `\%` and a unit behind it.
_NUMBER = re.compile(
    r"(?:(?:[^\d=≈!<>\\]{0,40}(?:=|≈|\\approx)|approximately|about) ?)?"
    rf"{_MONEY}? ?(?P<sign>{_SIGN})? ?{_MONEY}? ?(?P<inner_sign>{_SIGN})?"
    rf"(?:(?:{_digits('whole')} ?)?\\frac ?\{{ ?{_digits('over')} ?\}} ?\{{ ?{_digits('under')} ?\}}"
    rf"|{_digits('left')} ?/ ?{_digits('right')}"
    rf"|{_digits('plain')})"
    rf"(?:e(?P<e>[-+]?\d{{1,3}})"
    rf"| ?(?:\\times|\\cdot|[×·*x]) ?10 ?\^ ?(?P<brace>\{{ ?)?(?P<power>{_SIGN}?\d{{1,3}})(?(brace) ?\}}))?"
    rf" ?{_MONEY}?(?P<percent> ?\\?%)? ?{_MONEY}?"
    rf'(?P<unit> ?"[^"\d]{{0,60}}"{_POWER}?| [a-z]{{2,}}(?:[ /][a-z]+){{0,5}}'
    rf"|(?P<metres> ?(?-i:[ckm]?m){_POWER}?))?\.?",
    re.ASCII | re.IGNORECASE,
)
_SPACING = re.compile(r"\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\s+")
_SILENT = re.compile(r"\\!|\\(?:left|right|displaystyle)(?![a-zA-Z])")
_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit) ?\{([^{}]*)\}")
_PARENTHESES = re.compile(r"\(((?:\{,\}|[^(),])*)\)")  # not around a comma, which may part two numbers
_SIZED_FRACTION = re.compile(r"\\[dt]frac(?![a-zA-Z])")
_BARE_ABOVE = re.compile(r"(\\frac ?)(\d)", re.ASCII)
_BARE_BELOW = re.compile(r"(\\frac ?\{[^{}]*\} ?)(\d)", re.ASCII)
# Two digits above at most: the three of `7 003/4` may be thousands.
_MIXED = re.compile(r"(?<![\d.,/^])([1-9]\d*(?:[, ]\d{3})*) (\d{1,2}) ?/ ?(\d+)(?![\d.,])", re.ASCII)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
# Not units: with these a number is no answer, or not this one.
_NO_UNITS = {"or", "and", "to", "not", "plus", "minus", "times", "hundred", "dozen", "pi"}


def number_readings(answer: str) -> tuple[Fraction, ...]:
    r"""The exact numbers that an answer may mean; none where it is no plain number.

    A plain number is a decimal, a fraction or a mixed number, in LaTeX or not: `-9{,}867{,}630`, `\$1{,}234.50`,
    `2.0107 \times 10^{-6}`, `x = 7\frac13\text{ m}`, `(7 1/3)`, `5 million`. A percentage means the share and the
    number in front of the sign, since a gold may be either. Digits are ASCII.

    Of the units of one letter only metres are known outside of a `\text`: another letter may be a variable.

    Note:
        Repeating decimals (`0.\overline{3}`) are not read.
    """
    match = _NUMBER.fullmatch(_plain(answer))
    if match is None or (match["sign"] and match["inner_sign"]):
        return ()
    if match["metres"] and re.search(_MONEY, match[0]):  # `\$5m` is five million
        return ()
    words = re.findall("[a-z]+", (match["unit"] or "").lower())
    magnitude = _magnitude(match)
    if magnitude is None or not _NO_UNITS.isdisjoint(words):
        return ()
    sign = -1 if (match["sign"] or match["inner_sign"] or "+") != "+" else 1
    value = sign * magnitude * _SCALES.get(words[0] if words else "", 1)
    is_share = match["percent"] or words[:1] == ["percent"]
    return (value, value / 100) if is_share else (value,)


def _plain(answer: str) -> str:
    r"""An answer without LaTeX's spacing and fonts. Words of a `\text` get quotes, to tell units from variables."""
    text = _SPACING.sub(" ", _SILENT.sub("", answer.replace('"', "?"))).strip().strip("$").strip()
    inside = _PARENTHESES.fullmatch(text)
    text = _braced((inside[1].strip() if inside else text).replace("{,}", ","))
    whole = _WRAPPER.fullmatch(text)
    return _WRAPPER.sub(_quoted, whole[1].strip() if whole else text)


def _braced(text: str) -> str:
    r"""`\dfrac13`, `\frac1{3}` and `\frac{1}3` as `\frac{1}{3}`, and `7 1/3` as `7\frac{1}{3}`."""
    text = _SIZED_FRACTION.sub(r"\\frac", text)
    text = _BARE_BELOW.sub(r"\1{\2}", _BARE_ABOVE.sub(r"\1{\2}", text))
    return _MIXED.sub(r"\1\\frac{\2}{\3}", text)


def _quoted(wrapper: re.Match) -> str:
    return wrapper[0] if re.search(r"\d", wrapper[1]) else f'"{wrapper[1].strip()}"'


def _magnitude(match: re.Match) -> Fraction | None:
    """The number without its sign; None where it divides by zero."""
    part = {name: Fraction(re.sub("[, ]", "", match[name])) for name in _PARTS if match[name]}
    above, below = part.get("over", part.get("left")), part.get("under", part.get("right"))
    if below == 0:
        return None
    power = int((match["e"] or match["power"] or "0").replace("\N{MINUS SIGN}", "-"))
    value = part["plain"] if below is None else part.get("whole", 0) + above / below
    return value * Fraction(10) ** power


_PARTS = ("whole", "over", "under", "left", "right", "plain")
