r"""The reward for multiple-choice answers: 1.0 if the completion commits to the correct letter, 0.0 if not."""

import re
from collections.abc import Callable
from string import ascii_uppercase

from tempo_trl.rewards.boxed import BoxRule, after_thinking, completion_text, counted, gold_answer
from tempo_trl.rewards.boxed import boxes as boxes_of
from tempo_trl.rewards.math_equality import plain_text, unstyled


def choice_reward(
    completions: list[list[dict[str, str]]] | list[str],
    solution: list[str],
    options: list[list[str]],
    boxes: BoxRule = "all",
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 if a completion commits to the correct option, 0.0 otherwise.

    The answer stands in `\boxed{}` after the thought; without a box, in `<answer>`; without either, on a last line
    `Answer: B`. It is a letter, the exact text of an option, or both (`B. Digoxin`). Two different answers are wrong,
    whatever the words between them say; with `boxes="last"`, as in published figures, the last one counts. The thought
    ends at the last `</think>`, and an unfinished one does not answer. There is no default letter.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        solution: Gold answer of each completion: a letter, bare or in a box.
        options: Texts of each completion's options, in the order A, B, ..., or by these letters.
        boxes: Which answers count: `"all"`, which must be equal, or the `"last"`.
        log_metric: TRL's callback. Receives `choice/no_answer`, the share of completions that commit to no option,
            among those that have options.
        **columns: Other columns that TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` if the row has no options, as in a mixture with other tasks, or if
        its solution is not the letter of an option.

    Raises:
        ValueError: options go by other keys or are not texts, or `boxes` has another value.
    """
    rewards, letters = [], []
    for completion, gold, row in zip(completions, solution, options, strict=True):
        texts = _texts(row)
        gold = gold_answer(gold) if isinstance(gold, str) else ""
        letter = chosen_letter(completion_text(completion), texts, boxes)
        letters += [letter] if texts else []
        is_known = len(gold) == 1 and gold in ascii_uppercase[: len(texts)]
        rewards.append(float(letter == gold) if is_known else None)
    if log_metric is not None and letters:
        log_metric("choice/no_answer", letters.count("") / len(letters))
    return rewards


# Not `*+`, with which Python 3.11.2 loses what the group has matched.
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL)
_LINE = re.compile(r"[\s*_]*(?:Final )?Answer[\s*_]*:[\s*_]*(?P<answer>(?:.*[^\s*_])?)", re.IGNORECASE)
_LETTER = re.compile(r"[\s*_(\[]*(?P<letter>[A-Z])(?:[\s*_)\].:]*|[*_)\]]*[.):][)\s*_]*(?P<text>.*))", re.DOTALL)


def chosen_letter(completion: str, options: list[str], boxes: BoxRule = "all") -> str:
    """The letter of the option that a completion commits to; empty if it names none, or two different ones."""
    said = after_thinking(completion)
    line = _LINE.match((said.rstrip().splitlines() or [""])[-1])
    claims = boxes_of(said) or _TAGGED.findall(said) or ([line["answer"]] if line else [])
    letters = {_letter_of(claim, options) for claim in counted(claims, boxes)}
    return letters.pop() if len(letters) == 1 else ""


def _letter_of(claim: str, options: list[str]) -> str:
    """The letter of the option that a claim is, by its letter, by its text or by both; empty if there is not one."""
    texts = dict(zip(ascii_uppercase, map(plain_text, options), strict=False))
    named = _LETTER.fullmatch(unstyled(claim))
    if named and named["letter"] in texts and plain_text(named["text"] or "") in ("", texts[named["letter"]]):
        return named["letter"]
    same = [letter for letter, text in texts.items() if text == plain_text(claim)]
    return same[0] if len(same) == 1 else ""


def _texts(options: list[str | None] | dict[str, str | None] | None) -> list[str]:
    if isinstance(options, dict):
        if [*options] != [*ascii_uppercase[: len(options)]]:
            raise ValueError(
                f"`options` go by {', '.join(map(repr, options))}, expected a list, or the letters A, B, ... in order."
            )
        options = [*options.values()]
    texts = [*(options or [])]
    while texts and texts[-1] is None:  # `datasets` gives all rows the keys of the longest
        texts.pop()
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`options` must be texts, got {options!r:.100}. Correct the row.")
    return texts
