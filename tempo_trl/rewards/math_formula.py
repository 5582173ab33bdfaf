r"""Compare formulas with math-verify, where it reads both as a whole.

math-verify drops what it does not know: it reads `2112_6` as 2112, `3 4` as 7 and `f'` as f. Here a formula consists
of what is listed below. Anything else is not read.
"""

import re

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify
from sympy.core.relational import GreaterThan, Relational, StrictGreaterThan

_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|nu|rho|sigma|tau|phi|varphi|psi|omega|Delta|Omega|pi|infty"
_FUNCTIONS = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp|sqrt|frac|binom|cdot|times|div|cup|cap"
_RELATION = r"\\(?:lt|gt|leq?|geq?|neq?)(?![a-zA-Z])|[<>]=?|="
_WHOLE = re.compile(
    rf"(?:\\(?:{_GREEK}|{_FUNCTIONS})(?![a-zA-Z])|{_RELATION}|\\(?:begin|end) ?\{{[pb]matrix\}}|\\\\"
    r"|[-+*/^!|&,(){}\[\] ]|[a-zA-Z]{1,2}+(?![a-zA-Z])|(?<=[a-zA-Z])_|(?:\d++(?:\.\d++)?+|\.\d++)(?! \d))+",
    re.ASCII,
)
_WORD = re.compile(r"(?<=[\w)\]}!] )[a-zA-Z]{2} ?(?=[\w(\[{\\])")  # between two values, as in `3 or 5`
_TWICE = re.compile(r"\^ ?(?:\d+|[a-zA-Z]|\{[^{}]*\}) ?\^")  # a power behind a power, which LaTeX does not read
_LOGARITHM = re.compile(r"\\log ?_ ?(\w)")  # `\log_2 10` is not two numbers side by side
# math-verify reads numbers side by side as a mixed number: `2(3)` as 5.
_FRACTION = re.compile(r"(?<![\d.^_)}])(\d+) ?/ ?(\d+)(?![\d.])")  # `1/2x` is a half of x, as `1/2(x)` is of (x)
_BINOMIAL = r"\\binom ?\{\w+\} ?\{\w+\}"
_PRODUCT = re.compile(rf"({_BINOMIAL}) ?(?=[\d(]|\\(?:binom|frac))|((?<![\^_])\d|\)) ?(?=\(|\\binom)")
_NORMAL = NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="none")
_CASED = ConversionConfig(lowercase_symbols=False)
DIGITS = 100  # of two numbers that are compared


def is_same_formula(gold: str, answer: str) -> bool:
    """Whether two formulas are read as a whole and have the same value."""
    gold, answer = map(_unambiguous, (gold, answer))
    if not (_is_whole(gold) and _is_whole(answer)):
        return False
    try:
        return _is_same(_read(gold), _read(answer))
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the parser raises Exception itself for whatever it does not read
        return False


def _unambiguous(text: str) -> str:
    for pattern, instead in ((_LOGARITHM, r"\\log_{\1}"), (_FRACTION, r"\\frac{\1}{\2}"), (_PRODUCT, r"\1\2 \\cdot ")):
        text = pattern.sub(instead, text)
    return text


def _is_whole(text: str) -> bool:
    read = _WHOLE.fullmatch(text) and not (_WORD.search(text) or _TWICE.search(text))
    return bool(read) and len(re.findall(_RELATION, text)) <= 1


def _read(text: str) -> sympy.Basic | sympy.MatrixBase:
    normal = normalize_latex(text, _NORMAL)
    return latex2sympy(normal, is_real=True, normalization_config=None, conversion_config=_CASED)


def _is_same(gold: sympy.Basic | sympy.MatrixBase, answer: sympy.Basic | sympy.MatrixBase) -> bool:
    if isinstance(gold, Relational) and isinstance(answer, Relational):
        (relation, ours), (other, theirs) = _one_sided(gold), _one_sided(answer)
        may_swap = relation in (sympy.Eq, sympy.Ne)
        return relation is other and (_is_same(ours, theirs) or (may_swap and _is_same(ours, -theirs)))
    if isinstance(gold, Relational) or isinstance(answer, Relational):
        return False
    options = {"numeric_precision": DIGITS, "timeout_seconds": None, "raise_on_error": True}
    return verify(_exact(gold), _exact(answer), **options)


def _one_sided(relation: Relational) -> tuple[type, sympy.Expr]:
    """`a > b` as `b - a < 0`."""
    if isinstance(relation, (GreaterThan, StrictGreaterThan)):
        relation = relation.reversed
    return type(relation), relation.lhs - relation.rhs


def _exact(value: sympy.Basic | sympy.MatrixBase) -> sympy.Basic | sympy.MatrixBase:
    """A value with fractions for decimals, and with the imaginary unit for i."""
    exact = {number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)}
    return value.xreplace(exact | {sympy.Symbol("i", real=True): sympy.I}).doit()
