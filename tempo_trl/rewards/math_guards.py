r"""Reject wrong answers that math-verify accepts, because it ignores the base of a number and the power of a unit."""

import re


def contradicts(gold: str, answer: str) -> bool:
    """Whether an answer has another base or another power of the unit than the gold, both from `math_text`."""
    return in_another_base(gold, answer) or in_another_power_of_the_unit(gold, answer)


_BASE = re.compile(r"\d[0-9A-F]*\}*_\s*\{?\s*(\d+)", re.ASCII)


def in_another_base(gold: str, answer: str) -> bool:
    r"""`2112_7` for `2112_6`. An answer without a base is in the one that was asked for."""
    bases, theirs = set(_BASE.findall(gold)), set(_BASE.findall(answer))
    return bool(bases and theirs) and bases != theirs


def _power(name: str) -> str:
    return rf"\s*\^\s*\{{?\s*(?P<{name}>[123])(?!\d)\s*\}}?"


_WRAPPED = re.compile(
    rf"\\(?:text|mbox|hbox|mathrm|textrm)\s*\{{(?P<unit>[^{{}}\d^$]*)(?:\$?{_power('inside')}\$?)?\s*\}}"
    rf"(?:{_power('behind')})?"
)
_BARE = re.compile(
    rf"(?<=\d)\s*(?P<unit>(?:[ckm]?m|in|ft|yd|mi)\b|(?:square|cubic|sq\.?|cu\.?) [a-z]+)(?:{_power('behind')})?"
)
_IN_WORDS = re.compile(r"\b(?:(?P<two>square|squared|sq)|(?P<three>cubic|cubed|cu))\b\.?")


def in_another_power_of_the_unit(gold: str, answer: str) -> bool:
    r"""`2400 \mbox{ cm}^3` for `2400 \mbox{ cm}^2`, and `2400\text{ cm}`. An answer without a unit has the gold's."""
    ours, theirs = _unit(gold), _unit(answer)
    if ours is None or theirs is None or ours[1] == theirs[1]:
        return False
    return ours[0] == theirs[0] or 1 not in (ours[1], theirs[1])


def _unit(text: str) -> tuple[str, int] | None:
    """Name and power of the unit that a text ends with; None without one."""
    text = text.replace("²", "^2").replace("³", "^3")
    found = [*_WRAPPED.finditer(text), *_BARE.finditer(text)]
    if not found:
        return None
    unit, groups = found[-1]["unit"], found[-1].groupdict()
    words = _IN_WORDS.search(unit)
    in_words = None if words is None else "2" if words["two"] else "3"
    power = groups.get("inside") or groups["behind"] or in_words or "1"
    name = _IN_WORDS.sub("", unit).strip(" .~\\")
    return (name, int(power)) if name else None
