r"""What a text answers: the content of its last `\boxed{...}`.

MATH (https://huggingface.co/papers/2103.03874) marks the answer of each solution with a box, and a prompt built by
`tempo_trl.data.math_dataset` asks the model for the same.
"""

import re

# A box opens with a brace, or holds a bare number: some MATH solutions have `\boxed 5`. An escaped brace is text, as
# in `\{1, 2\}`: the second line swallows it together with its backslash.
_TOKEN = re.compile(
    r"\\(?:boxed|fbox)\s*(?:(?P<box>\{)|(?P<number>-?\d+(?:[.,/]\d+)*))"
    r"|\\."
    r"|(?P<brace>\{)|(?P<close>\})",
    re.ASCII | re.DOTALL,
)


def last_box(text: str) -> str | None:
    r"""Content of the balanced `\boxed{...}`, `\fbox{...}` or `\boxed 5` that opens last in `text`; None without one.

    One pass over the text, so that a hundred thousand braces cost milliseconds.
    """
    boxes, opened = [], []
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "number":
                boxes.append(token.span("number"))
            case "box" | "brace" as kind:
                opened.append((kind, token.end()))
            case "close" if opened:
                kind, start = opened.pop()
                if kind == "box":
                    boxes.append((start, token.start()))
    return text[slice(*max(boxes))] if boxes else None


def after_thinking(completion: str) -> str:
    """The part of a completion that is said to the user: what follows the last `</think>`, all of it without one.

    Empty where a `<think>` stays open: what was written in it, or before it, is not yet an answer.
    """
    said = completion.rpartition("</think>")[2]
    return "" if "<think>" in said else said


def committed_answer(completion: str) -> str:
    """The final answer of a completion: its last box outside of thinking, stripped; empty if there is none."""
    return (last_box(after_thinking(completion)) or "").strip()


def gold_answer(solution: str) -> str:
    r"""The answer of a gold: the last box of a worked solution, or all of a bare answer; empty if there is none.

    A solution whose box never closes was cut: it has no answer.
    """
    box = last_box(solution)
    if box is None:
        box = "" if r"\boxed" in solution else solution
    return box.strip()
