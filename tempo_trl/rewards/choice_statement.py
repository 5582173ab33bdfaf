r"""Find the words with which a completion commits to an answer of a multiple-choice question.

One statement is used: the box that the text commits to; without a box, or behind one that names no option, the last
`<answer>`; else the last answer of a JSON object; else the last statement in prose, such as "the answer is B",
"I would choose B" and "B is right"; else a letter alone, or with its option's text, on the first or the last line. The
first capital letter is never used.

The last committing statement counts. A denial ("not B", "B would be wrong") does not commit. Two statements that
contradict each other in one sentence, and a retracted statement, count as no answer. If a statement names no option,
earlier ones are not used instead. A list of the options is not a statement.

Each pattern has bounded repetitions, so that a hundred thousand characters take milliseconds.
"""

import re
from typing import NamedTuple

from tempo_trl.rewards.boxed import HEARSAY, OTHERS_SAY, RETRACTION, TAKEN_BACK, committed_boxes

# Number of characters read after "answer is": it is prose, and its beginning commits.
CLAUSE_CHARS = 600
_WIDE_PUNCTUATION = str.maketrans("：（）。，；！？【】", ":().,;!?[]")


class Statement(NamedTuple):
    """Words that commit to an answer: all of them, or in prose the beginning."""

    text: str
    is_prose: bool
    needs_text: bool = False  # a letter counts only with the whole text of its option


def final_statements(said: str) -> list[Statement]:
    """The statement to use, and what stands behind it if it is a box: a box may hold something else than the answer.

    There is none if the boxes are denied, withdrawn or joined by "or". The text of one in doubt is empty.
    """
    said = said.translate(_WIDE_PUNCTUATION)
    found = committed_boxes(said)
    if found is None:
        return [_without_a_box(said)]
    if len(found.texts) != 1:
        return []
    return [Statement(found.texts[0], is_prose=False), _without_a_box(said[found.end :])]


_TAGGED = re.compile(r"<answer>(?P<value>(?:(?!</?answer>).)*+)</answer>", re.IGNORECASE | re.DOTALL)
_JSON_ANSWER = re.compile(  # `{"answer_choice": "C"}`
    r"""["'](?:(?:final|correct|best|my)[_ ]?)?(?:answer|choice|option)(?:[_ ]?(?:choice|letter|option|label))?["']"""
    r"""\s{0,20}:\s{0,20}(?P<list>\[\s{0,20})?(?P<quote>["'])(?P<value>[^"'\n]{0,600})(?P=quote)(?(list)\s{0,20}\])""",
    re.IGNORECASE,
)


def _without_a_box(said: str) -> Statement:
    for enclosed in (_TAGGED, _JSON_ANSWER):
        if found := [*enclosed.finditer(said)]:
            return Statement(found[-1]["value"], is_prose=False)
    lines = _without_option_lists(said)
    return _last_in_prose("\n".join(lines)) or _option_on_a_line(lines)


_ADVERB = (
    r"(?:[\s*_:,]{0,20}\b(?:therefore|thus|hence|then|clearly|definitely|certainly|surely|for sure|obviously|indeed"
    r"|undoubtedly|most likely|likely|probably)\b,?)?"
)
_A_LETTER = r"(?=[ \t]{1,4}[*_($]{0,3}[A-Z](?!\w))"  # `Answer - B`
_LETTER_ENDS = r"(?=[*_($]{0,3}[A-Z][)$*_]{0,3}[.!]?[ \t]*(?:\n|$))"  # `Answer B`
_IS = rf"(?::|=|(?:[-–—→⇒]|[-=]>){_A_LETTER}|\b(?:is|would be|must be|should be)\b)"
_ANSWER_IS = re.compile(
    rf"(?:\b(?:answers?|ans)(?:[ \t](?:choice|option))?(?:,?[ ](?:therefore|thus|then|hence),?)?[*_ \t]{{0,4}}{_IS}"
    r"|\b(?:correct|right|best|final|my|most[ ](?:appropriate|likely|accurate|suitable))"
    rf"[ \t](?:option|choice|letter|pick|one)[*_ \t]{{0,4}}{_IS}"
    rf"|\b(?:answer|ans\.|therefore,|thus,|hence,|so,)[ ]{_LETTER_ENDS}"
    r"|\bI(?:['’]d|[ ]would)[ ]say(?=[ ][*_($]{0,3}[A-Z](?!\w))"
    r"|\bI(?:['’]d|['’]ll|[ ]would|[ ]will)?[ ](?:choose|pick|select|go[ ](?:with|for)|opt[ ]for)\b"
    # "It is B." alone: "it is a drug" says something about the answer.
    r"|\bit(?:['’]s|[ ](?:is|must[ ]be|has[ ]to[ ]be|should[ ]be))"
    r"(?=[ ][*_($]{0,3}[A-Z][)$]?[*_]{0,2}(?:[!,;\n]|\.(?![ ]?[a-z])|$))"
    rf"|(?:答案|正确选项)(?:应为|应该是|是|为|选|:)){_ADVERB}",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    r"(?:^|[.,;:!?(\n]|\b(?i:so|thus|hence|therefore|that|because|but|and|only|option|choice|answer))[\s*_]{0,4}\(?"
    r"(?P<letter>[A-Z])\)?[*_]{0,2}[ ](?:is|must[ ]be|has[ ]to[ ]be)[ ]"
    r"(?:(?:the|clearly|definitely|certainly|indeed|therefore|thus|most[ ]likely|probably)[ ]){0,3}"
    r"(?:(?:right|correct|best)[ ](?:answer|option|choice)|right|correct|answer)(?![\w-]|[ ]?\?)",
)
_DOUBT = re.compile(
    r"\b(?:if|whether|unless|suppose|supposing|assum\w{1,4}|not|never|cannot|wrong|incorrect|doubt|why"
    r"|naive|tempting|popular)\b|n['’]t\b",
    re.IGNORECASE,
)
_HEARD = re.compile(rf"(?:{HEARSAY})[\s*_$]*$", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    rf"{TAKEN_BACK}|\b(?:wait[.,!…]|wait (?:no|actually|that|but)\b|hold on\b"
    r"|that(?:['’]s| is) (?:wrong|not right|incorrect))",
    re.IGNORECASE,
)
_LETTER_BEHIND = re.compile(r"[\s*_($\[]{0,8}(?P<letter>[A-Z])(?!\w)")
_ASKED = re.compile(r"[\s*_($\[]{0,8}[A-Z][)$\]*_]{0,8}\?")
_SENTENCE_END = re.compile(r"[.!?\n]")


def _last_in_prose(text: str) -> Statement | None:
    """The last statement in prose; None without one, empty where it is in doubt, taken back or a list."""
    found = sorted([*_ANSWER_IS.finditer(text), *_IS_RIGHT.finditer(text)], key=re.Match.start)
    if not found:
        return None
    denied = set()
    while len(found) > 1 and (denial := _denial(text, found[-1])):  # "The answer is B. The answer is not C."
        denied.add(denial["letter"])
        found.pop()
    last = found[-1]
    if denied and _letter_of(text, last) in {None, *denied}:
        return Statement("", is_prose=True)
    begin = last.start("letter") if last.re is _IS_RIGHT else last.start()
    clause_before = re.split(r"[.,;:!?\n]", text[max(0, begin - 80) : begin])[-1]
    is_doubted = _DOUBT.search(clause_before) or _HEARD.search(
        clause_before + ("" if last.re is _IS_RIGHT else last[0])
    )
    is_withdrawn = (
        _TAKEN_BACK.search(text, last.end())
        or RETRACTION.search(text[last.end() :])
        or OTHERS_SAY.match(text, last.end())
    )
    if is_doubted or is_withdrawn or _ASKED.match(text, last.end()) or _contradicts_itself(text, found):
        return Statement("", is_prose=True)
    if last.re is _IS_RIGHT:
        return Statement(last["letter"], is_prose=False)
    lines = text[last.end() : last.end() + CLAUSE_CHARS].lstrip(" \t\r\n*_:").splitlines()
    return Statement(lines[0] if lines and not _is_list(*lines[:2]) else "", is_prose=True)


_IS_NOT = re.compile(r"[ ]not[ ][*_($]{0,3}(?P<letter>[A-Z])[)$]?[*_]{0,2}(?=[.!\n]|$)")


def _denial(text: str, statement: re.Match) -> re.Match | None:
    """The letter that a statement does nothing but deny."""
    return _IS_NOT.match(text, statement.end()) if statement.re is _ANSWER_IS else None


def _contradicts_itself(text: str, found: list[re.Match]) -> bool:
    """Whether the last two statements stand in one sentence and name two letters."""
    if len(found) < 2 or _SENTENCE_END.search(text, found[-2].end(), found[-1].start() + 1):
        return False
    letters = [_letter_of(text, match) for match in found[-2:]]
    return all(letters) and letters[0] != letters[1]


def _letter_of(text: str, statement: re.Match) -> str | None:
    match = statement if statement.re is _IS_RIGHT else _LETTER_BEHIND.match(text, statement.end())
    return match and match["letter"]


_ITEM = re.compile(
    r"[\s*_(\[>#+-]{0,8}(?P<letter>[A-Z])(?:[).:\]*_,]|\s(?!(?:is|was|would|could|can|cannot|may)\b)|$)", re.ASCII
)


def _without_option_lists(said: str) -> list[str]:
    """The lines of a text that are not blank, without two or more in a row that begin with A, B, ... in turn.

    What the last of these says of the answer stays: models go on behind the last option.
    """
    runs = []  # of lines that begin with A, B, ...; any other line is a run of its own
    for line in filter(str.strip, said.splitlines()):
        item = _ITEM.match(line)
        if item and runs and runs[-1][0] == ord(item["letter"]):
            runs[-1] = (runs[-1][0] + 1, [*runs[-1][1], line])
        else:
            runs.append((ord("B") if item and item["letter"] == "A" else None, [line]))
    kept = [lines[0] if len(lines) == 1 else _verdict(lines[-1]) for _, lines in runs]
    return [line for line in kept if line is not None]


def _verdict(item: str) -> str | None:
    """What an item of a list of options says of the answer, from there on."""
    found = _ANSWER_IS.search(item)
    return found and item[found.start() :]


_MARKED = re.compile(r"(?<![\w-])(?<!\w\()[A-Z](?=[).:](?!\w))", re.ASCII)


def _is_list(line: str, next_line: str = "") -> bool:
    """Whether a line marks A and then B, as in `A. yes B. no`; the next line may be the one that goes on with B."""
    return (_MARKED.findall(line) + _MARKED.findall(next_line[:8]))[:2] == ["A", "B"]


_ALONE = re.compile(r"[\s*_$(\[#>]{0,8}(?:(?i:option|choice)[ ])?(?P<letter>[A-Z])[\s*_$)\].:]{0,8}", re.ASCII)
_MARKED_LINE = re.compile(r"[\s*_$(\[#>+-]{0,8}[A-Z](?:[)\].:*_]|[ ][-–—][ ])")


def _option_on_a_line(lines: list[str]) -> Statement:
    """The option that stands alone on the first or the last line, if no other one stands alone on any."""
    alone = [found["letter"] if found else "" for found in map(_ALONE.fullmatch, lines)]
    letters, marked = set(alone) - {""}, [bool(_MARKED_LINE.match(line)) for line in lines]
    if len(letters) == 1 and (alone[0] or alone[-1]):
        return Statement(letters.pop(), is_prose=False)
    if not letters and sum(marked) == 1 and (marked[0] or marked[-1]):
        return Statement(lines[marked.index(True)], is_prose=False, needs_text=True)
    return Statement("", is_prose=False)
