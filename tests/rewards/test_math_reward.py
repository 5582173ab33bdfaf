r"""The reward of a mathematical answer: what is paid, what is not, and that no answer can stop a training run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.rewards import math_reward
from tempo_trl.rewards.boxed import gold_answer
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS, shared_grader
from tempo_trl.rewards.math_text import math_text
from tempo_trl.rewards.math_units import without_units

from .answers import boxed, needs_real_rows, read_rows

# What is paid


@pytest.mark.parametrize(
    "gold, answer",
    [
        (r"\frac{1}{2}", r"\frac12"),
        (r"\sqrt{3}", r"\sqrt3"),
        ("x=5", "5"),
        (r"50\%", "50"),
        (r"\{1, 2\}", "2, 1"),
        ("[1,2)", r"\left[1, 2\right)"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ \frac{4}{2} \end{pmatrix}"),
    ],
)
def test_an_equal_answer_is_paid_in_another_form(gold, answer):
    assert math_reward([boxed(answer), boxed(answer)], [gold, f"Hence {boxed(gold)}."]) == [1.0, 1.0]


@pytest.mark.parametrize(
    "gold, answer",
    [
        ("5", "5,6"),
        ("5", "5 or 6"),
        (r"\{1, 2\}", "1"),
        ("x", "y"),
        (r"\text{east}", "west"),
    ],
)
def test_another_answer_is_not_paid(gold, answer):
    assert math_reward([boxed(answer)], [gold]) == [0.0]


@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_every_gold_of_math_is_paid_as_a_solution_and_as_a_bare_answer(name):
    solutions = [row["solution"] for row in read_rows(name)]
    golds = [row.get("answer", gold_answer(row["solution"])) for row in read_rows(name)]
    echoes = [f"The answer is ${boxed(gold)}$." for gold in golds]
    assert math_reward(echoes, golds) == [1.0] * len(golds)
    assert math_reward(echoes, solutions) == [1.0] * len(golds)


@pytest.mark.matrix
@needs_real_rows
@pytest.mark.parametrize("name", ["math_train", "math_test", "math500"])
def test_the_child_itself_reads_every_gold_of_math_as_a_whole_and_pays_it(name):
    golds = [without_units(math_text(gold_answer(row["solution"]))) for row in read_rows(name)]
    assert [gold for gold in golds if not shared_grader.compare(gold, gold).equal] == []


@pytest.mark.parametrize(
    "completion, reward",
    [
        (r"\boxed{3} or \boxed{5}", 0.0),
        (r"\boxed{5} Wait, no.", 0.0),
        (r"\boxed{5} or \boxed{\frac{10}{2}}", 1.0),
    ],
)
def test_a_hedge_is_paid_if_each_of_its_boxes_is_right(completion, reward):
    assert math_reward([completion], ["5"]) == [reward]


def test_the_boxes_of_one_statement_may_be_the_golds_list():
    completions = [r"\boxed{1} and \boxed{2}", r"\boxed{1} and \boxed{3}", r"\boxed{1}. So \boxed{2}."]
    assert math_reward(completions, ["1, 2"] * 3) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("gold", ["The answer is 5.", "5 (five)", "There are 5 apples.", "He adds two and two first."])
def test_a_gold_in_prose_is_not_graded_and_one_warning_shows_it(gold, caplog):
    completions = [boxed("5"), boxed("6"), "no box", boxed(gold)]
    assert math_reward(completions, [gold] * 4) == [None, None, None, 1.0]
    assert [record.getMessage()[:50] for record in caplog.records] == [
        "math_reward did not grade 3 of 4 completions (thei"
    ]
    assert repr(gold) in caplog.text


@pytest.mark.parametrize(
    "gold",
    ["**5**", "5 apples", "$5$ apples", r"5\pi square units", "x = 5", r"\text{east}", "no real solutions", "xyz"],
)
def test_a_gold_with_a_unit_or_in_a_few_words_is_graded(gold, caplog):
    assert math_reward([boxed(gold), boxed("17"), "no box"], [gold] * 3) == [1.0, 0.0, 0.0]
    assert caplog.records == []


# TRL's contract


def test_a_row_without_a_gold_is_not_rewarded():
    assert math_reward([boxed(""), boxed("5"), boxed("5")], ["", boxed(""), boxed("5")]) == [None, None, 1.0]
    assert math_reward([boxed("5"), boxed("nan"), boxed("5")], [None, float("nan"), 5.0]) == [None, None, 1.0]


def test_the_share_of_completions_without_an_answer_is_logged():
    metrics = {}
    columns = {"prompts": ["?"] * 4, "completion_ids": [[1]] * 4, "trainer_state": None, "log_extra": None}
    completions = [boxed("5"), "5", boxed(""), f"<think>{boxed('5')}"]
    rewards = math_reward(completions=completions, solution=["5"] * 4, log_metric=metrics.__setitem__, **columns)
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert metrics == {"math/no_answer": 0.75}


def test_a_solution_is_needed_for_each_completion():
    with pytest.raises(ValueError, match="got 1 solutions for 2 completions"):
        math_reward([boxed("5")] * 2, ["5"])


def test_without_math_verify_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "tempo_trl\[math-verify\]"'):
        math_reward([boxed("5")], ["5"])


# Traps

TRAPS = {
    "a power tower": boxed("2^{2^{2^{49}}}"),
    "a large binomial": boxed(r"\binom{100000}{50000}"),
    "a large factorial": boxed("(10^9)!"),
    "a long sum": boxed(r"\sum_{i=1}^{10^9} i^i"),
    "a long completion": "x" * 100_000 + boxed("6"),
    "a long answer": boxed("1+" * 50_000),
    "an answer just short enough": boxed("1+" * (MAX_ANSWER_CHARS // 2 - 1)),
    "the right answer, too long": boxed("0" * MAX_ANSWER_CHARS + "5"),
    "ten thousand braces": boxed("{" * 10_000 + "5" + "}" * 10_000),
    "nine hundred parentheses": boxed("(" * 900 + "5" + ")" * 900),
    "boxes that never close": r"\boxed{" * 15_000,
    "control characters": boxed("5\x00\x07\x1b\n6"),
    "a lone surrogate": boxed("\ud8005"),
    "a mathematical digit": boxed("\U0001d7d3"),
    "a full-width digit": boxed("５"),
    "no closing brace": r"\boxed{5",
    "a box after the right one": boxed("5") + boxed("6"),
}


UNDECIDED = {"a power tower", "a large factorial", "a long sum", "nine hundred parentheses"}


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
