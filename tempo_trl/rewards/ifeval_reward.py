"""The reward of the task `ifeval_rl`: the share of a prompt's instructions that a completion follows."""

import json

from tempo_trl.rewards.boxed import after_thinking, completion_text


def ifeval_reward(
    completions: list[list[dict[str, str]]] | list[str],
    instruction_id_list: list[list[str]],
    kwargs: list[str],
    **columns,
) -> list[float]:
    """Reward function for TRL: the share of the instructions of IFEval that a completion follows, by its own checkers.

    The checkers are those of lm-eval (`pip install "lm-eval[ifeval]"`), strict: on the answer as it is. They download
    `punkt_tab` of NLTK when they are first imported.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        instruction_id_list: Names of the instructions of each row, such as `punctuation:no_comma`.
        kwargs: JSON of each row: a list of the arguments of each instruction.
        **columns: Other columns that TRL passes; ignored.

    Raises:
        ImportError: the checkers cannot be imported.
    """
    checkers = _checkers()  # before there are answers, so that a trainer learns at once if they are missing
    answers = [after_thinking(completion_text(completion)) for completion in completions]
    return [_share(checkers, *row) for row in zip(answers, instruction_id_list, map(json.loads, kwargs), strict=True)]


def _checkers() -> dict[str, type]:
    try:
        from lm_eval.tasks.ifeval.instructions_registry import INSTRUCTION_DICT
    except ImportError as error:
        raise ImportError(
            f'`ifeval_reward` needs the checkers of lm-eval: pip install "lm-eval[ifeval]" ({error})'
        ) from error
    return INSTRUCTION_DICT


def _share(checkers: dict[str, type], answer: str, names: list[str], kwargs: list[dict]) -> float:
    followed = [_follows(checkers[name](name), answer, given) for name, given in zip(names, kwargs, strict=True)]
    return sum(followed) / len(followed)


def _follows(instruction, answer: str, kwargs: dict) -> bool:
    if not answer.strip():
        return False
    instruction.build_description(**{key: value for key, value in kwargs.items() if value is not None})
    return bool(instruction.check_following(answer))
