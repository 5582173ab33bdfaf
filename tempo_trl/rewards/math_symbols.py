r"""Write markup, Unicode and ASCII mathematics as LaTeX: `**73**`, `√2`, `x²`, `pi/2` and `exp(16)-1`."""

import re
import unicodedata
from collections.abc import Callable

_TEXT = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|math[a-z]{2,4}|operatorname\*?)\s*\{[^{}]*\}")


def outside_text(rule: Callable[[str], str], text: str) -> str:
    r"""A rule applied to what is not in `\text{...}` and the like."""
    words = _TEXT.findall(text)
    formulas = [rule(part) for part in _TEXT.split(text)]
    return "".join(part for pair in zip(formulas, [*words, ""], strict=True) for part in pair)


_WRAPPED = re.compile(r"(?P<mark>\*{1,3}|_{1,3}|`{1,3})(?P<inside>[^*`]+?)(?P=mark)")
_DELIMITED = re.compile(r"\\\((?P<inline>.*)\\\)|\\\[(?P<display>.*)\\\]|\$\$?(?P<dollars>[^$]*)\$\$?", re.DOTALL)
_COLOUR = re.compile(r"\\(?:color|textcolor|colorbox)\s*(?:\[[^\]]*\])?\s*\{[^{}]*\}\s*")
_FONT = re.compile(
    r"\\(?:displaystyle|textstyle|boldsymbol|mathbf|mathit|mathsf|bm|pmb|bold|underline|ensuremath|bf|it|sf|tt"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])\s*"
)
_ROMAN = re.compile(r"\{\s*\\rm(?![a-zA-Z])([^{}]*)\}")
_BRACED = re.compile(r"\{+([^{}]*)\}+")


def without_markup(text: str) -> str:
    r"""`**73**`, `` `73` ``, `\(73\)`, `\color{red}{73}`, `\mathbf{73}` and `{\bf 73}` as `73`."""
    text = _FONT.sub("", _COLOUR.sub("", _ROMAN.sub(r"\\text{\1}", text))).strip().removeprefix("=").strip()
    for _ in range(3):  # `**$73$**`
        marked, delimited = _WRAPPED.fullmatch(text), _DELIMITED.fullmatch(text)
        braced = _BRACED.fullmatch(text)
        if marked:
            text = marked["inside"].strip()
        elif delimited:
            text = next(inside for inside in delimited.groups() if inside is not None).strip()
        elif braced:
            text = braced[1].strip()
    return text


_SPELLINGS = r"""
times × / cdot · ⋅ ∙ / pm ± / cup ∪ / cap ∩ / to → / Rightarrow ⇒
le ≤ ⩽ \leqslant / ge ≥ ⩾ \geqslant / ne ≠ / approx ≈ / in ∈ / emptyset ∅ Ø \varnothing / infty ∞
alpha α / beta β / gamma γ / delta δ / epsilon ε / zeta ζ / eta η / theta θ / iota ι / kappa κ / lambda λ / mu μ
nu ν / xi ξ / pi π / rho ρ / sigma σ / tau τ / upsilon υ / phi φ / chi χ / psi ψ / omega ω
"""
_COMMANDS = [command.split() for command in re.split("[/\n]", _SPELLINGS.strip())]
_SIGNS = {sign: rf"\{name} " for name, *signs in _COMMANDS for sign in signs}
_SIGNS |= {"÷": "/", "⁄": "/", "−": "-", "–": "-", "′": "'", r"\ast": "*", r"\lbrace": r"\{", r"\rbrace": r"\}"}
_SIGNS |= {sign: rf"\mathbb{{{letter}}}" for sign, letter in zip("ℝℤℕℚℂ", "RZNQC", strict=True)}
_SIGN = re.compile("|".join(re.escape(sign) + ("(?![a-zA-Z])" if sign.isascii() else "") for sign in _SIGNS))
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣʸᵏᵐ"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉₊₋ₙᵢₖₘₓ"
_RAISED_RUN, _LOWERED_RUN = re.compile(f"[{_RAISED}]+"), re.compile(f"[{_LOWERED}]+")
_SHARE = re.compile("[¼-¾⅐-⅞]")
_ROOT = re.compile(r"(?P<sign>[√∛∜])\s*(?P<bare>\d+(?:\.\d+)?|[a-zA-Z])?")
_INDEX = {"√": "", "∛": "[3]", "∜": "[4]"}


def with_unicode_in_latex(text: str) -> str:
    r"""`√2`, `½`, `x²`, `∞` and `θ` as `\sqrt{2}`, `\frac{1}{2}`, `x^{2}`, `\infty` and `\theta`."""
    return outside_text(_from_unicode, text)


def _from_unicode(text: str) -> str:
    text = _SHARE.sub(lambda share: r"\frac{{{}}}{{{}}}".format(*_plain(share[0]).split("⁄")), text)
    text = _RAISED_RUN.sub(lambda power: f"^{{{_plain(power[0])}}}", text)
    text = _LOWERED_RUN.sub(lambda index: f"_{{{_plain(index[0])}}}", text)
    text = _ROOT.sub(
        lambda root: rf"\sqrt{_INDEX[root['sign']]}" + (f"{{{root['bare']}}}" if root["bare"] else ""), text
    )
    return _SIGN.sub(_command, _with_braced_arguments(text))


def _command(sign: re.Match) -> str:
    """The command of a sign, apart from a letter behind it."""
    is_apart = sign.string[sign.end() : sign.end() + 1].isalpha()
    return _SIGNS[sign[0]] if is_apart else _SIGNS[sign[0]].rstrip()


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")


_FUNCTIONS = "arcsin arccos arctan sinh cosh tanh sin cos tan csc cot ln log"
_GREEK = "alpha beta gamma delta epsilon theta lambda mu sigma tau phi omega pi"
_NAMES = {name: rf"\{name}" for name in f"{_FUNCTIONS} {_GREEK}".split(" ")}
_NAMES |= {"infinity": r"\infty", "infty": r"\infty", "inf": r"\infty", "sqrt": r"\sqrt", "exp": "e^", "deg": "°"}
_NAMES |= {"asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan"}
_NAME = re.compile(rf"(?<![a-zA-Z\\])(?:{'|'.join(sorted(_NAMES, key=len, reverse=True))})(?![a-zA-Z])")
_BARE_ROOT = re.compile(r"\\sqrt\s*(\d+(?:\.\d+)?|[a-zA-Z](?![a-zA-Z]))")
_EULER = re.compile(r"\\(?:mathrm|text|operatorname)\s*\{\s*e\s*\}")
_RELATIONS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "->": r"\to ", "=>": r"\Rightarrow ", "**": "^"}
_RELATION = re.compile("|".join(map(re.escape, _RELATIONS)))
_POWER_OF_TEN = re.compile(r"(?<![\w.^])(\d+(?:\.\d+)?)e([-+]?\d{1,3})(?![\w.])", re.ASCII)
_UNION = re.compile(r"(?<=[)\]])\s*U\s*(?=[(\[])")


def with_ascii_in_latex(text: str) -> str:
    r"""`pi/2`, `sqrt(2)`, `exp(16)-1` and `\mathrm{e}` as `\pi/2`, `\sqrt{2}`, `e^{16}-1` and `e`."""
    return outside_text(_from_ascii, _EULER.sub("e", text))


def _from_ascii(text: str) -> str:
    text = _POWER_OF_TEN.sub(r"\1 \\times 10^{\2}", text)
    text = _UNION.sub(r" \\cup ", _RELATION.sub(lambda relation: _RELATIONS[relation[0]], text))
    text = _NAME.sub(lambda name: _NAMES[name[0]], text.replace(r"\exp", "exp"))
    return _with_braced_arguments(_BARE_ROOT.sub(r"\\sqrt{\1}", text))


_OPENS = re.compile(r"(?:\\sqrt(?:\[\d\])?|\^)\s*\(")


def _with_braced_arguments(text: str) -> str:
    r"""`\sqrt(...)` and `^(...)` with braces instead of the parentheses."""
    done = ""
    while (call := _OPENS.search(text)) and (end := _closing(text, call.end())) is not None:
        done += text[: call.end() - 1] + "{"
        text = text[call.end() : end] + "}" + text[end + 1 :]
    return done + text


def _closing(text: str, start: int) -> int | None:
    """Index of the parenthesis that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return None


_REPEATING = re.compile(
    r"(?<![\d.])(?P<whole>\d*)\.(?P<fixed>\d*)(?:\\(?:overline|bar|dot)\s*(?:\{(?P<period>\d+)\}|(?P<digit>\d)))(?!\d)",
    re.ASCII,
)


def with_repeating_decimals(text: str) -> str:
    r"""`0.\overline{3}` as `\frac{3}{9}`."""
    return _REPEATING.sub(_as_fraction, text)


def _as_fraction(decimal: re.Match) -> str:
    whole, fixed, period = decimal["whole"], decimal["fixed"], decimal["period"] or decimal["digit"]
    above = int(whole + fixed + period) - int(whole + fixed or "0")
    return rf"\frac{{{above}}}{{{(10 ** len(period) - 1) * 10 ** len(fixed)}}}"
