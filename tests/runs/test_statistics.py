"""avg@n, pass@k, maj@n and the bootstrap: against their definitions, enumerated, and against scipy's."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from tempo_trl.runs.statistics import avg_at_n, interval_over_questions, maj_at_n, paired_difference, pass_at_k

NAN = float("nan")
grades = hnp.arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 7)), elements=st.sampled_from([0.0, 1.0, NAN]))


@given(grades, st.data())
def test_pass_at_k_is_the_share_of_subsets_of_k_answers_with_a_right_one(correct, data):
    k = data.draw(st.integers(1, correct.shape[1]))
    shares = [np.mean([any(grade == 1 for grade in subset) for subset in combinations(row, k)]) for row in correct]
    assert pass_at_k(correct, k) == pytest.approx(np.array(shares))


@given(grades)
def test_avg_at_n_is_pass_at_1(correct):
    assert avg_at_n(correct) == pytest.approx(pass_at_k(correct, 1))


def test_pass_at_k_of_a_thousand_answers_neither_overflows_nor_loses_digits():
    correct = np.zeros((1, 1000))
    correct[0, 0] = 1
    assert pass_at_k(correct, 500) == pytest.approx(0.5, abs=1e-12)  # the right one is in half of the subsets


@pytest.mark.parametrize(
    ("correct", "message"),
    [(np.ones(3), "shape"), (np.array([[0.5, 1]]), r"got the grade 0\.5, expected 0, 1 or NaN")],
)
def test_what_is_no_grade_is_refused(correct, message):
    with pytest.raises(ValueError, match=message):
        avg_at_n(correct)


VOTES = [(["7", "7", "8"], [1, 1, 0], 1), (["7", "8"], [1, 0], 1 / 2), (["", "", "7"], [0, 0, 1], 1)]
VOTES += [(["", ""], [0, 0], 0), (["1/2", "0.5", "3", "3", "3"], [1, 1, 0, 0, 0], 0), (["7", "7"], [1, NAN], 1 / 2)]


@pytest.mark.parametrize(("answers", "correct", "expected"), VOTES)
def test_the_majority_of_hand_worked_answers(answers, correct, expected):
    assert maj_at_n([answers], np.array([correct])) == pytest.approx([expected])


def test_the_interval_holds_the_truth_as_often_as_it_says():
    """Simulated benchmarks: what a question is worth varies, and so does what is sampled for it."""
    rng, trials, held = np.random.default_rng(0), 600, 0
    for trial in range(trials):
        worth = rng.beta(2, 1, size=100)  # mean 2/3
        low, high = interval_over_questions(rng.binomial(4, worth) / 4, resamples=1_000, seed=trial)
        held += low <= 2 / 3 <= high
    # 99.9% of binomial draws at a coverage of 0.95; a coverage of 0.90 or 0.99 would fall outside.
    assert stats.binom.ppf(0.0005, trials, 0.95) <= held <= stats.binom.ppf(0.9995, trials, 0.95)


@pytest.mark.parametrize("worth", [0.5, 0.9, 0.975])
def test_the_interval_of_single_answers_holds_the_truth_at_least_as_often_as_it_says(worth):
    """With every count of right answers weighed by its chance. The bootstrap's holds 0.975 in 93.6%."""
    counts = np.arange(41)
    intervals = [interval_over_questions((np.arange(40) < count).astype(float)) for count in counts]
    held = [low <= worth <= high for low, high in intervals]
    assert stats.binom.pmf(counts, 40, worth)[held].sum() >= 0.95


@given(hnp.arrays(float, st.integers(1, 12), elements=st.sampled_from(np.arange(17) / 16)))
def test_the_interval_lies_around_the_mean_within_0_and_1(values):
    low, high = interval_over_questions(values, resamples=200)
    assert 0 <= low <= values.mean() <= high <= 1
    assert (low, high) == interval_over_questions(values, resamples=200)


def test_equal_values_have_the_interval_of_a_binomial_not_certainty():
    assert interval_over_questions(np.ones(40)) == pytest.approx((0.025 ** (1 / 40), 1))  # p^40 = 0.025
    assert interval_over_questions(np.zeros(40)) == pytest.approx((0, 1 - 0.025 ** (1 / 40)))
    assert interval_over_questions(np.ones(1)) == pytest.approx((0.025, 1))
    half = interval_over_questions(np.full(10, 0.5))
    assert half == pytest.approx(tuple(stats.binomtest(5, 10).proportion_ci(method="exact")))


@given(st.lists(st.tuples(*[st.sampled_from([0, 0.25, 0.5, 1])] * 2), min_size=2, max_size=10), st.randoms())
def test_differences_change_sign_with_the_order_and_not_with_the_order_of_questions(pairs, random):
    a, b = np.array(pairs, dtype=float).T
    difference, low, high = paired_difference(a, b)
    assert difference == pytest.approx(a.mean() - b.mean())
    assert low <= difference <= high
    assert paired_difference(b, a)[0] == pytest.approx(-difference)
    random.shuffle(pairs)
    assert paired_difference(*np.array(pairs, dtype=float).T) == pytest.approx((difference, low, high))


@pytest.mark.parametrize(("n", "differing"), [(40, 0.1), (40, 0.15), (500, 0.006)])
def test_of_single_answers_equal_runs_are_rarely_told_apart(n, differing):
    """By enumeration: k questions differ, and each run has won any of them with equal chances."""
    wrong = 0.0
    for k in range(1, 21):
        for won in range(k + 1):
            a, b = np.zeros(n), np.zeros(n)
            a[:won], b[won:k] = 1.0, 1.0
            _, low, high = paired_difference(a, b)
            wrong += stats.binom.pmf(k, n, differing) * stats.binom.pmf(won, k, 0.5) * (low > 0 or high < 0)
    assert wrong < 0.06


@pytest.mark.parametrize(("n", "share"), [(1, 0.975), (2, 0.8419), (40, 0.0881), (5000, 0.0007)])
def test_questions_without_an_exception_leave_room_for_a_share_of_exceptions(n, share):
    """A share p of exceptions is not seen in n questions with probability (1 - p)^n = 0.025."""
    same, better = paired_difference(np.ones(n), np.ones(n)), paired_difference(np.ones(n), np.zeros(n))
    assert same == pytest.approx((0, -share, share), abs=1e-4)
    assert better == pytest.approx((1, 1 - 2 * share, 1), abs=1e-4)
