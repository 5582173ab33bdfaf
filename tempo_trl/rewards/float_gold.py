r"""Compare answers with golds that are floats, such as GSM-Hard's `-9867630.0`, `1234567.3333` and `2.0107e-06`.

A gold counts as a float by its form: a bare literal as Python writes it, with a point or an exponent. MATH's golds are
in the box of a worked solution and do not count; math-verify reads `\boxed{6.17}` as text. The tolerance depends on
the literal, too:

- up to two decimals and no exponent: the answer must be equal, because `142.0` and `1173896.6` are exact.
- otherwise: within 0.005, so that cents suffice, but at most a thousandth of the gold, so that 2.01e-6 is close to
  `2.0107e-06` and 0 is not.

Half the distance between neighbouring floats at the gold is added. With a thousandth, an answer that is off by one,
has the other sign, or a shifted decimal point is not close.
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
