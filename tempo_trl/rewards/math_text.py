r"""Convert common spellings of answers that math-verify does not know to a form that it reads.

Each rule is a function of the text, with its reason. The same rules apply to golds and answers, so that a rule does
not separate an answer from its own gold.
"""

import re

from tempo_trl.rewards.math_symbols import (
    with_ascii_in_latex,
    with_repeating_decimals,
    with_unicode_in_latex,
    without_markup,
)
from tempo_trl.rewards.math_units import with_temperature_as_text, with_unit_as_text, with_words_as_text

_NUMERALS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NUMERALS |= {"eleven": 11, "twelve": 12, "sixteen": 16}


def math_text(answer: str) -> str:
    """The answer, or the gold, after all rules in order."""
    for rule in (without_final_stop, without_markup, without_final_stop, with_unicode_in_latex, with_ascii_in_latex):
        answer = rule(answer)
    for rule in (with_repeating_decimals, with_temperature_as_text, without_degrees, with_joined_thousands):
        answer = rule(answer)
    for rule in (with_imaginary_unit, with_base_in_digits, with_scale_in_digits, with_unit_as_text):
        answer = rule(answer)
    answer = with_words_as_text(answer)
    return answer.strip()


# Not `\right.`, not the comma of `\,`, not the last of three dots.
_FINAL_STOP = re.compile(r"(?<![.\\])(?<!\\left)(?<!\\right)[.,;](?=[\s}$]*$)")


def without_final_stop(text: str) -> str:
    r"""`5.` and `\text{Evelyn.}` without the stop that ends a sentence: math-verify reads no sentence."""
    return _FINAL_STOP.sub("", text.rstrip())


_DEGREES = re.compile(
    r"\s*(?:\^\s*(?:\{\s*\\(?:circ|degrees?)\s*\}|\\(?:circ|degrees?)(?![a-zA-Z]))|\\degrees?(?![a-zA-Z])|[°º])"
)


def without_degrees(text: str) -> str:
    r"""`60^\circ`, `60\degree` and `60°` as `60`: an angle is asked for in degrees, and golds leave the sign out."""
    return _DEGREES.sub("", text)


_SPACES = " ~\N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}"
_THOUSANDS = re.compile(
    rf"(?<![\d.,^_])(?<!\d[,{_SPACES}])[1-9]\d{{0,2}}(?P<gap>, *\\! *|\{{,\}} *|\\[,;: ] *|[{_SPACES}])"
    r"\d{3}(?:(?P=gap)\d{3})*(?!\d|(?P=gap)\d)(?P<over> ?/)?",
    re.ASCII,
)


def with_joined_thousands(text: str) -> str:
    r"""`1\,800`, `1 800` and `111, \! 111` as `1800` and `111111`. Thousands apart by a comma alone may be a list."""
    return _THOUSANDS.sub(_joined, text)


def _joined(number: re.Match) -> str:
    if number["over"] and number["gap"] in _SPACES:  # `1 250/400` is a mixed number
        return number[0]
    return re.sub(r"[^\d/]", "", number[0])


_UNIT_AS_TEXT = re.compile(r"\\(?:mathrm|text|textrm|textit|mathit)\s*\{\s*i\s*\}|\\imath(?![a-zA-Z])")
_UNIT_BEHIND_DIGIT = re.compile(r"(?<=\d)i(?![a-zA-Z])")


def with_imaginary_unit(text: str) -> str:
    r"""`12i` as `12 i`: math-verify takes an i for the imaginary unit where no letter or digit touches it."""
    return _UNIT_BEHIND_DIGIT.sub(" i", _UNIT_AS_TEXT.sub(" i", text))


_BASE_IN_WORDS = re.compile(
    rf"(?<=[0-9A-F])_\s*\{{?\s*(?:\\(?:text|mathrm|mbox)\s*\{{\s*)?({'|'.join(_NUMERALS)})(?![a-z])\s*\}}{{0,2}}"
)


def with_base_in_digits(text: str) -> str:
    r"""`2112_{\text{six}}` as `2112_{6}`."""
    return _BASE_IN_WORDS.sub(lambda base: f"_{{{_NUMERALS[base[1]]}}}", text)


SCALES = {"dozen": "12", "hundred": "10^2", "thousand": "10^3"}
SCALES |= {"million": "10^6", "billion": "10^9", "trillion": "10^12"}
_SCALE = re.compile(
    r"(?<=[\d)}$])(?:[\s~]|\\[,;: ])*(?P<wrapper>\\(?:text(?:rm|bf|it)?|mbox|hbox|mathrm)\s*\{\s*)?"
    rf"(?P<scales>(?:(?:{'|'.join(SCALES)})s?(?![a-zA-Z])\s*)+)(?(wrapper)(?P<rest>[^{{}}]*)\}})",
)


def with_scale_in_digits(text: str) -> str:
    r"""`5 million` and `5\text{ million dollars}` as `5 \times 10^6` and `5 \times 10^6\text{ dollars}`."""
    return _SCALE.sub(_multiplied, text)


def _multiplied(scale: re.Match) -> str:
    factors = "".join(rf" \times {SCALES[word]}" for word in re.findall("|".join(SCALES), scale["scales"]))
    return factors + (rf"\text{{ {scale['rest']}}}" if scale["rest"] else "" if scale["wrapper"] else " ")


_SPACING = re.compile(r"\\[,;: ]|\\q?quad(?![a-zA-Z])|~")
_SILENT = re.compile(r"\\!|\\(?:left|right)(?![a-zA-Z])|\$|(?<!\d)\s+|\s+(?!\d)")
_WORDS = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|mathrm)\s*\{([^{}]*)\}")
_SYNONYMS = {"dfrac": "frac", "tfrac": "frac", "rightarrow": "to", "implies": "Rightarrow", "mid": "|", "colon": ":"}
_SYNONYMS |= {"leq": "le", "geq": "ge", "neq": "ne", "dots": "ldots", "cdots": "ldots", "iff": "Leftrightarrow"}
_COMMAND = re.compile(r"\\([a-zA-Z]+)|\.{3}|…")
_SINGLE = re.compile(r"\{(\w)\}")


def is_same_text(gold: str, answer: str) -> bool:
    r"""Whether texts differ in spaces, fonts, synonyms of commands and, between words, in case alone."""
    return _canonical(gold) == _canonical(answer)


def _canonical(text: str) -> str:
    text = _SINGLE.sub(r" \1", _COMMAND.sub(_synonym, _WORDS.sub(r"\1", text)))
    text = _SILENT.sub("", _SPACING.sub(" ", text))
    return text.casefold() if re.fullmatch(r"[A-Za-z]{2,}", text) else text


def _synonym(command: re.Match) -> str:
    name = _SYNONYMS.get(command[1] or "dots", command[1] or "ldots")
    return name if not name[0].isalpha() else rf"\{name}"


_COMMANDS = re.compile(r"\\(?:begin|end|operatorname)\*?\s*\{[^{}]*\}|\\[a-zA-Z]+|\\[,;:! ]")
_LONG_WORD = re.compile(r"[A-Za-z]{4,}")
MOST_WORDS = 4  # of an answer in words, such as `no real solutions`


def is_prose(text: str) -> bool:
    r"""Whether a text, from `math_text`, is neither a formula nor an answer in a few words: `The answer is 5`.

    Words are four letters or more outside of `\text{...}`; `xyz` is a product.
    """
    noted = _WORDS.fullmatch(text.strip())
    bare = _COMMANDS.sub(" ", noted[1] if noted else _WORDS.sub(" ", text))
    if not _LONG_WORD.search(bare):
        return False
    is_long = len(bare.split()) > MOST_WORDS
    return is_long or (not noted and bool(re.search(r"[\d=+*/^<>]", bare)))
