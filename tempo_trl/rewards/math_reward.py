r"""The reward for mathematical answers: 1.0 if the box of the completion equals the gold answer, 0.0 if not."""

import importlib.util
import logging
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from tempo_trl.rewards.boxed import committed_answers, completion_text, gold_answer
from tempo_trl.rewards.float_gold import FloatGold, float_gold
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, shared_grader
from tempo_trl.rewards.math_guards import contradicts
from tempo_trl.rewards.math_text import is_prose, is_same_text, math_text
from tempo_trl.rewards.math_units import in_another_unit, without_units
from tempo_trl.rewards.plain_number import number_readings

logger = logging.getLogger(__name__)

# CPU seconds of the child per call, plus those per completion. An answer takes about 10 ms. The limit suffices for a
# step in which every twelfth answer hangs for its full 3 s.
CALL_SECONDS, COMPLETION_SECONDS = 5.0, 0.25


def math_reward(
    completions: list[list[dict[str, str]]] | list[str],
    solution: list[str],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float | None]:
    r"""Reward function for TRL: 1.0 if a completion's final answer equals the gold answer, 0.0 otherwise.

    The final answer is the last `\boxed{...}` outside of thinking: text up to the last `</think>` is dropped, and an
    unclosed `<think>`, a missing box or an empty box counts as no answer. A box that the text denies or takes back is
    not an answer, and boxes that are joined by "or" must all be right ([`~tempo_trl.rewards.boxed`]). Answers are
    equal if they are the same text, the same plain number, or equal according to math-verify
    (https://github.com/huggingface/Math-Verify), which reads both as a whole and compares numbers exactly. Everyday
    spellings are first converted to the form that math-verify reads ([`~tempo_trl.rewards.math_text`]). Answers that
    math-verify accepts despite another unit ([`~tempo_trl.rewards.math_units`]), opposite words, another base or kind
    of brackets ([`~tempo_trl.rewards.math_guards`]) earn 0.0. If comparing an answer hangs, crashes or exhausts the
    memory, its reward is `None`; the call itself neither hangs nor raises, in any thread.

    Args:
        completions: Conversations (the last assistant message counts) or plain strings.
        solution: Gold answer of each completion: a worked solution with `\boxed{...}`, or a bare answer, which may be
            a number instead of a text.
        log_metric: TRL's callback. Receives `math/no_answer`, the share of completions without an answer.
        **columns: Other columns that TRL passes; ignored.

    Returns:
        `1.0` or `0.0` for each completion; `None` if the gold has no answer, if it is prose ("The answer is 5.") and
        the answer is not the same text, or if the comparison ran out of time: more than 3 s for the answer, or more
        than 5 s plus 0.25 s per completion for the call. These are seconds of CPU time, so a busy machine does not
        change rewards.

    Raises:
        ImportError: math-verify is not installed.
        ValueError: `completions` and `solution` differ in length.

    Note:
        If the gold is a float with more than two decimals, the answer must be a number: `\sqrt{2}` earns 0.0 against
        `1.4142135624`. For whole floats and those with one or two decimals, math-verify compares such answers.

        If a chat template opens `<think>` in the prompt, the completion does not contain the tag, and a box in
        truncated thinking is taken for the answer. Qwen3's own template leaves the tag to the model.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise ImportError('math_reward needs math-verify. Install it: pip install "tempo_trl[math-verify]"')
    if len(solution) != len(completions):
        raise ValueError(
            f"got {len(solution)} solutions for {len(completions)} completions, expected one per completion. Pass "
            "lists of equal length."
        )
    budget = _Budget(CALL_SECONDS + COMPLETION_SECONDS * len(completions))
    answers = [committed_answers(completion_text(completion)) for completion in completions]
    if log_metric is not None and answers:
        log_metric("math/no_answer", answers.count(()) / len(answers))
    pairs = list(zip(map(_gold, solution), answers, strict=True))
    # The completions of a group often agree: each distinct answer is compared once.
    rewards = {pair: _reward_of_all(*pair, budget) for pair in dict.fromkeys(pairs)}
    ungraded = [pair[0] for pair in pairs if pair[0].text and rewards[pair] is None]
    _warn_of_prose([gold.text for gold in ungraded if gold.is_prose], len(pairs))
    _warn_of_ungraded(sum(not gold.is_prose for gold in ungraded), len(pairs))
    return [rewards[pair] for pair in pairs]


class _Budget:
    """Remaining CPU seconds for the comparisons of a call."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def compare(self, gold: str, answer: str) -> bool | None:
        """math-verify's verdict; None if it is undecided, or if no time is left."""
        if self.seconds <= 0:
            return None
        verdict = shared_grader.compare(gold, answer)
        self.seconds -= verdict.cpu_seconds
        return verdict.equal


class _Gold(NamedTuple):
    text: str  # empty where the row has no answer, and where it is too long to be one
    number: FloatGold | None
    is_prose: bool  # neither a formula nor a few words: only the same text is graded


def _gold(solution: str | float | None) -> _Gold:
    if not isinstance(solution, str):  # AMC's and GSM-Hard's own columns hold floats
        solution = "" if solution is None or solution != solution else str(solution)
    text = gold_answer(solution)
    if len(text) > MAX_ANSWER_CHARS:
        return _Gold("", None, is_prose=False)
    return _Gold(text, float_gold(solution), is_prose(math_text(text)))


def _reward_of_all(gold: _Gold, answers: tuple[str, ...], budget: _Budget) -> float | None:
    r"""Reward of the boxes of one statement.

    Each must be right, or they are the gold's list: `\boxed{1} and \boxed{2}` for `1,2`.
    """
    rewards = [_reward(gold, answer, budget) for answer in answers or ("",)]
    if len(answers) > 1 and 0.0 in rewards:
        return _reward(gold, ", ".join(answers), budget)
    return None if None in rewards else min(rewards)


def _reward(gold: _Gold, answer: str, budget: _Budget) -> float | None:
    """Reward of one answer. The child process is only used if texts and numbers do not decide."""
    if not gold.text:
        return None
    if answer == gold.text:
        return 1.0
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return None if gold.is_prose else 0.0
    ours, theirs = math_text(gold.text), math_text(answer)
    if is_same_text(ours, theirs):
        return 1.0
    if gold.is_prose:
        return None
    if in_another_unit(gold.text, answer) or contradicts(ours, theirs):
        return 0.0
    if gold.number is not None:
        readings = number_readings(theirs)
        if readings or gold.number.rounded:
            return float(gold.number.equals(readings))
        ours = gold.number.text()
    if _same_number(number_readings(ours, strict=True), number_readings(theirs, strict=True)):
        return 1.0
    verdict = budget.compare(without_units(ours), without_units(theirs))
    return None if verdict is None else float(verdict)


def _same_number(gold: tuple[Fraction, ...], answer: tuple[Fraction, ...]) -> bool:
    """Whether two plain numbers are equal. A percentage may equal a number as a share, or without its sign."""
    if len(gold) == len(answer):
        return gold[:1] == answer[:1] != ()
    return not {*gold}.isdisjoint(answer)


def _warn_of_prose(golds: list[str], num_completions: int) -> None:
    if golds:
        logger.warning(
            "math_reward did not grade %d of %d completions (their reward is None): their solutions are prose, for "
            "example %.80r. Write the answer alone into `solution`, or put it in \\boxed{}.",
            len(golds),
            num_completions,
            golds[0],
        )


def _warn_of_ungraded(num_ungraded: int, num_completions: int) -> None:
    if num_ungraded:
        logger.warning(
            "math_reward did not grade %d of %d completions (their reward is None): comparing their answers takes too "
            "long, or the child process that compares them does not start. Try `python -c 'import math_verify'`.",
            num_ungraded,
            num_completions,
        )
