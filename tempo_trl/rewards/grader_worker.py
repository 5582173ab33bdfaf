r"""The child process of `grader.py`: compares answers with math-verify until its stdin closes.

It writes `ready`, then reads one JSON line `[gold, answer]` at a time and writes `[verdict, CPU seconds]`; the verdict
is null if undecided. It is started by its path and imports nothing of tempo_trl, so that it works in an uninstalled
checkout and beside any file of the user. An error that math-verify does not catch ends the process.

The limit is the CPU time of this process, not wall time, so that verdicts do not depend on other load of the machine.

math-verify searches a text for something that it can read, and calls numbers equal whose difference is small. Here a
box is read as a whole or not at all, and numbers are compared exactly.
"""

import contextlib
import json
import math
import os
import re
import resource
import signal
import sys
import time
from itertools import product
from typing import TextIO

import math_verify.grader
import sympy
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify
from math_verify.grader import is_atomic_or_pct_atomic, is_relation, should_treat_as_complex

# Per comparison, with two parses. Of 750 MATH golds the slowest took 0.07 s.
CPU_SECONDS = 3.0
# After it the kernel ends the process, because no Python handler runs during C code.
MOST_CPU_SECONDS = CPU_SECONDS + 2.0
# A power tower requests petabytes. Fail long before, because training needs the memory.
MEMORY_BYTES = 4 * 2**30

DECIMALS = 6  # math-verify's default, for numbers of ordinary size
CLOSED_DIGITS = 40  # of closed forms that are not rational
MOST_VARIABLES = 4  # of formulas that are tried with both signs of each
LEAST_DIGITS = 3  # significant digits of a small gold that rounding to decimals must keep

Value = sympy.Basic | sympy.MatrixBase  # what a text is read as


class OutOfTime(BaseException):
    """The CPU time of a comparison is used up. A BaseException, which math-verify does not catch."""


def compare(gold: str, answer: str) -> bool | None:
    """Whether math-verify considers answer and gold equal, both boxed; None if time or memory runs out."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, 0.1)  # repeated, because a destructor may swallow the first
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_SECONDS)
    try:
        return is_equal(gold, answer)
    except (OutOfTime, MemoryError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def is_equal(gold: str, answer: str) -> bool:
    """Whether one reading of the answer equals one of the gold, with math-verify's defaults except for numbers."""
    return any(_equal(*pair) for pair in product(readings(gold), readings(answer)))


def _equal(gold: Value, answer: Value) -> bool:
    if is_relation(gold) and is_relation(answer) and not (gold.free_symbols or answer.free_symbols):
        return gold == answer  # math-verify solves `3 = 5` and `2 = 5`: no solution
    options = {"timeout_seconds": None, "allow_set_relation_comp": True, **precision(gold)}
    return verify(gold, answer, **options) or _equal_where_real(gold, answer)


# Units are dropped before, where they stand behind a number: math-verify's rule takes the t of `3 + 2t` for a unit.
_NORMAL = NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="none")
_MIXED = re.compile(r"(?<![\d.,/^_])(\d+)\s+(\d{1,2})\s*/\s*(\d+)(?![\d.,])")
# math-verify puts 5 in braces, which its parser does not read.
_LOGARITHM = re.compile(r"\\log\s*_\s*(\d|\{\d+\})\s*(\d+)(?![.,]?\d)")
_BARE_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:(\\pi)\s*(\w|\\pi)|(\w)\s*(\\pi))")
_PRIMES = re.compile(r"(?<=[A-Za-z)])'+")
_OPERATORS = "cup|cap|in|notin|setminus|times|cdot|leq?|geq?|lt|gt|neq?|pm|mp|approx|quad|qquad|right|left"
_FACTOR = r"(?:[\d)}\]!%]|(?<![\\a-zA-Z])[a-zA-Z])"
_WORD = r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|mathrm)\s*\{[^{}]*[A-Za-z]{2}[^{}]*\}"
# What math-verify reads as something else.
_MISREAD = re.compile(
    r"\\[lcdv]?dots[cbmio]?(?![a-zA-Z])|\.\.|…|⋯"  # a list from 2 to 8 as three numbers
    # Numbers side by side as a sum or as one number. Behind a letter they may be arguments, as in `\binom 5 2`.
    r"|(?<![\w.^_])(?<![a-zA-Z_^]\s)\d[\d.]*(?:[\s~]|\\[,;: ]|\\q?quad(?![a-zA-Z]))+\d|\d\s*['\"]+\s*\d"
    # Words as factors, in any order.
    rf"|{_WORD}\s*(?:\w|\\(?!(?:{_OPERATORS})(?![a-zA-Z]))[a-zA-Z])|{_FACTOR}\s*{_WORD}"
    r"|(?<![a-zA-Z\\])(?:to|mod|per|of|is|from|by|at|vs|than|if|when|for|with|until|over|choose)(?![a-zA-Z])"
    r"|\\equiv(?![a-zA-Z])|\\(?:angle|triangle\w*)(?![a-zA-Z])(?!.*=)"
)
_CONNECTIVE = r"\s*(?:,\s*)?(?:\\(?:text|mbox)\s*\{{\s*{0}\s*\}}|(?<![a-zA-Z\\]){0}(?![a-zA-Z]))\s*"
_CONNECTIVES = [
    (re.compile(_CONNECTIVE.format("or")), sympy.Union),
    (re.compile(_CONNECTIVE.format("and")), sympy.Intersection),
]
_LISTED = re.compile(f"{_CONNECTIVES[0][0].pattern}|{_CONNECTIVES[1][0].pattern}")


def readings(text: str) -> list[Value]:
    r"""What a whole text may mean; empty if a part of it is not read, as in `2 \to 5`.

    `x < 3 or x > 5` is a union of intervals, too. `1:2:3` is a ratio: numbers in proportion to the first.
    """
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    if _MISREAD.search(_LISTED.sub(",", text)):
        return []
    text = _PRIMES.sub(lambda primes: f"^{{{len(primes[0]) * 'prime '}}}", text)  # dropped by math-verify
    if text.count(":") > 1:
        return _ratio(text.split(":"))
    for connective, operation in _CONNECTIVES:
        parts = connective.split(text)
        relations = [each for part in parts for each in _read(part)] if len(parts) > 1 else []
        if len(relations) == len(parts) and all(map(is_relation, relations)):
            return [*_sets(operation, relations), *_read(text)]
    return _read(text)


def _read(text: str) -> list[Value]:
    text = _BARE_FRACTION.sub(r"\\frac{\1\3}{\2\4}", _LOGARITHM.sub(r"\\log_\1(\2)", text))
    normal = normalize_latex(text, _NORMAL).removeprefix(r"\approx")
    with contextlib.suppress(Exception):  # the parser raises Exception itself for whatever it does not read
        is_real = not should_treat_as_complex(normal)
        expression = latex2sympy(normal, is_real=is_real, normalization_config=None)
        # The parser takes the i of `1+2i` for the imaginary unit, the i of `\frac{1}{1+i}` for a variable.
        names = {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i" and not is_real}
        return [expression.xreplace(names)]
    return []


def _sets(operation: type, relations: list[sympy.Basic]) -> list[sympy.Basic]:
    with contextlib.suppress(Exception):  # sympy solves in one variable only
        return [operation(*(relation.as_set() for relation in relations))]
    return []


def _ratio(parts: list[str]) -> list[sympy.Tuple]:
    terms = [each for part in parts for each in _read(part)]
    if len(terms) < len(parts) or terms[0] == 0:
        return []
    return [sympy.Tuple(sympy.Symbol("ratio"), *(term / terms[0] for term in terms))]


def precision(gold: object) -> dict[str, int]:
    r"""Decimals that tell a gold from its neighbours, for the comparison with a decimal number.

    math-verify rounds to a number of decimals, whatever the size of the numbers: with six, `0.0000672` is `0.0000674`
    and `\frac{1}{2^{98}}` is 0.
    """
    elements = gold.args if isinstance(gold, (sympy.Tuple, sympy.FiniteSet)) else (gold,)
    numbers = [each for each in elements if isinstance(each, sympy.Basic) and each.is_number]
    decimals = max((_decimals(each) for each in numbers if isinstance(each, sympy.Float)), default=0)
    return {"float_rounding": max(DECIMALS, decimals, _leading_zeros(numbers) + 1 + LEAST_DIGITS)}


def _decimals(number: sympy.Float) -> int:
    """Decimals that a number is written with."""
    denominator = sympy.Rational(str(number)).q
    return next(places for places in range(5000) if 10**places % denominator == 0)


def _leading_zeros(numbers: list[sympy.Basic]) -> int:
    """Zeros behind the point of the smallest number."""
    sizes = [abs(number.evalf(5)) for number in numbers]
    exponents = [math.floor(sympy.log(size, 10).evalf(5)) for size in sizes if size.is_finite and size > 0]
    return max(0, -1 - min(exponents, default=0))


_math_verifys = math_verify.grader.sympy_numeric_eq
_by_solving = math_verify.grader.sympy_solve_and_compare
_by_simplifying = math_verify.grader.sympy_symbolic_eq


def numerically_equal(a: Value, b: Value, float_rounding: int, numeric_precision: int) -> bool:
    """Replaces math-verify's comparison of numbers.

    That one rounds inner factors under 1e-15 to 0 (`chop`), so that fractions with a long denominator are all equal.
    Here a decimal number is compared with what is not one within half of its last decimal, and all else exactly.
    """
    if isinstance(a, (sympy.MatrixBase, sympy.MatrixExpr)) or isinstance(b, (sympy.MatrixBase, sympy.MatrixExpr)):
        return _math_verifys(a, b, float_rounding, numeric_precision)  # calls this function for the elements
    if all(is_atomic_or_pct_atomic(each, sympy.Integer) for each in (a, b)):
        return _math_verifys(a, b, float_rounding, numeric_precision)  # `9\%` is `9`
    if not (isinstance(a, sympy.Expr) and isinstance(b, sympy.Expr)):
        return False
    is_decimal = any(is_atomic_or_pct_atomic(each, sympy.Float) for each in (a, b))
    a, b = _exact(a), _exact(b)
    if not (a.is_number and b.is_number):
        return sympy.expand(a - b) == 0
    slack = min(sympy.Rational(1, 2 * 10**float_rounding), abs(a) / 1000) if is_decimal else 0
    return abs(a - b) <= slack if a.is_Rational and b.is_Rational else _is_close(a, b, slack)


def symbolically_equal(a: Value, b: Value) -> bool:
    """Replaces math-verify's comparison by simplifying, which rounds a sum with a decimal number to 15 digits."""
    return _by_simplifying(*(_exact(each) if isinstance(each, sympy.Expr) else each for each in (a, b)))


def solved_equally(gold: sympy.Basic, answer: sympy.Basic, *digits: int) -> bool:
    """Replaces math-verify's comparison of equations by their solutions, to which two without any are equal."""
    return bool(sympy.solve(gold, gold.free_symbols)) and _by_solving(gold, answer, *digits)


def _exact(expression: sympy.Basic) -> sympy.Basic:
    """An expression with fractions for decimal numbers, evaluated."""
    decimals = expression.atoms(sympy.Float)
    return expression.xreplace({number: sympy.Rational(str(number)) for number in decimals}).doit()


def _is_close(a: sympy.Expr, b: sympy.Expr, slack: sympy.Number) -> bool:
    """Whether two closed forms agree to `CLOSED_DIGITS` digits, or up to an absolute slack."""
    ours, theirs = (each.evalf(CLOSED_DIGITS + 10) for each in (a, b))
    if ours.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan) or theirs.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan):
        return ours == theirs
    return bool(abs(ours - theirs) <= max(slack, max(abs(ours), abs(theirs)) * sympy.Float(10) ** -CLOSED_DIGITS))


def _equal_where_real(gold: sympy.Basic, answer: sympy.Basic) -> bool:
    r"""Whether two formulas with roots or logarithms are equal for positive variables: `\sqrt{1/n}` and `1/\sqrt{n}`.

    They must agree for negative variables, too, where both are real: `\sqrt{x^2}` is not `x`.
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr) and _has_branches(gold - answer)):
        return False
    ours, theirs = _exact(gold), _exact(answer)
    symbols = sorted((ours - theirs).free_symbols, key=str)
    positive = {symbol: sympy.Symbol(symbol.name, positive=True) for symbol in symbols}
    with contextlib.suppress(Exception):  # as in math-verify: what sympy does not simplify is not equal
        return sympy.simplify((ours - theirs).subs(positive)) == 0 and _agree(ours, theirs, symbols)
    return False


def _has_branches(expression: sympy.Expr) -> bool:
    """Whether a formula has roots or logarithms of variables, and not too many variables."""
    parts = _roots_and_logarithms(expression)
    return len(expression.free_symbols) <= MOST_VARIABLES and any(part.free_symbols for part in parts)


def _roots_and_logarithms(expression: sympy.Expr) -> list[sympy.Expr]:
    return [
        *(power for power in expression.atoms(sympy.Pow) if not power.exp.is_integer),
        *expression.atoms(sympy.log),
    ]


def _agree(ours: sympy.Expr, theirs: sympy.Expr, symbols: list[sympy.Symbol]) -> bool:
    """Whether two formulas have equal values, where both are real, at a point of each combination of signs."""
    parts = [ours, theirs, *_roots_and_logarithms(ours), *_roots_and_logarithms(theirs)]
    for signs in product((1, -1), repeat=len(symbols)):
        sizes = [sign * sympy.Rational(7 + 4 * place, 5) for place, sign in enumerate(signs)]
        values = [part.subs(dict(zip(symbols, sizes, strict=True))).evalf(20) for part in parts]
        difference = abs(values[0] - values[1])
        if all(value.is_real for value in values) and difference > 1e-9 * max(1, abs(values[0])):
            return False
    return True


def limit_memory() -> None:
    """Let allocations beyond `MEMORY_BYTES` fail with MemoryError."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses this limit; the CPU time is limited there, too
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def take_stdout() -> TextIO:
    """The parent's pipe, as a file of our own: what a library prints goes to stderr instead of into the protocol."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def give_up(signum: int, frame: object) -> None:
    """Handle SIGPROF."""
    raise OutOfTime


def main() -> None:
    """Announce `ready`, then answer each line of stdin."""
    limit_memory()
    math_verify.grader.sympy_numeric_eq = numerically_equal
    math_verify.grader.sympy_symbolic_eq = symbolically_equal
    math_verify.grader.sympy_solve_and_compare = solved_equally
    replies = take_stdout()
    is_equal("1", "2")  # builds the parser's tables: the first answer must not pay for them
    signal.signal(signal.SIGPROF, give_up)
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    print("ready", file=replies)
    for request in sys.stdin:
        started = time.process_time()
        verdict = compare(*json.loads(request))
        print(json.dumps([verdict, time.process_time() - started]), file=replies)


if __name__ == "__main__":
    main()
