r"""The reward of a mathematical answer: what is paid, what is not, and that no answer can stop a training run."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.rewards import math_reward
from tempo_trl.rewards.boxed import gold_answer
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS
from tempo_trl.rewards.math_reward import float_tolerance

from .answers import boxed, needs_real_rows, read_rows


def is_paid(gold, answer):
    return math_reward([boxed(answer)], [gold]) == [1.0]


# One answer


@pytest.mark.parametrize(
    ("completion", "all_boxes", "last_box"),
    [
        (r"So it is \boxed{5}.", 1.0, 1.0),
        (r"\boxed{3} or \boxed{5}", 0.0, 1.0),
        (r"\boxed{5}, not \boxed{3}", 0.0, 0.0),
        (r"\boxed{5} or \boxed{\frac{10}{2}}", 1.0, 1.0),
        (r"\boxed{5\text{ cm}}, that is \boxed{5\text{ km}}", 0.0, 1.0),  # each is 5, but they differ
        (r"\boxed{x = \boxed{5}}", 1.0, 1.0),
        (r"Many would say \boxed{5}.", 1.0, 1.0),  # words between boxes are not read
        (r"<think>\boxed{3}</think>\boxed{5}", 1.0, 1.0),
        (r"<think>It is \boxed{5}", 0.0, 0.0),
        ("It is 5.", 0.0, 0.0),
    ],
)
def test_several_boxes_count_if_all_are_equal_or_the_last_one_counts(completion, all_boxes, last_box):
    assert math_reward([completion], ["5"]) == [all_boxes]
    assert math_reward([completion], ["5"], boxes="last") == [last_box]


@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_every_gold_of_math_is_paid_as_a_solution_and_as_a_bare_answer(name):
    solutions = [row["solution"] for row in read_rows(name)]
    golds = [row.get("answer", gold_answer(row["solution"])) for row in read_rows(name)]
    echoes = [f"The answer is ${boxed(gold)}$." for gold in golds]
    assert math_reward(echoes, golds) == [1.0] * len(golds)
    assert math_reward(echoes, solutions) == [1.0] * len(golds)


def test_a_gold_in_prose_is_compared_as_text():
    completions = [boxed("5"), boxed("The answer is 5"), "no box"]
    assert math_reward(completions, ["The answer is 5."] * 3) == [0.0, 1.0, 0.0]


# Golds that are floats


LITERALS = [("142.0", 0), ("1173896.6", 0), ("0.15", 0), ("1e+10", 0), ("1234567.3333", Fraction(5, 1000))]
LITERALS += [("4.7857142857", Fraction("0.0047857142857")), ("-0.0836116517", Fraction("0.0000836116517"))]
LITERALS += [(" 2.0107e-06\n", Fraction("2.0107e-09"))]


@pytest.mark.parametrize("literal, slack", LITERALS)
def test_the_tolerance_is_half_a_cent_or_a_thousandth_where_the_literal_is_long(literal, slack):
    assert float_tolerance(literal) == slack + Fraction(math.ulp(float(literal))) / 2


@pytest.mark.parametrize(
    "text", ["142", "1,000.5", "5.", ".5", r"\boxed{6.1718}", "6.17 cm", "nan", "inf", "1e400", ""]
)
def test_anything_but_a_bare_literal_as_python_writes_it_has_no_tolerance(text):
    assert float_tolerance(text) is None


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("-9867630.0", ["-9,867,630", r"\$-9{,}867{,}630", r"x = -9\,867\,630\text{ m}"], ["9867630", "-9867630.5"]),
        ("2.0107e-06", [r"2.0107\cdot10^{-6}\text{ weeks}", "2.0107E-6", r"2.01 \times 10^{-6}"], ["0", "0.000002"]),
        ("1234567.3333", ["1{,}234{,}567.33", r"\frac{3703702}{3}", r"1234567\frac{1}{3}"], ["1234567", "1234567.3"]),
        ("4.7857142857", [r"\$4.79", r"\dfrac{67}{14}"], ["4.8", r"4.79\%"]),
        ("0.15", ["0.15", r"\frac{3}{20}"], ["0.1501", r"15\%"]),
        ("142.0", ["142", r"\sqrt{20164}", r"142^\circ"], ["142.5", "142 or 143", "1,42"]),
        ("1e+16", ["10^{16}", "10000000000000000"], ["10^{15}"]),
        ("1.2345678901234567e+19", ["12345678901234567890"], ["12345678901234600000"]),
        (142.0, ["142"], ["143"]),
    ],
)
def test_a_float_is_paid_in_the_forms_that_models_write(gold, right, wrong):
    assert [answer for answer in right if not is_paid(gold, answer)] == []
    assert [answer for answer in wrong if is_paid(gold, answer)] == []


def test_the_tolerance_does_not_reach_a_gold_in_a_box():
    assert is_paid("1234567.3333", "1234567.33") and not is_paid(boxed("1234567.3333"), "1234567.33")


@needs_real_rows
def test_every_target_of_gsm_hard_is_paid_as_it_is_and_no_neighbour_is():
    targets = [row["target"] for row in read_rows("gsm_hard")]
    assert math_reward([boxed(f"{target:,.12f}") for target in targets], targets) == [1.0] * len(targets)
    assert math_reward([boxed(repr(target + 1)) for target in targets], targets) == [0.0] * len(targets)


# TRL's contract


def test_a_row_without_a_gold_is_not_rewarded():
    assert math_reward([boxed(""), boxed("5"), boxed("5")], ["", boxed(""), boxed("5")]) == [None, None, 1.0]
    assert math_reward([boxed("5"), boxed("nan"), boxed("5")], [None, float("nan"), 5.0]) == [None, None, 1.0]


@pytest.mark.parametrize("gold", [["2"], {"a": "2"}, True, b"2"])
def test_a_gold_of_another_type_is_an_error_with_its_row(gold):
    with pytest.raises(ValueError, match=r"row 1 of .* 'solution' is .*, expected a text, a number or None: it is"):
        math_reward([boxed("2")] * 2, ["2", gold])


def test_the_share_of_completions_without_an_answer_is_logged():
    metrics = {}
    columns = {"prompts": ["?"] * 4, "completion_ids": [[1]] * 4, "trainer_state": None, "log_extra": None}
    completions = [boxed("5"), "5", boxed(""), f"<think>{boxed('5')}"]
    rewards = math_reward(completions=completions, solution=["5"] * 4, log_metric=metrics.__setitem__, **columns)
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert metrics == {"math/no_answer": 0.75}


def test_without_math_verify_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "trl\[math-verify\]"'):
        math_reward([boxed("5")], ["5"])


# Traps

TRAPS = {
    "a power tower": boxed("2^{2^{2^{49}}}"),
    "a large binomial": boxed(r"\binom{100000}{50000}"),
    "a large factorial": boxed("(10^9)!"),
    "a long completion": "x" * 100_000 + boxed("6"),
    "a long answer": boxed("1+" * 50_000),
    "an answer just short enough": boxed("1+" * (MAX_ANSWER_CHARS // 2 - 1)),
    "the right answer, too long": boxed("0" * MAX_ANSWER_CHARS + "5"),
    "a long list": boxed(",".join("x" * 900)),
    "nine hundred parentheses": boxed("(" * 900 + "5" + ")" * 900),
    "control characters": boxed("5\x00\x07\x1b\n6"),
    "a lone surrogate": boxed("\ud8005"),
    "a full-width digit": boxed("５"),
}
UNDECIDED = {"a power tower", "a large factorial", "nine hundred parentheses"}


@pytest.mark.matrix
@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_not_paid_and_what_would_take_for_ever_is_not_decided(name):
    assert math_reward([TRAPS[name]], ["5"]) == [None if name in UNDECIDED else 0.0]


def test_an_answer_is_not_executed(tmp_path):
    code = f'__import__("os").system("touch {tmp_path}/touched")'
    assert math_reward([boxed(code), boxed(f"5+{code}")], ["5", "5"]) == [0.0, 0.0]
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=50)
@given(st.text(st.characters(exclude_characters="0123456789"), max_size=30))
def test_no_text_without_a_digit_raises_or_is_worth_five(text):
    assert math_reward([boxed(text), text], ["5", "5"]) == [0.0, 0.0]
