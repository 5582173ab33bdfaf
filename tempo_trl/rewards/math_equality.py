r"""The second rule of grading: two boxes are equal as a whole, or they are not.

Boxes are equal if one of these holds:

- they are the same text, up to spaces, `\left` and `\right`, fonts and a final full stop;
- they are plain numbers (`1{,}800`, `\frac12`, `2.5e-3`) of exactly the same value;
- they are formulas that math-verify reads as a whole, of the same value ([`~tempo_trl.rewards.math_formula`]).

The parts of a list are compared one by one: in order between parentheses or brackets, which must be the same, and
where parts have names; in any order between braces or without brackets. Brackets around one value do not count. A
`\text{...}` or degrees at the end and `\$` in front are a unit, `x =` in front is a name: each must be equal, or
absent in one of the boxes. `\%` must be in both or in neither. What a unit means is not known: `100\text{ cm}` is not
`1\text{ m}`, and `5\text{ million}` is 5. All else in words is compared as text, as is what math-verify would drop
from a formula: dots, arrows, colons, a second relation, `and` and `or`.
"""

import re
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

_FONTS = r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|math(?:rm|bf|it|sf)|boldsymbol|bm|boxed|fbox) ?"
_FONT = re.compile(_FONTS + r"\{([^{}]*)\}")
_LETTER = re.compile(r"\\math(?:rm|bf|it|sf) ?\{(\w)\}")
_SILENT = re.compile(r"\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![a-zA-Z])|\\!|(?<!\\)\$")
_SPACES = re.compile(r"(?:\s|(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z]))+")
_THOUSANDS = re.compile(r"(?<![\d.^_])[1-9]\d{0,2}(?:(?:\{,\}|, ?\\!|\\[,!]) ?\d{3})+(?!\d)", re.ASCII)
_DEGREES = re.compile(r" ?(?:\^ ?(?:\{ ?\\circ ?\}|\\circ(?![a-zA-Z]))|\\degree|°)")
_FRAC = re.compile(r"\\[dtc](frac|binom)(?![a-zA-Z])")
_STOP = re.compile(r"(?<![.\\])[.,;](?=[ }]*$)")
_DOTS = re.compile(r"\\[lcdv]?dots|\.\.|…")


def is_equal(gold: str, answer: str) -> bool:
    """Whether two boxes are equal. sympy may take forever: [`~tempo_trl.rewards.grader`] has limits."""
    return _is_equal(_cleaned(gold), _cleaned(answer))


def _is_equal(gold: str, answer: str) -> bool:
    if plain_text(gold) == plain_text(answer):
        return True
    if _DOTS.search(gold + answer):
        return False
    ours, theirs = _taken_apart(gold), _taken_apart(answer)
    agree = (a == b or "" in (a, b) for a, b in ((ours.name, theirs.name), (ours.unit, theirs.unit)))
    return all(agree) and ours.percent == theirs.percent and _is_same_value(ours.value, theirs.value)


def _cleaned(text: str) -> str:
    """A box without what changes nothing: LaTeX's spacing, dollars, fonts around all of it, a final stop."""
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    text = _LETTER.sub(r" \1", _SPACES.sub(" ", _SILENT.sub("", text)))
    text = _STOP.sub("", _FRAC.sub(r"\\\1", text.replace("\N{MINUS SIGN}", "-")).strip()).strip()
    whole = _FONT.fullmatch(text)
    return _cleaned(whole[1]) if whole else text


def unstyled(text: str) -> str:
    """A text without fonts and LaTeX's spacing, and without a final stop."""
    return _STOP.sub("", _FONT.sub(r"\1", _cleaned(text))).strip()


def plain_text(text: str) -> str:
    """A text without spaces, but for those between digits, fonts, braces around one character, and a final stop."""
    return re.sub(r"(?<!\d) | (?!\d)", "", re.sub(r"(?<!\\)\{(\w)\}", r"\1", unstyled(text)))


class _Parts(NamedTuple):
    name: str
    value: str
    unit: str
    percent: bool


_NAME = re.compile(
    r"((?:[A-Za-z]|\\[a-z]+)(?:_\w|_\{\w+\})?(?: ?\([A-Za-z, ]+\))?|\([A-Za-z](?: ?, ?[A-Za-z])+\))"
    r" ?(?:=|\\in(?![a-z])) ?(?=[^=<>]*$)"
)
_UNIT = re.compile(
    rf" ?{_FONTS}\{{(?![^{{}}]*\b(?:and|or)\b)(?=[^{{}}]*(?:[^\W\d_]|[€£]))[^{{}}\d]*\}}(?:\^\{{?-?\d\}}?)?"
)
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")  # of which degrees are not the unit


def _taken_apart(text: str) -> _Parts:
    r"""`x = 5\text{ cm}` as its name, value and unit."""
    text = _DEGREES.sub(r"\\text{ degrees}", text)
    name = _NAME.match(text)
    text = text[name.end() :] if name else text
    end = len(text)
    for unit in [] if _ANGLE.search(text) else reversed([*_UNIT.finditer(text)]):
        end = unit.start() if unit.end() == end else end
    value, unit = text[:end], text[end:]
    value, money = re.subn(r"^(-?) ?\\\$ ?", r"\1", value)
    value, percent = re.subn(r" ?\\?%$", "", value)
    unit = "$" * bool(money) + plain_text(unit)
    return _Parts(plain_text(name[1]) if name else "", value.strip(), unit, percent == 1)


_LETTERS = re.compile("[A-Za-z]+")


def _is_same_value(gold: str, answer: str) -> bool:
    if not (gold and answer) or plain_text(gold) == plain_text(answer):
        return bool(gold and answer)
    ours, theirs = _number(gold), _number(answer)
    if ours is not None and theirs is not None:
        return ours == theirs
    (brackets, parts), (their_brackets, their_parts) = _listed(gold), _listed(answer)
    if len(parts) > 1 or len(their_parts) > 1:
        in_order = bool(brackets) or "=" in gold + answer
        return brackets == their_brackets and _are_same(parts, their_parts, in_order)
    if (parts, their_parts) != ([gold], [answer]):  # brackets around one value
        return _is_equal(parts[0], their_parts[0])
    if _LETTERS.fullmatch(gold) and _LETTERS.fullmatch(answer):  # two words, which a formula would take for products
        return False
    from tempo_trl.rewards.math_formula import is_same_formula

    return is_same_formula(gold if ours is None else str(ours), answer if theirs is None else str(theirs))


def _are_same(ours: list[str], theirs: list[str], in_order: bool) -> bool:
    """Whether parts are equal one by one."""
    if len(ours) != len(theirs) or in_order:
        return len(ours) == len(theirs) and all(map(_is_equal, ours, theirs))
    left = list(theirs)
    for part in ours:
        match = next((each for each in left if _is_equal(part, each)), None)
        if match is None:
            return False
        left.remove(match)
    return True


_BRACKET = re.compile(r"\\?[{}]|[()\[\],]")
_ENCLOSED = re.compile(r"(?P<left>\(|\[|\\\{)(?P<inside>.*)(?P<right>\)|\]|\\\})")


def _listed(text: str) -> tuple[str, list[str]]:
    r"""The brackets around a list, empty for those of a set, and its parts: one part if it is not a list."""
    if _number(text) is not None:  # `1,800`
        return "", [text]
    around, brackets = _ENCLOSED.fullmatch(text), ""
    if around and all(depth >= 0 for _, depth in _depths(around["inside"])):
        text, brackets = around["inside"], (around["left"] + around["right"]).replace(r"\{\}", "")
    commas = [place for place, depth in _depths(text) if text[place] == "," and depth == 0]
    parts = [text[start + 1 : end].strip() for start, end in pairwise([-1, *commas, len(text)])]
    return brackets, [each for part in parts for each in _with_both_signs(part)]


def _depths(text: str) -> list[tuple[int, int]]:
    """Places of brackets and commas, and the number of brackets that are open behind each."""
    places = [bracket.end() - 1 for bracket in _BRACKET.finditer(text)]
    steps = [(text[place] in "([{") - (text[place] in ")]}") for place in places]
    return list(zip(places, accumulate(steps), strict=True))


def _with_both_signs(part: str) -> list[str]:
    return [part.replace(r"\pm", sign) for sign in "+-"] if part.count(r"\pm") == 1 else [part]


_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)(?:\.\d*)?|\.\d+"
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_FRACTION = re.compile(rf" ?\\frac ?(?:\{{ ?([-+]?{_WHOLE}) ?\}}|(\d)) ?(?:\{{ ?({_WHOLE}) ?\}}|(\d))(?!\d)", re.ASCII)
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?) ?(?:(?P<whole>\d+) (?=[\d,]+ ?/))?(?P<above>{_DIGITS})(?: ?/ ?(?P<below>{_WHOLE}))?"
    r"(?:e(?P<e>[-+]?\d{1,3})"
    r"| ?(?:\\times|\\cdot|[×·*x]) ?10 ?\^ ?(?P<brace>\{ ?)?(?P<power>-?\d{1,3})(?(brace) ?\}))?",
    re.ASCII | re.IGNORECASE,
)


def plain_number(text: str) -> Fraction | None:
    """The number in a box, without a name and a unit; None for a percentage and anything else."""
    parts = _taken_apart(_cleaned(text))
    return None if parts.percent else _number(parts.value)


def _number(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(_FRACTION.sub(r" \1\2/\3\4", text).strip())
    if match is None:
        return None
    whole, above, below = (Fraction(re.sub("[, ]", "", match[name] or "0")) for name in ("whole", "above", "below"))
    if match["below"] and below == 0:
        return None
    power = Fraction(10) ** int(match["e"] or match["power"] or 0)
    value = (whole + above / (below or 1)) * power
    return -value if match["sign"] == "-" else value
