r"""Reject answers whose words say the opposite of the gold's: formulas are compared without units and words.

A word that is missing is not compared, as with units: `20\%` is paid for `20\%\text{ increase}`. Words that bind a
number must be in both: `3` is not `3\text{ or more}`.
"""

import re

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
_COMMAND = re.compile(r"\\[a-zA-Z]+|[^a-zA-Z'-]+")
_INEQUALITY = re.compile(r"[<>≤≥]|\\(?:leq?|geq?|lt|gt|leqslant|geqslant)(?![a-zA-Z])")
_WRAPPED_CAPITALS = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|mathrm)\s*\{\s*((?:[NSEW]\.?\s*){1,2})\}")
_COMPASS = re.compile(r"north[- ]?(?:east|west)|south[- ]?(?:east|west)|north|south|east|west")
_INITIALS = {"N": "north", "S": "south", "E": "east", "W": "west"}


def says_otherwise(gold: str, answer: str) -> bool:
    r"""`\text{odd}` for `\text{even}`, `\text{3 or less}` for `\text{3 or more}`, `x<3 and x>5` for `x<3 or x>5`."""
    ours, theirs = _words(gold), _words(answer)
    return (
        _is_opposite(ours.split(), theirs.split())
        or _bindings(ours) != _bindings(theirs)
        or _differ(_directions(gold, ours), _directions(answer, theirs))
        or _differ(_connectives(gold, ours), _connectives(answer, theirs))
    )


def _words(text: str) -> str:
    return _COMMAND.sub(" ", text).lower().replace("-clockwise", "clockwise").strip()


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
