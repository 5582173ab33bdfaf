r"""Reject wrong answers that math-verify accepts.

It ignores bases, the kind of brackets, idle operators, the order of letters and how often a value is in a list, and
reads times of day as divisions. Formulas are compared without units and words, so that the words are compared here.
"""

import math
import re


def contradicts(gold: str, answer: str) -> bool:
    """Whether an answer differs from the gold in one of these ways, both from `math_text`."""
    guards = (in_another_base, in_another_kind, has_idle_operator, is_another_word, has_other_repeats)
    guards += (is_another_time, says_otherwise)
    return any(differs(gold, answer) for differs in guards)


_BASE = re.compile(r"\d[0-9A-F]*\}*_\s*\{?\s*(\d+)", re.ASCII)


def in_another_base(gold: str, answer: str) -> bool:
    r"""`2112_7` for `2112_6`. An answer without a base is in the one that was asked for."""
    bases, theirs = set(_BASE.findall(gold)), set(_BASE.findall(answer))
    return bool(bases and theirs) and bases != theirs


_SILENT = re.compile(r"\s|\\[,;:! ]|\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])")
# Letters in front of a bracket that do not call it, unlike the f of `f(1,2)` and the max of `\max\{a,b\}`.
_BETWEEN = re.compile(r"\\(?:in|cup|cap|setminus|times)(?![a-zA-Z])")
_BRACKETS = re.compile(r"(?P<set>\\\{|\\lbrace)|(?P<row>[(\[])|(?P<close>\\\}|\\rbrace|[)\]])|(?P<comma>,)")


def in_another_kind(gold: str, answer: str) -> bool:
    r"""`\{1,2\}` for `(1,2)`. An answer without brackets has the gold's, and those around one value do not count."""
    ours, theirs = _kinds(gold), _kinds(answer)
    return bool(ours and theirs) and ours.isdisjoint(theirs)


def _kinds(text: str) -> set[str]:
    """Kinds of the brackets around a comma: a set, or a row, which is a tuple, a vector or an interval."""
    text = _SILENT.sub("", _BETWEEN.sub("|", text.rpartition("=")[2]))
    opened, kinds = [], set()
    for bracket in _BRACKETS.finditer(text):
        match bracket.lastgroup:
            case "set" | "row" as kind:
                is_call = text[bracket.start() - 1 : bracket.start()].isalpha()
                opened.append("call" if is_call else kind)
            case "close" if opened:
                opened.pop()
            case "comma" if opened:
                kinds.add(opened[-1])
    return kinds - {"call"}


_OPERATORS = (
    r"\\(?:sum|prod|coprod|bigcup|bigcap|lim|max|min|sup|inf|det|arg|gcd|forall|exists|neg|partial|neq?|geq?|leq?)"
    r"(?![a-zA-Z])"
)
_OPERATOR = re.compile(_OPERATORS)
_IDLE = re.compile(rf"\s*{_OPERATORS}(?!\s*(?:[_(\[]|\\(?:\{{|left|limits|begin)))")


def has_idle_operator(gold: str, answer: str) -> bool:
    r"""`\sum 42` and `\neq 42` for `42`: an operator in front that has no bounds, arguments or left side."""
    return bool(_IDLE.match(answer.rpartition("=")[2])) and not _OPERATOR.search(gold)


_WRAPPER = re.compile(r"\\(?:text|mathrm|mbox)\s*\{|\}|\s|\\[,;:! ]")


def is_another_word(gold: str, answer: str) -> bool:
    """`YYNN` for `YNYN` and `seat` for `east`: math-verify takes letters for a product, in any order."""
    words = [_WRAPPER.sub("", text) for text in (gold, answer)]
    is_word = all(re.fullmatch(r"[A-Z]{3,}|[A-Za-z]{4,}", word) for word in words)
    return is_word and words[0].casefold() != words[1].casefold()


_BRACKETED = re.compile(r"[()\[\]]|\\\{|\\lbrace")


def has_other_repeats(gold: str, answer: str) -> bool:
    """`1,2,2` or `1,2` for `1,1,2`: math-verify takes lists without brackets for sets."""
    if _BRACKETED.search(gold + answer):
        return False
    ours, theirs = (sorted(_SILENT.sub("", text).split(",")) for text in (gold, answer))
    return ours != theirs and set(ours) == set(theirs)


_TIME = re.compile(r"(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?", re.ASCII)
_UNIT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}|\s|\\[,;:! ]")


def is_another_time(gold: str, answer: str) -> bool:
    """`4:20` or `1/5` for `8:40`. A ratio in lowest terms may be written as a fraction: `1/10` for `1:10`."""
    ours, theirs = (_TIME.fullmatch(_UNIT.sub("", text)) for text in (gold, answer))
    if ours is None:
        return False
    if theirs is None:
        return ours["second"] is not None or math.gcd(int(ours["hour"]), int(ours["minute"])) != 1
    return [*map(int, filter(None, ours.groups()))] != [*map(int, filter(None, theirs.groups()))]


# Words that say the opposite of the gold's. A word that is missing is not compared, as with units: `20\%` is paid for
# `20\%\text{ increase}`. Words that bind a number must be in both: `3` is not `3\text{ or more}`.

# Words of one line exclude each other.
_OPPOSITES = """
even evens / odd odds
increase increases increased increasing / decrease decreases decreased decreasing
rise rises growth / fall falls drop drops decline
profit gain gains / loss losses
prime primes / composite composites
clockwise / counterclockwise anticlockwise
positive positives / negative negatives
more greater larger bigger higher / less fewer smaller lower
most largest greatest highest maximum maxima / least smallest lowest minimum minima
left leftward / right rightward
up upward upwards / down downward downwards
above over / below under beneath
inside interior / outside exterior
before earlier / after later
ahead / behind
faster fastest / slower slowest
older oldest / younger youngest
longer longest taller tallest / shorter shortest
acute / obtuse
real / imaginary complex
converges convergent converge / diverges divergent diverge
ascending / descending
horizontal horizontally / vertical vertically
parallel / perpendicular
true / false
yes / no
always / sometimes / never
all / some / none
heads / tails
win wins winning / lose loses losing / draw tie
first / last
inclusive / exclusive
injective / surjective / bijective
necessary / sufficient
rows row / columns column
overestimate / underestimate
surplus / deficit
"""
_GROUPS = [
    {word: place for place, member in enumerate(line.split("/")) for word in member.split()}
    for line in _OPPOSITES.strip().splitlines()
]
_PREFIXES = ("un", "in", "im", "ir", "il", "non", "dis", "a")
_BINDING = {
    "not": r"\b(?:not|never|cannot|no|neither|nor|except|without)\b|n't\b",
    "at least": r"\bor (?:more|greater|above|over|higher|larger|later)\b|\bat least\b|\bno (?:less|fewer) than\b",
    "at most": r"\bor (?:less|fewer|below|under|lower|smaller|earlier)\b|\bat most\b|\bup to\b|\bno more than\b",
    "more than": r"(?<!no )\b(?:more|greater|larger|higher) than\b",
    "less than": r"(?<!no )\b(?:less|fewer|smaller|lower) than\b",
}
_NO_WORD = re.compile(r"\\[a-zA-Z]+|[^a-zA-Z'-]+")
_INEQUALITY = re.compile(r"[<>≤≥]|\\(?:leq?|geq?|lt|gt|leqslant|geqslant)(?![a-zA-Z])")
_WRAPPED_CAPITALS = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|mathrm)\s*\{\s*((?:[NSEW]\.?\s*){1,2})\}")
_COMPASS = re.compile(r"north[- ]?(?:east|west)|south[- ]?(?:east|west)|north|south|east|west")
_INITIALS = {"N": "north", "S": "south", "E": "east", "W": "west"}


def says_otherwise(gold: str, answer: str) -> bool:
    r"""`\text{odd}` for `\text{even}`, `\text{3 or less}` for `\text{3 or more}`, `x<3 and x>5` for `x<3 or x>5`."""
    ours, theirs = _lower_words(gold), _lower_words(answer)
    return (
        _is_opposite(ours.split(), theirs.split())
        or _bindings(ours) != _bindings(theirs)
        or _differ(_directions(gold, ours), _directions(answer, theirs))
        or _differ(_connectives(gold, ours), _connectives(answer, theirs))
    )


def _lower_words(text: str) -> str:
    return _NO_WORD.sub(" ", text).lower().replace("-clockwise", "clockwise").strip()


def _is_opposite(ours: list[str], theirs: list[str]) -> bool:
    for group in _GROUPS:
        if _differ(*({group[word] for word in words if word in group} for words in (ours, theirs))):
            return True
    return _is_negated(ours, theirs) or _is_negated(theirs, ours)


def _is_negated(words: list[str], others: list[str]) -> bool:
    """`irrational` for `rational`."""
    negated = {prefix + word.removeprefix("-") for word in words for prefix in _PREFIXES if len(word) > 3}
    return any(word.replace("-", "") in negated for word in others if word not in words)


def _bindings(words: str) -> set[str]:
    return {name for name, pattern in _BINDING.items() if re.search(pattern, words)}


def _directions(text: str, words: str) -> list[str]:
    r"""Points of the compass in order, as words or as capitals in `\text{...}`."""
    initials = "".join(found[1] for found in _WRAPPED_CAPITALS.finditer(text))
    return _COMPASS.findall(words) or [_INITIALS[letter] for letter in initials if letter in _INITIALS]


def _connectives(text: str, words: str) -> set[str]:
    """The words between inequalities. Between equations both mean that these are the solutions."""
    return {"or", "and"}.intersection(words.split()) if _INEQUALITY.search(text) else set()


def _differ(ours: object, theirs: object) -> bool:
    return bool(ours and theirs) and ours != theirs
