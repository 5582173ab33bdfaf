r"""The answer in a text: the content of its last `\boxed{...}`, unless the text denies it or takes it back.

MATH (https://huggingface.co/papers/2103.03874) marks the answer of each solution with a box, and a prompt built by
`tempo_trl.data.math_dataset` asks the model for the same.
"""

import re
from typing import NamedTuple

MOST_BOXES = 50  # boxes that are looked at, from the end
_BEHIND_CHARS = 2000  # behind the last box
# A box opens with a brace, or holds a bare number: some MATH solutions have `\boxed 5`. An escaped brace is text, as
# in `\{1, 2\}`: the second line swallows it together with its backslash.
_TOKEN = re.compile(
    r"\\(?:boxed|fbox)\s*(?:(?P<box>\{)|(?P<number>-?\d+(?:[.,/]\d+)*))"
    r"|\\."
    r"|(?P<brace>\{)|(?P<close>\})",
    re.ASCII | re.DOTALL,
)


def boxes(text: str) -> list[tuple[int, int]]:
    r"""Spans of the contents of balanced `\boxed{...}`, `\fbox{...}` and `\boxed 5` of `text`, as they open.

    One pass over the text, so that a hundred thousand braces cost milliseconds.
    """
    spans, opened = [], []
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "number":
                spans.append(token.span("number"))
            case "box" | "brace" as kind:
                opened.append((kind, token.end()))
            case "close" if opened:
                kind, start = opened.pop()
                if kind == "box":
                    spans.append((start, token.start()))
    return sorted(spans)


def last_box(text: str) -> str | None:
    """Content of the balanced box that opens last in `text`; None without one."""
    spans = boxes(text)
    return text[slice(*spans[-1])] if spans else None


def completion_text(completion: list[dict] | str) -> str:
    """Text of a completion; empty if the assistant wrote none, as in a mere tool call."""
    if isinstance(completion, str):
        return completion
    said = [message.get("content") for message in completion if message.get("role", "assistant") == "assistant"]
    return said[-1] if said and isinstance(said[-1], str) else ""


def after_thinking(completion: str) -> str:
    """The part of a completion that is said to the user: what follows the last `</think>`, all of it without one.

    Empty if a `<think>` is not closed, because text inside or before it is not an answer.
    """
    said = completion.rpartition("</think>")[2]
    return "" if "<think>" in said else said


def committed_answer(completion: str) -> str:
    """The final answer of a completion, stripped; empty if there is none, or more than one."""
    answers = committed_answers(completion)
    return answers[0] if len(answers) == 1 else ""


def committed_answers(completion: str) -> tuple[str, ...]:
    r"""The boxes that a completion commits to outside of thinking, stripped: two for `\boxed{3} or \boxed{5}`."""
    found = committed_boxes(after_thinking(completion))
    return tuple(filter(None, map(str.strip, found.texts))) if found else ()


class Boxes(NamedTuple):
    """What a text commits to in boxes: nothing, one answer or several; and where the last box ends."""

    texts: tuple[str, ...]
    end: int


# Others say it, or say it wrongly. Not "I would say" and "you get".
_OTHERS = r"(?:many|some|most|others?|people|students|someone|everyone|(?:text)?books?|experts?)(?: \w+){0,2}"
_OPINION = r"(?:say|think|believe|argue|claim|guess|assume|answer|choose|pick|expect)"
_THAT_IT_IS = (
    r"[,:]?(?: that)?(?: (?:the|it|its|this|it['’]s))?(?: (?:correct|right|final|best))?"
    r"(?: (?:answer|option|choice|value|result))?(?: (?:is|was|be|would be|to be|should be|must be|equals))?"
)
HEARSAY = (
    rf"\b(?:{_OTHERS}|(?:they|he|she|you|one) (?:would|might|may|could)(?: \w+)?) {_OPINION}s?{_THAT_IT_IS}"
    rf"|\b(?:tempted|tempting) to {_OPINION}{_THAT_IT_IS}"
    rf"|\b(?:mistakenly|wrongly|incorrectly)(?: \w+)?{_THAT_IT_IS}"
    rf"|\b(?:common|usual|typical|frequent|easy) (?:mistake|error) (?:is|would be)(?: to \w+)?{_THAT_IT_IS}"
)
# How a sentence goes on that gives an opinion of others, or takes the answer back.
OTHERS_SAY = re.compile(rf"[^.!?\n]{{0,80}}(?:[,(-]|is what) ?{_OTHERS} {_OPINION}\b", re.IGNORECASE)
_MARKS = r"[\s$*:({}\\]{0,5}$"
_HEARD = re.compile(rf"(?:{HEARSAY}){_MARKS}", re.IGNORECASE)
_NEGATION = re.compile(
    r"(?:(?:\b(?:not|never|neither|nor|cannot|instead of|rather than|unlike)|n['’]t)(?: be)?"
    rf"(?: (?:the|an?|answer|option|choice|simply|just|equal(?:s| to)?)){{0,3}}|\\neq?|≠){_MARKS}",
    re.IGNORECASE,
)
_FALSE = r"(?:wrong|incorrect|false|invalid|impossible|a (?:common )?(?:mistake|error))"
_TRUE = r"(?:answer|correct|right|valid|possible|work|solution|true|it)"
_DENIAL = re.compile(
    rf"[\s$*).}}\\,]{{0,5}}(?:which )?(?:(?:is|was|would be|would have been|must be|seems)(?: \w+)? {_FALSE}\b"
    rf"|(?:(?:is|was|would|can|does|did)(?: ?not\b|n['’]t\b)|cannot\b)(?: \w+){{0,2}} {_TRUE}\b"
    r"|(?:is|was)(?: ?not\b|n['’]t\b)[\s$*]*(?:[.,;!?)]|$))",
    re.IGNORECASE,
)
_IF = r"(?<!if )(?<!whether )(?<!where )(?<!earlier )"  # "Let me know if I made a mistake" takes nothing back
TAKEN_BACK = rf"\bscratch that\b|\bon second thought|{_IF}\bi was (?:wrong|mistaken)\b"
_RETRACTION = (
    rf"{TAKEN_BACK}|\b(?:wait|hold on|h+m+|actually|oh|oops|sorry)\b[\s,.!…–—-]{{1,5}}"
    r"(?:no\b|not\b|(?:that|this|it)(?:['’]s| is| was)(?: \w+)? (?:wrong|incorrect|mistake)"
    r"|(?:that|this|it)(?:(?:['’]s| is| was) not|(?: is| was)n['’]t) (?:right|correct)|i made\b)"
    rf"|{_IF}\bi made an? (?:mistake|error)\b"
)
RETRACTION = re.compile(_RETRACTION, re.IGNORECASE)
RETRACTION_BEHIND = re.compile(  # also as the first words behind an answer
    rf"{_RETRACTION}|^[\s$.,;!?)\\]{{0,8}}(?:no[,.!]|or not\b|(?:but )?th(?:at|is)(?:['’]s| is| was)"
    rf"(?: \w+)? (?:{_FALSE}|not (?:right|correct)))",
    re.IGNORECASE,
)
_CONNECTIVE = re.compile(
    r"[\s$,;/&.*()\\]{0,20}(?:(?:and|or)[\s$*()\\]{0,20})?"
    r"|[^.!?\n]{0,40}\b(?:or(?! rather)|alternatively|perhaps|maybe|possibly)\b[^.!?\n]{0,40}",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"\\(?:boxed|fbox)")
_TEXT = re.compile(r"\\(?:text|mbox|textrm)\s*\{([^{}]*)\}")


def committed_boxes(said: str) -> Boxes | None:
    r"""The last box that is not denied, with those that it is joined to by "or" and the like; None without a box.

    There is none for `Many would say \boxed{5}.` and `\boxed{5} Wait, no.`.
    """
    spans = boxes(said)
    if not spans:
        return None
    committed = [span for span in spans[-MOST_BOXES:] if not _is_denied(said, *span)]
    end = max(end for _, end in spans) + 1
    if not committed or RETRACTION_BEHIND.search(said[end : end + _BEHIND_CHARS]):
        return Boxes((), end)
    first = len(committed) - 1
    while first and _are_joined(said, committed[first - 1], committed[first]):
        first -= 1
    texts = [said[slice(*span)] for span in committed[first:]]
    return Boxes(
        tuple(text for text, after in zip(texts, [*texts[1:], None], strict=True) if not _is_same(text, after)), end
    )


def _command(said: str, start: int) -> int:
    r"""Where the `\boxed` of a box begins whose content begins at `start`."""
    return max(said.rfind(r"\boxed", 0, start), said.rfind(r"\fbox", 0, start))


def _is_denied(said: str, start: int, end: int) -> bool:
    r"""Whether a box stands in `not \boxed{3}`, `some would say \boxed{3}` or `\boxed{3} would be wrong`."""
    command = _command(said, start)
    before, behind = said[max(0, command - 80) : command], said[end + 1 : end + 60]
    return bool(_NEGATION.search(before) or _HEARD.search(before) or _DENIAL.match(behind) or OTHERS_SAY.match(behind))


def _are_joined(said: str, earlier: tuple[int, int], later: tuple[int, int]) -> bool:
    """Whether two boxes are one statement: joined by no more than "or", or one in the other."""
    between = said[earlier[1] + 1 : _command(said, later[0])]
    return len(between) < 200 and _CONNECTIVE.fullmatch(_TEXT.sub(r"\1", between)) is not None


def _is_same(text: str, after: str | None) -> bool:
    r"""Whether a box repeats the next one, or names it as in `\boxed{x = \boxed{4}}`."""
    ours, theirs = (re.sub(r"[\s{}$]", "", _COMMAND.sub("", each or "")) for each in (text, after))
    return after is not None and (ours == theirs or ours.endswith(f"={theirs}"))


def gold_answer(solution: str) -> str:
    r"""The answer of a gold: the last box of a worked solution, what follows its `####`, or all of a bare answer.

    Empty if there is none. A solution whose box never closes was cut: it has no answer.
    """
    box = last_box(solution)
    if box is None:
        box = "" if r"\boxed" in solution else solution.rpartition("####")[2]
    return box.strip()
