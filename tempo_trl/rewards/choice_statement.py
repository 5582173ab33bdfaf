r"""Which words of a completion commit it to an answer of a multiple-choice question.

One statement decides: the last balanced `\boxed{}`; without a box the last `<answer>`; without that what follows the
last "answer is" or "answer:"; and without that a letter alone on the first or the last line. Never the first capital.
A statement that names no option is not passed over for an earlier one, and a list of the options is no statement.

Each pattern repeats a bounded number of times, so that a hundred thousand characters cost milliseconds.
"""

import itertools
import re
from typing import NamedTuple

from tempo_trl.rewards.boxed import boxes

# So much is read of what follows "answer is": it is prose, and its beginning commits.
CLAUSE_CHARS = 600


class Statement(NamedTuple):
    """Words that commit to an answer: all of them, or in prose the beginning."""

    text: str
    is_prose: bool


def final_statement(said: str) -> Statement:
    """The statement that decides; empty where there is none, and where it takes itself back."""
    enclosed = _boxed(said) if boxes(said) else _tagged(said)
    if enclosed is not None:
        return Statement(enclosed, is_prose=False)
    lines = _without_option_lists(said)
    clause = _after_answer_is("\n".join(lines))
    if clause is not None:
        return Statement(clause, is_prose=True)
    return Statement(_letter_on_a_line(lines), is_prose=False)


_NEGATION = re.compile(
    r"(?:\b(?:not|never|neither|nor)|n['’]t)(?: (?:the|option|choice))?[\s$*:({}]{0,5}$", re.IGNORECASE
)
_CONNECTIVE = re.compile(r"[\s$,;/&.*()\\]{0,20}(?:(?:and|or)[\s$*()\\]{0,20})?", re.IGNORECASE)
_COMMAND = re.compile(r"\\(?:boxed|fbox)")


def _boxed(said: str) -> str:
    r"""Content of the last box; empty in `not \boxed{A}`, in `\boxed{A} or \boxed{B}` and in `\boxed{A \boxed{B}}`."""
    *others, (start, end) = boxes(said)
    command = max(said.rfind(r"\boxed", 0, start), said.rfind(r"\fbox", 0, start))
    if _NEGATION.search(said[max(0, command - 40) : command]):
        return ""
    if others and _is_hedged(said[slice(*others[-1])], said[others[-1][1] + 1 : command], said[start:end]):
        return ""
    return said[start:end]


def _is_hedged(earlier: str, between: str, last: str) -> bool:
    """Whether two boxes are one statement with two answers: joined by no more than "or", or one in the other."""
    same = re.sub(r"[\s{}$]", "", _COMMAND.sub("", earlier)) == re.sub(r"[\s{}$]", "", last)
    return not same and _CONNECTIVE.fullmatch(between) is not None


_TAG = re.compile(r"<(?P<close>/?)answer>", re.IGNORECASE)


def _tagged(said: str) -> str | None:
    """Content of the last `<answer>` that is closed; None without one."""
    tags = list(_TAG.finditer(said))
    pairs = [(a.end(), b.start()) for a, b in itertools.pairwise(tags) if not a["close"] and b["close"]]
    return said[slice(*pairs[-1])] if pairs else None


_ANSWER_IS = re.compile(
    r"\banswer(?:[ \t](?:choice|option))?[*_ \t]{0,4}(?::|\b(?:is|would be|must be|should be)\b)"
    r"(?:[\s*_:,]{0,20}\b(?:therefore|thus|hence|then|clearly|definitely|most likely|likely|probably)\b,?)?",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:if|whether|unless|suppose|supposing|assum\w{1,4}|not|never|cannot|wrong|incorrect|doubt|why)\b|n['’]t\b",
    re.IGNORECASE,
)


def _after_answer_is(text: str) -> str | None:
    """The line behind the last "answer is" or "answer:"; None without one, empty where it is in doubt or a list."""
    matches = list(_ANSWER_IS.finditer(text))
    if not matches:
        return None
    start, end = matches[-1].span()
    clause_before = re.split(r"[.,;:!?\n]", text[max(0, start - 80) : start])[-1]
    lines = text[end : end + CLAUSE_CHARS].lstrip(" \t\r\n*_:").splitlines()
    return lines[0] if lines and not _DOUBT.search(clause_before) and not _is_list(*lines[:2]) else ""


_ITEM = re.compile(r"[\s*_(\[>#+-]{0,8}(?P<letter>[A-Z])(?:[\s).:\]*_,]|$)", re.ASCII)


def _without_option_lists(said: str) -> list[str]:
    """The lines of a text that are not blank, without two or more in a row that begin with A, B, ... in turn."""
    runs = []  # of lines that begin with A, B, ...; any other line is a run of its own
    for line in filter(str.strip, said.splitlines()):
        item = _ITEM.match(line)
        if item and runs and runs[-1][0] == ord(item["letter"]):
            runs[-1] = (runs[-1][0] + 1, [*runs[-1][1], line])
        else:
            runs.append((ord("B") if item and item["letter"] == "A" else None, [line]))
    return [lines[0] for _, lines in runs if len(lines) == 1]


_MARKED = re.compile(r"(?<![\w-])(?<!\w\()[A-Z](?=[).:](?!\w))", re.ASCII)


def _is_list(line: str, next_line: str = "") -> bool:
    """Whether a line marks A and then B, as in `A. yes B. no`; the next line may be the one that goes on with B."""
    return (_MARKED.findall(line) + _MARKED.findall(next_line[:8]))[:2] == ["A", "B"]


_ALONE = re.compile(r"[\s*_$(\[#]{0,8}(?P<letter>[A-Z])[\s*_$)\].:]{0,8}", re.ASCII)


def _letter_on_a_line(lines: list[str]) -> str:
    """The letter that stands alone on the first or the last line, if no other one stands alone on any."""
    alone = [found["letter"] if found else "" for found in map(_ALONE.fullmatch, lines)]
    letters = set(alone) - {""}
    return letters.pop() if len(letters) == 1 and (alone[0] or alone[-1]) else ""
