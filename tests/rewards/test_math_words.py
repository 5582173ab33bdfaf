r"""Words that say the opposite of the gold's, and words that bind a number."""

import pytest

from .answers import reward

OPPOSITES = [
    (r"n\text{ even}", r"n\text{ odd}"),
    (r"5\text{ (even)}", r"5\text{ (odd)}"),
    ("x<3 or x>5", "x<3 and x>5"),
    (r"x<3\text{ or }x>5", r"x<3\text{ and }x>5"),
    (r"30^\circ\text{ N}", r"30^\circ\text{ S}"),
    (r"30^\circ N", r"30^\circ S"),
    (r"5\text{ km north}", r"5\text{ km south}"),
    (r"\text{N }30^\circ\text{ E}", r"\text{N }30^\circ\text{ W}"),
    (r"20\%\text{ increase}", r"20\%\text{ decrease}"),
    (r"20\text{ increased}", r"20\text{ decreased}"),
    (r"3\text{ or more}", r"3\text{ or less}"),
    (r"3\text{ or more}", r"3\text{ or fewer}"),
    (r"\text{at least }3", r"\text{at most }3"),
    (r"7\text{ prime}", r"7\text{ composite}"),
    (r"90^\circ\text{ clockwise}", r"90^\circ\text{ counterclockwise}"),
    (r"90\text{ clockwise}", r"90\text{ counter-clockwise}"),
    (r"5\text{ positive}", r"5\text{ negative}"),
    (r"5\text{ rational}", r"5\text{ irrational}"),
    (r"5\text{ to the left}", r"5\text{ to the right}"),
    (r"3\text{ more}", r"3\text{ fewer}"),
]


@pytest.mark.parametrize(("gold", "answer"), OPPOSITES)
def test_an_opposite_is_not_paid(gold, answer):
    assert reward(gold, answer) == reward(answer, gold) == 0.0
    assert reward(gold, f"{gold}.") == reward(answer, f"{answer}.") == 1.0


@pytest.mark.parametrize("bound", [r"3\text{ or more}", r"3\text{ or less}", r"\text{at least }3", r"\text{not }3"])
def test_words_that_bind_a_number_are_in_both(bound):
    assert reward(bound, "3") == reward("3", bound) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"20\%\text{ increase}", r"20\%"),
        (r"5\text{ km north}", r"5\text{ km}"),
        (r"30^\circ\text{ N}", r"30^\circ N"),
        ("x=3 or x=5", "x=3 and x=5"),
        ("x<3 or x>5", "x<3, x>5"),
        (r"20\text{ increase}", r"20\text{ increased}"),
    ],
)
def test_a_word_that_is_missing_or_between_solutions_is_not_compared(gold, answer):
    assert reward(gold, answer) == 1.0
