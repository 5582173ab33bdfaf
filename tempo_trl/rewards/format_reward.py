r"""The reward for the format: 1.0 if the completion has exactly one non-empty box outside of thinking."""

from collections.abc import Callable

from tempo_trl.rewards.boxed import after_thinking, boxes, completion_text


def format_reward(
    completions: list[list[dict[str, str]]] | list[str],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 if a completion has exactly one answer in a box, 0.0 otherwise.

    Outside of thinking there must be exactly one `\boxed` (or `\fbox`), closed and not empty. A second box, even with
    the same answer, a truncated or empty box, and an unfinished thought earn 0.0. The answer need not be correct.

    Use it to monitor the format, not to train on it. TRL's default weight of a reward is 1, so set its weight to 0
    (`rewards/format_reward/mean` is logged nevertheless):

        reward_funcs: [math_reward, format_reward]
        reward_weights: [1.0, 0.0]

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        log_metric: TRL's callback. Receives `format/no_answer`, the share of completions without an answer in a box.
        **columns: Other columns that TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion, never `None`.

    Note:
        TRL leaves a completion out of its group only if all rewards are None. Beside this reward, with any weight, a
        None of `math_reward` or `choice_reward` therefore counts as 0.0.
    """
    said = [after_thinking(completion_text(completion)) for completion in completions]
    answers = list(map(boxes, said))
    if log_metric is not None and answers:
        log_metric("format/no_answer", answers.count([]) / len(answers))
    opened = [text.count(r"\boxed") + text.count(r"\fbox") for text in said]
    return [float(len(found) == count == 1) for found, count in zip(answers, opened, strict=True)]
