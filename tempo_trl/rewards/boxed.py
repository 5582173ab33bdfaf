r"""The answer in a text: the content of its last `\boxed{...}`.

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
