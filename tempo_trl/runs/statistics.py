"""Statistics of graded answers: avg@n, pass@k, maj@n per question, and intervals of their means.

`correct` are the grades of Q questions with n answers each, float of shape `(Q, n)`: 1 right, 0 wrong, NaN not
gradable, which counts as wrong. Intervals resample questions, not answers, because the answers to one question are
dependent.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy import stats

BATCH = 100  # bootstrap resamples that are in memory at once
LEVEL = 0.95  # of all intervals, two-sided
SAME = 1e-9  # smaller differences are rounding errors


def avg_at_n(correct: np.ndarray) -> np.ndarray:
    """
    Share of right answers per question, avg@n; with one answer per question, the accuracy.

    Args:
        correct (`np.ndarray` of shape `(Q, n)`):
            Grades, 0, 1 or NaN (wrong).

    Returns:
        `np.ndarray` of shape `(Q,)` in [0, 1].

    Raises:
        ValueError: `correct` has another shape, no answers, or other values.
    """
    return _graded(correct).mean(axis=1)


def pass_at_k(correct: np.ndarray, k: int) -> np.ndarray:
    """
    Chance that at least one of k answers, drawn without replacement from the n of a question, is right.

    With c right ones, 1 - C(n - c, k) / C(n, k) (https://huggingface.co/papers/2107.03374, equation 1): unbiased for k
    fresh samples. Computed as the product of k factors (n - c - j) / (n - j), each at most 1, so that nothing
    overflows. pass@1 is avg@n, pass@n asks for one right answer among all.

    Args:
        correct (`np.ndarray` of shape `(Q, n)`):
            Grades, 0, 1 or NaN (wrong).
        k (`int`):
            1 to n.

    Returns:
        `np.ndarray` of shape `(Q,)` in [0, 1].

    Raises:
        ValueError: as [`avg_at_n`].
    """
    correct = _graded(correct)
    n = correct.shape[1]
    drawn = np.arange(k)
    wrong_left = n - correct.sum(axis=1, keepdims=True) - drawn  # (Q, k), below 0 where the wrong ones run out
    return 1 - np.prod(np.clip(wrong_left, 0, None) / (n - drawn), axis=1)


def maj_at_n(answers: Sequence[Sequence[str]], correct: np.ndarray) -> np.ndarray:
    """
    Whether the most frequent answer of a question is right, maj@n.

    - A tie counts as the mean over the tied answers, the expected grade of a random choice among them.
    - An empty answer (none was found in the completion) does not vote; a question without votes is wrong.
    - Answers vote as they are written. `1/2` and `0.5` are different votes even if both were graded right: pooling
      only those answers that equal the gold answer would use the solution for voting. Normalize answers before.
    - Equal texts with different grades (by a grader that reads more than the answer) count as the mean of the grades.

    Args:
        answers (`Sequence[Sequence[str]]`, Q of n each):
            Final answers, extracted from the completions.
        correct (`np.ndarray` of shape `(Q, n)`):
            Their grades, 0, 1 or NaN (wrong).

    Returns:
        `np.ndarray` of shape `(Q,)` in [0, 1].

    Raises:
        ValueError: as [`avg_at_n`], or if `answers` and `correct` differ in shape.
    """
    correct = _graded(correct)
    return np.array([_majority(row, grades) for row, grades in zip(answers, correct, strict=True)])


def _majority(answers: Sequence[str], grades: np.ndarray) -> float:
    votes = Counter(answer for answer in answers if answer)
    if not votes:
        return 0.0
    most = max(votes.values())
    # Each tied answer has `most` votes, so the mean over the voters is the mean over the answers.
    return float(np.mean([grade for answer, grade in zip(answers, grades, strict=True) if votes[answer] == most]))


def numbers_by_metric(decoding: str, correct: np.ndarray, answers: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """One number per question, for each metric of `"greedy"` or of sampled answers."""
    if decoding == "greedy":
        return {"accuracy": avg_at_n(correct)}
    n = correct.shape[1]
    powers = [1 << i for i in range(n.bit_length())]  # 1, 2, 4, ... up to n
    pass_at = {f"pass@{k}": pass_at_k(correct, k) for k in dict.fromkeys([*powers, n])}
    return {f"avg@{n}": avg_at_n(correct), **pass_at, f"maj@{n}": maj_at_n(answers, correct)}


def _graded(correct: np.ndarray) -> np.ndarray:
    correct = np.nan_to_num(np.asarray(correct, dtype=float), nan=0.0)
    if correct.ndim != 2 or not correct.shape[1]:
        raise ValueError(f"got grades of shape {correct.shape}, expected (questions, answers).")
    if odd := set(correct.flat) - {0, 1}:
        raise ValueError(f"got the grade {odd.pop()}, expected 0, 1 or NaN. Apply a threshold before.")
    return correct


def interval_over_questions(per_question: np.ndarray, resamples: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """
    95% interval of the mean over questions, by the bias-corrected and accelerated bootstrap (BCa; Efron 1987), or by
    Clopper and Pearson where each question has one answer, right or wrong: 40 right of 40 is (0.912, 1).

    It covers the randomness of the questions and of sampled answers, not that of training.

    If all questions have the same value (or there is only one), resampling would give an interval of width 0. The
    interval is then Clopper and Pearson's, too, for a binomial with that mean, which has the largest variance of all
    variables between 0 and 1.

    Args:
        per_question (`np.ndarray` of shape `(Q,)`):
            One number per question, in [0, 1].
        resamples (`int`, *optional*, defaults to `10_000`):
            Draws of Q questions with replacement.
        seed (`int`, *optional*, defaults to `0`):
            Seed of those draws: the same data have the same interval.

    Returns:
        `(low, high)`, `low <= mean <= high`.
    """
    values = np.asarray(per_question, dtype=float)
    if np.ptp(values) < SAME or set(values) <= {0, 1}:
        tail, questions, right = (1 - LEVEL) / 2, len(values), values.sum()
        low = stats.beta.ppf(tail, right, questions - right + 1) if right > 0 else 0.0
        high = stats.beta.isf(tail, right + 1, questions - right) if right < questions else 1.0
        return float(low), float(high)
    return _bca(values, resamples, seed)


def paired_difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """
    Mean of a - b over the same questions, with its 95% interval. Questions are taken in pairs.

    The difficulty of a question is common to both and cancels, so the interval is narrower than for two separate sets
    of questions. If it excludes 0, the difference is larger than the noise of questions and sampling. It does not
    cover the difference between two training runs of one method.

    The interval is that of the BCa bootstrap, or of Agresti and Min (2005) where each question has one answer in both,
    so that all differences are -1, 0 or 1: of few exceptions the bootstrap makes too much.

    If a - b is the same d for every question, resampling shows no spread. Q questions without an exception leave room
    for a share p of exceptions, the end of Clopper and Pearson's interval, of any size from -1 to 1: the interval is
    (d - p (1 + d), d + p (1 - d)).

    Args:
        a, b (`np.ndarray` of shape `(Q,)`):
            One number per question, in [0, 1]; row i of both is the same question.

    Returns:
        `(difference, low, high)`, fractions of 1.
    """
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    mean = float(differences.mean())
    if np.ptp(differences) < SAME:
        exceptions = stats.beta.isf((1 - LEVEL) / 2, 1, len(differences))
        return mean, float(mean - exceptions * (1 + mean)), float(mean + exceptions * (1 - mean))
    return mean, *(_agresti_min(differences) if set(differences) <= {-1, 0, 1} else _bca(differences))


def _agresti_min(differences: np.ndarray) -> tuple[float, float]:
    """Wald's interval of a mean of -1, 0 and 1, with half a question more that both, none or either answers right."""
    questions, won = len(differences) + 2, differences.sum()
    differing = np.abs(differences).sum() + 1
    half = stats.norm.ppf((1 + LEVEL) / 2) * np.sqrt(differing - won**2 / questions) / questions
    middle, mean = won / questions, differences.mean()
    return max(-1.0, float(min(middle - half, mean))), min(1.0, float(max(middle + half, mean)))


def _bca(values: np.ndarray, resamples: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """BCa interval of the mean of values that are not all equal. Does not depend on their order."""

    def mean(sample, axis):
        return np.round(np.mean(sample, axis=axis), 12)  # otherwise rounding errors of the sum would break ties

    options = {"n_resamples": resamples, "batch": BATCH, "confidence_level": LEVEL, "method": "BCa"}
    low, high = stats.bootstrap((np.sort(values),), mean, random_state=seed, **options).confidence_interval
    return float(min(low, values.mean())), float(max(high, values.mean()))


def student_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Mean over independent runs, or other samples, and Student's 95% interval of it.

    The interval of one run is NaN, because a single run has no spread. With two it is wide (12.7 standard errors).

    Args:
        values (`np.ndarray` of shape `(runs, ...)`):
            The values of each run.

    Returns:
        `(mean, low, high)`, each of the shape of one run's values.
    """
    values = np.asarray(values, dtype=float)
    mean, half = values.mean(axis=0), np.full(values.shape[1:], np.nan)
    if len(values) > 1:
        half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values, axis=0)
    return mean, mean - half, mean + half


def wilson(share: float, n: int) -> tuple[float, float]:
    """95% interval of a share that was measured on `n` samples."""
    interval = stats.binomtest(round(share * n), n).proportion_ci(method="wilson")
    return interval.low, interval.high
