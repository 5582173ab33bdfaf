"""The reward of the task `instructions`: 1.0 if an answer follows its instruction in prose, else 0.0."""

from collections.abc import Callable

from tempo_trl.rewards.boxed import after_thinking, completion_text
from tempo_trl.rewards.instruction_checks import is_prose, verdict


def instruction_reward(
    completions: list[list[dict[str, str]]] | list[str],
    kind: list[str],
    words: list[list[str]],
    number: list[int],
    prompts: list,
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float]:
    """Reward function for TRL: 1.0 if a completion follows its instruction and is prose, 0.0 otherwise.

    The text after the last `</think>` is graded. An unfinished `<think>` earns 0.0.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        kind, words, number: Columns of [`~tempo_trl.data.instructions.problems`]: see
            [`~tempo_trl.rewards.instruction_checks.verdict`].
        prompts: The prompts. An answer that repeats one earns 0.0.
        log_metric: TRL's callback. Receives `instructions/prose`, the share of completions that are prose, and
            `instructions/{kind}`, the mean reward of each kind in the batch.
        **columns: Other columns that TRL passes; ignored.
    """
    answers = [after_thinking(completion_text(completion)) for completion in completions]
    prose = [is_prose(answer, _instruction(prompt)) for answer, prompt in zip(answers, prompts, strict=True)]
    checked = [verdict(*row).passed for row in zip(answers, kind, words, number, strict=True)]
    rewards = [float(good and followed) for good, followed in zip(prose, checked, strict=True)]
    if log_metric is not None and rewards:
        log_metric("instructions/prose", sum(prose) / len(prose))
        for name in sorted(set(kind)):
            own = [reward for reward, other in zip(rewards, kind, strict=True) if other == name]
            log_metric(f"instructions/{name}", sum(own) / len(own))
    return rewards


def _instruction(prompt: list[dict[str, str]] | str) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]
