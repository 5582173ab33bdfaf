r"""Read the units of an answer, and reject another unit than the gold's: math-verify drops units.

Only units of one table are compared. Names of things (`575\text{ students}`) are not: they have too many synonyms.
"""

import re
from typing import NamedTuple

# Spellings of each unit without their plurals, one kind of quantity a line. A spelling of two units may mean either.
_TABLE = """
millimeter mm millimetre / centimeter cm centimetre / decimeter dm decimetre / meter m metre / kilometer km kilometre
inch in / foot ft feet / yard yd / mile mi
acre / hectare ha
milliliter ml millilitre / liter l litre
teaspoon tsp / tablespoon tbsp / cup / pint / quart / gallon gal
milligram mg / gram g / kilogram kg / tonne ton
ounce oz / pound lb / ton
millisecond ms / second s sec / minute min / hour h hr / day / week / month / year yr
am / pm
cent c ¢ / dollar usd $ / euro eur € / £ gbp pound
degree deg circ ° / celsius c degree deg circ ° / fahrenheit f degree deg circ ° / radian rad
"""
_SPELLINGS = {line.split()[0]: line for line in re.split("[/\n]", _TABLE.strip())}
_MEANINGS = {
    spelling: frozenset(name for name, spellings in _SPELLINGS.items() if spelling in spellings.split())
    for spelling in " ".join(_SPELLINGS.values()).split()
}
_POWERS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3, "cu": 3, "²": 2, "³": 3, "1": 1, "2": 2, "3": 3}
_SPEEDS = {"mph": "mile per hour", "kph": "km per hour", "kmh": "km per hour", "kmph": "km per hour"}


class Unit(NamedTuple):
    """What a unit may mean (the word itself where the table lacks it), and its power."""

    meanings: frozenset[str]
    power: int


def in_another_unit(gold: str, answer: str) -> bool:
    r"""`30\text{ m}` for `30\text{ cm}`, and `2400\text{ cm}^3` for `2400\text{ cm}^2`, both as they were written.

    Units are compared in their order and are not converted. One that is missing is not compared: `5` is paid for
    `5\text{ cm}`, and `\$15` for `\$15\text{ per hour}`.
    """
    return any(map(_differ, units(gold), units(answer)))


def _differ(ours: Unit, theirs: Unit) -> bool:
    if ours.meanings & theirs.meanings:
        return ours.power != theirs.power
    if ours.power != theirs.power and 1 not in (ours.power, theirs.power):
        return True
    return ours.meanings | theirs.meanings <= _SPELLINGS.keys()


_WRAPPER = r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|mathrm)\s*\{"
_POWER = r"\s*(?:\^\s*\{?\s*[123](?!\d)\s*\}?|[²³])"
# Words behind something: those that begin an answer, as in `\text{In }5\text{ hours}`, are not a unit. A lone dollar
# in front is money, a pair is LaTeX's.
_UNIT = re.compile(
    r"(?P<sign>\\\$|^\$(?=[^$]*$)|[€£¢°]|\\(?:circ|degrees?)(?![a-zA-Z]))"
    rf"|(?<=[\w}})\]$/ :,;~!]){_WRAPPER}(?P<words>[^{{}}\d^$²³]*(?:\$?{_POWER}\$?)?)\s*\}}(?P<power>{_POWER})?"
)


def units(text: str) -> list[Unit]:
    r"""The units of a text in order: signs, words in `\text`, one behind a bare number. Of `a = b` only b counts."""
    text = with_unit_as_text(with_temperature_as_text(text.rpartition("=")[2].strip()))
    found = [match["sign"] or f"{match['words']} {match['power'] or ''}" for match in _UNIT.finditer(text)]
    return [unit for words in found for unit in _in_words(words)]


def _in_words(text: str) -> list[Unit]:
    """The units of `miles per hour`, `m/s^2`, `p.m.`, `degrees C` and `square feet of paint`."""
    text = re.sub(r"\b([ap])\.?\s?m\b", r"\1m", text.lower())
    text = re.sub(r"[a-z]+", lambda word: _SPEEDS.get(word[0], word[0]), text)
    text = re.sub(r"\bdegrees?\s+(?=[cf]\b|celsius|fahrenheit)", "", text)
    parts = [re.findall(r"[a-z]+|[123²³€£¢°$]", part) for part in re.split(r"/|\bper\b", text)]
    return [_unit(words) for words in parts if words]


def _unit(words: list[str]) -> Unit:
    powers = [_POWERS[word] for word in words if word in _POWERS]
    names = [word for word in words if word not in _POWERS]
    return Unit(_meanings(names[0] if names else ""), powers[0] if powers else 1)


def _meanings(word: str) -> frozenset[str]:
    forms = (word, word.removesuffix("s"), word.removesuffix("es"))
    return next((_MEANINGS[form] for form in forms if form in _MEANINGS), frozenset({word.removesuffix("s")}))


_WORDS = "|".join(word for word in (*_MEANINGS, *_SPEEDS) if len(word) > 1 and word.isalpha() and word != "circ")
# A letter alone is a variable rather than a unit, except for those that math-verify takes for units, too.
_NAME = rf"(?:(?:degrees?\s)?(?:{_WORDS})(?:e?s)?|[ap]\.\s?m|(?-i:[mgshlL]))(?![a-z])\.?"
_BARE = re.compile(
    r"(?P<quantity>(?:[a-z]\s*=)?(?:\\[a-z]+|[^a-z\\$])*[\d)}])(?:[\s~]|\\[,;: ])*"
    rf"(?P<unit>(?:(?:square|cubic|sq\.?|cu\.?)\s)?{_NAME}(?:\s?(?:/|\bper\b)\s?{_NAME})?(?:\s(?:squared|cubed))?)"
    rf"(?P<power>{_POWER})?\s*",
    re.IGNORECASE,
)
_ALL_TEXT = re.compile(rf"^{_WRAPPER}\s*(\d[^{{}}]*)\}}")


def with_unit_as_text(text: str) -> str:
    r"""`5 cm^2`, `5cm²` and `\text{5 cm}^2` as `5\text{ cm}^2`, if the text has no other letters."""
    bare = _BARE.fullmatch(_ALL_TEXT.sub(r"\1", text))
    if bare is None:
        return text
    power = re.search("[123²³]", bare["power"] or "")
    return rf"{bare['quantity']}\text{{ {bare['unit']}}}" + (f"^{_POWERS[power[0]]}" if power else "")


_NOTED = re.compile(
    r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox)\s*\{\s*(?P<number>[^a-zA-Z{}]*\d%?)\s+(?P<words>[a-zA-Z][^{}\d]*)\}"
)
_COUNTED = re.compile(
    r"(?P<number>(?:\\[a-z]+|[^a-zA-Z])*(?:[\d)}]|\\pi)\$?)\s+(?P<words>[a-z]{4,}(?:[ -][a-z]+){0,5})"
)


def with_words_as_text(text: str) -> str:
    r"""`\text{73 clips}` and `73 clips` as `73\text{ clips}`. Letters alone may be variables: words have four."""
    counted = _NOTED.fullmatch(text) or _COUNTED.fullmatch(text)
    return rf"{counted['number']}\text{{ {counted['words']}}}" if counted else text


_BEHIND = re.compile(
    r"(?P<quantity>[\d})\]%]|\\pi|(?<![\\a-z])[a-z])(?:[\s~]|\\[,;:! ])*"
    rf"(?P<unit>{_WRAPPER}(?P<words>[^{{}}]*)\}}(?:{_POWER})?"
    rf"(?:\s*/\s*{_WRAPPER}[^{{}}]*\}}(?:{_POWER})?)?)"
    r"(?=(?:[\s~]|\\[,;:! ])*(?:$|[,;)\]}&=]|\\[\\}]|\\right))",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf"(?<=[\d}}])\s*{_WRAPPER}(?P<words>[^{{}}\d]*)\}}\s*(?=\d)")
_CONNECTIVES = {"or", "and", "e", "i"}


def without_units(text: str) -> str:
    r"""`5` for `5\text{ cm}`, which the parser takes for a product.

    Behind a letter only known units are dropped, unlike the word of `n\text{ even}`.
    """
    return _BEHIND.sub(_without_unit, _BETWEEN.sub(_plus, text))


def _plus(unit: re.Match) -> str:
    r"""`7\cdot u_{foot}+6` for `7\text{ feet }6\text{ inches}`."""
    words = re.findall("[a-z]+", unit["words"].lower().removesuffix("and ").removesuffix(", "))
    is_unit = len(words) == 1 and _meanings(words[0]) <= _SPELLINGS.keys()
    return rf"\cdot u_{{{min(_meanings(words[0]))}}}+" if is_unit else unit[0]


def _without_unit(match: re.Match) -> str:
    words = re.findall("[a-z]+", match["words"].lower())
    is_unit = bool(words) and words[0] not in _CONNECTIVES
    is_known = is_unit and (words[-1] in ("unit", "units") or _meanings(words[-1]) <= _SPELLINGS.keys())
    needs_known = match["quantity"].isalpha() or match["unit"].startswith(r"\mathrm")
    return match["quantity"] if is_known or (is_unit and not needs_known) else match[0]


_TEMPERATURE = re.compile(
    rf"(?:\^\s*\{{?\s*\\circ\s*\}}?|\\degree|°)\s*(?P<open>{_WRAPPER})?\s*"
    r"(?P<scale>[CFNSEW]|[Cc]elsius|[Ff]ahrenheit)(?![a-zA-Z])(?(open)\s*\})"
)


def with_temperature_as_text(text: str) -> str:
    r"""`20^\circ C`, `20°C` and `20^\circ\text{C}` as `20\text{ C}`; the same for the directions N, S, E and W."""
    return _TEMPERATURE.sub(r"\\text{ \g<scale>}", text)
