r"""Reject wrong answers that math-verify accepts.

It ignores bases, the kind of brackets, idle operators, the order of letters and how often a value is in a list, and
reads times of day as divisions.
"""

import math
import re

from tempo_trl.rewards.math_words import says_otherwise


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
