r"""The reward for mathematical answers: 1.0 if the box of the completion equals the gold answer, 0.0 if not."""

import importlib.util
import math
import re
from collections.abc import Callable
from fractions import Fraction
from numbers import Number

from tempo_trl.rewards.boxed import BoxRule, after_thinking, completion_text, counted, gold_answer
from tempo_trl.rewards.boxed import boxes as boxes_of
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, shared_grader
from tempo_trl.rewards.math_equality import plain_number
from tempo_trl.rewards.span_reward import referenced


def math_reward(
    completions: list[list[dict[str, str]]] | list[str],
    solution: list[str | float | None],
    boxes: BoxRule = "all",
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 if a completion's answer equals the gold answer, 0.0 otherwise.

    Three rules grade a completion:

    - *One answer.* The answer is what stands in `\boxed{}` after the thought, which ends at the last `</think>`. An
      unfinished thought and an empty box are no answer. Several boxes count only if all are equal, whatever the words
      between them say; with `boxes="last"`, as in published figures, the last one counts.
    - *Equal as a whole.* Answer and gold are the same text, exactly the same number, or formulas of the same value
      ([`~tempo_trl.rewards.math_equality`]).
    - *Bounded.* A child process compares them ([`~tempo_trl.rewards.grader`]). What it cannot decide, because it takes
      more than 3 s of CPU time or 4 GiB of memory, has the reward None. The call neither hangs nor raises.

    A gold that is a Python literal of a float, such as GSM-Hard's `2.0107e-06`, has a tolerance
    ([`~tempo_trl.rewards.math_reward.float_tolerance`]).

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        solution: Gold answer of each completion: a worked solution with `\boxed{...}`, or a bare answer, which may be
            a number instead of a text. None is unknown.
        boxes: Which boxes are the answer: `"all"`, which must be equal, or the `"last"`.
        log_metric: TRL's callback. Receives `math/no_answer`, the share of completions without an answer.
        **columns: Other columns that TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` if the gold has no answer, or if the comparison is undecided.

    Raises:
        ImportError: math-verify is not installed.
        ValueError: a gold is not a text, a number or None, or `boxes` has another value.

    Note:
        If a chat template opens `<think>` in the prompt, the completion does not contain the tag, and a box in
        truncated thinking is taken for the answer. Qwen3's own template leaves the tag to the model.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError('math_reward needs math-verify. Install it: pip install "trl[math-verify]"')
    said = [after_thinking(completion_text(completion)) for completion in completions]
    answers = [counted(boxes_of(text), boxes) for text in said]
    if log_metric is not None and answers:
        log_metric("math/no_answer", answers.count(()) / len(answers))
    golds = referenced({"solution": solution}, "solution", "math_reward", _text, "a text, a number or None")
    pairs = list(zip(golds, answers, strict=True))
    # The completions of a group often agree: each distinct answer is compared once.
    rewards = {pair: _reward(*pair) for pair in dict.fromkeys(pairs)}
    return [rewards[pair] for pair in pairs]


def _text(solution: str | Number) -> str:
    """A gold as text: AMC's and GSM-Hard's own columns hold floats."""
    if isinstance(solution, bool) or not isinstance(solution, str | Number):
        raise ValueError(f"it is of type {type(solution).__name__}")
    return "" if solution != solution else str(solution)


def _reward(solution: str | None, answers: tuple[str, ...]) -> float | None:
    gold = gold_answer(solution or "")
    if not 0 < len(gold) <= MAX_ANSWER_CHARS:
        return None
    verdicts = [False] if not answers else [_is_right(solution, answer) for answer in answers]
    verdicts += [_is_equal(answers[0], other) for other in answers[1:] if False not in verdicts]
    return None if None in verdicts and False not in verdicts else float(all(verdicts))


def _is_right(solution: str, answer: str) -> bool | None:
    tolerance = float_tolerance(solution) if len(answer) <= MAX_ANSWER_CHARS else None
    number = None if tolerance is None else plain_number(answer)
    if number is not None:
        return abs(number - Fraction(solution.strip())) <= tolerance
    return _is_equal(gold_answer(solution), answer)


def _is_equal(gold: str, answer: str) -> bool | None:
    if gold == answer or len(answer) > MAX_ANSWER_CHARS:
        return gold == answer
    return shared_grader.compare(gold, answer)


_FLOAT = re.compile(
    r"-?\d+(?:\.(?P<decimals>\d+)(?P<exponent>e[+-]?\d{1,3})?|e[+-]?\d{1,3})", re.ASCII | re.IGNORECASE
)


def float_tolerance(solution: str) -> Fraction | None:
    """How far an answer may be from a gold that is a float; None if the gold is anything else.

    A float is a bare literal as Python writes it, with a point or an exponent. With more than two decimals or a
    negative exponent it was rounded: an answer may differ by 0.005, so that cents suffice, but at most by a thousandth
    of the gold, so that 0 is not close to `2.0107e-06`. Otherwise it is exact, up to half the distance of neighbouring
    floats.
    """
    literal = _FLOAT.fullmatch(solution.strip())
    if literal is None or not math.isfinite(float(literal[0])):
        return None
    value = Fraction(literal[0])
    is_rounded = value.denominator != 1 and (len(literal["decimals"] or "") > 2 or "e" in literal[0].lower())
    slack = min(Fraction(5, 1000), abs(value) / 1000) if is_rounded else 0
    return slack + Fraction(math.ulp(float(value))) / 2
