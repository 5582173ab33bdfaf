r"""The reward for multiple-choice answers: 1.0 if the completion commits to the correct letter, 0.0 if not."""

import logging
from collections.abc import Callable

from tempo_trl.rewards.boxed import completion_text, gold_answer
from tempo_trl.rewards.choice_answer import LETTERS, chosen_letter

logger = logging.getLogger(__name__)


def choice_reward(
    completions: list[list[dict[str, str]]] | list[str],
    solution: list[str],
    options: list[list[str]],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 if a completion commits to the correct option, 0.0 otherwise.

    The answer is read from the last `\boxed{}` outside of thinking: text up to the last `</think>` is dropped, and an
    unclosed `<think>` counts as no answer. A box that the text denies or takes back is not an answer, nor are two that
    are joined by "or" ([`~tempo_trl.rewards.boxed`]). Without a box, or behind one that names no option, it is read
    from the last `<answer>`, else from the text after the last "answer is" or "answer:", else from a letter alone, or
    with its option's text, on the first or last line. The answer names an option by its letter, by its exact text, or
    by both if they agree ([`~tempo_trl.rewards.choice_statement`], [`~tempo_trl.rewards.choice_answer`]). Two letters,
    a letter followed by another option's text, or a letter that the row does not have count as no answer and earn 0.0.
    There is no default letter.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        solution: Gold answer of each completion: a letter, bare or in a box.
        options: Texts of each completion's options, in the order A, B, ..., or by these letters.
        log_metric: TRL's callback. Receives `choice/no_answer`, the share of completions that commit to no option,
            among those that have options.
        **columns: Other columns that TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` if the row has no options, as in a mixture with other tasks, or if
        its solution is not the letter of an option.

    Raises:
        ValueError: `completions`, `solution` and `options` differ in length, or options go by other keys.
    """
    if not len(solution) == len(options) == len(completions):
        raise ValueError(
            f"got {len(solution)} solutions and {len(options)} lists of options for {len(completions)} completions, "
            "expected one of each per completion. Pass lists of equal length."
        )
    rows = list(map(_texts, options))
    golds = list(map(_gold, solution, rows))
    letters = [chosen_letter(completion_text(said), row) for said, row in zip(completions, rows, strict=True)]
    answers = [letter for letter, row in zip(letters, rows, strict=True) if row]
    if log_metric is not None and answers:
        log_metric("choice/no_answer", answers.count("") / len(answers))
    _warn_of_unknown(solution, golds, rows)
    return [float(letter == gold) if gold else None for letter, gold in zip(letters, golds, strict=True)]


def _texts(options: list[str] | dict[str, str] | None) -> list[str]:
    if isinstance(options, dict):
        if [*options] != [*LETTERS[: len(options)]]:
            raise ValueError(
                f"`options` go by {', '.join(map(repr, options))}, expected a list, or the letters A, B, ... in order."
            )
        options = list(options.values())
    return options or []


def _gold(solution: str | None, options: list[str]) -> str:
    """Letter of the correct option; empty if the solution is not a letter of the row's options."""
    letter = gold_answer(solution) if isinstance(solution, str) else ""
    return letter if letter in list(LETTERS[: len(options)]) else ""


def _warn_of_unknown(solution: list[str], golds: list[str], rows: list[list[str]]) -> None:
    """Warn of solutions that are not a letter: errors in the data. An empty solution is an unknown answer."""
    unknown = [text for text, gold, row in zip(solution, golds, rows, strict=True) if row and text and not gold]
    if unknown:
        logger.warning(
            "choice_reward: %d of %d solutions are not the letter of an option, for example %.60r. Their reward is "
            "None. Write the letter of the correct option into `solution`, A for the first.",
            len(unknown),
            len(golds),
            unknown[0],
        )
