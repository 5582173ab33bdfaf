r"""What a completion says after its thought, and the answers that it puts in `\boxed{...}`.

MATH (https://huggingface.co/papers/2103.03874) marks the answer of each solution with a box, and a prompt built by
`tempo_trl.data.load_prompts` asks the model for the same.
"""

import re
from typing import Literal, get_args

from tempo_trl.rewards.reading import content_of

BoxRule = Literal["all", "last"]

# A box opens with a brace, or holds a bare number: some MATH solutions have `\boxed 5`. An escaped brace is text, as
# in `\{1, 2\}`: the second line swallows it together with its backslash.
_TOKEN = re.compile(
    r"\\(?:boxed|fbox)\s*(?:(?P<box>\{)|(?P<number>-?\d+(?:[.,/]\d+)*))"
    r"|\\."
    r"|(?P<brace>\{)|(?P<close>\})",
    re.ASCII | re.DOTALL,
)


def boxes(text: str) -> list[str]:
    """Contents of the boxes of a text, stripped, without empty ones."""
    return [content for span in box_spans(text) if (content := text[slice(*span)].strip())]


def box_spans(text: str) -> list[tuple[int, int]]:
    r"""Where the contents of balanced `\boxed{...}`, `\fbox{...}` and `\boxed 5` are in a text, in order.

    A box inside of another one is a part of its content. One pass over the text, so that a hundred thousand braces
    cost milliseconds.
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
                    while spans and spans[-1][0] > start:
                        spans.pop()
                    spans.append((start, token.start()))
    return spans


def counted(answers: list[str], rule: BoxRule) -> tuple[str, ...]:
    """The answers that count, each text once: all of them, or the last.

    Raises:
        ValueError: `rule` is neither `"all"` nor `"last"`.
    """
    if rule not in get_args(BoxRule):
        raise ValueError(f'`boxes` is {rule!r}, expected "all" or "last". Change it.')
    return tuple(dict.fromkeys(answers[-1:] if rule == "last" else answers))


def gold_answer(solution: str) -> str:
    r"""The answer of a gold: the last box of a worked solution, what follows its `####`, or all of a bare answer.

    Empty if there is none. A solution whose box never closes was cut: it has no answer.
    """
    found = boxes(solution)
    if found or r"\boxed" in solution:
        return found[-1] if found else ""
    return solution.rpartition("####")[2].strip()


def completion_text(completion: list[dict] | str) -> str:
    """Text of a completion; empty if the assistant wrote none, as in a mere tool call."""
    if isinstance(completion, str):
        return completion
    said = [content_of(message) for message in completion if message.get("role", "assistant") == "assistant"]
    return said[-1] if said else ""


def after_thinking(completion: str) -> str:
    """The part of a completion that is said to the user: what follows the last `</think>`, all of it without one.

    Empty if a thought begins and none ends, because text inside or before it is not an answer.
    """
    _, closed, said = completion.rpartition("</think>")
    return said if closed or "<think>" not in said else ""
