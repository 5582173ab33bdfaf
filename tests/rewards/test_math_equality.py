r"""The second rule: pairs of boxes that are equal, and pairs that are not, by family and in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.rewards.grader import shared_grader
from tempo_trl.rewards.math_equality import plain_number

EQUAL = [
    ("spaces", [("x+1", "x + 1"), (r"x\,+\,1", "x+1"), ("-2,6", "-2, 6"), (r"a \mid 6", r"a\mid 6")]),
    ("sizes", [(r"\left(1,\frac12\right]", r"(1, \tfrac{1}{2}]"), (r"\bigl(1,2\bigr)", "(1,2)")]),
    (
        "fonts",
        [
            (r"\text{east}", "east"),
            (r"\mathbf{42}", "42"),
            (r"\boldsymbol{7}", r"\bm{7}"),
            (r"\textbf{(C)}", r"\text{(C)}"),
        ],
    ),
    ("dollars and a stop", [("$5$", "5"), ("5.", "5"), (r"\text{Evelyn.}", "Evelyn"), ("$5.$", "5")]),
    ("braces", [("x^{2}", "x^2"), ("2112_{6}", "2112_6"), (r"\sqrt{3}", r"\sqrt3"), (r"\frac{1}{2}", r"\frac12")]),
    ("thousands", [(form, "1234567") for form in ("1,234,567", r"1{,}234{,}567", r"1,\!234,\!567", r"1\,234\,567")]),
    ("thousands with spaces", [("1 234 567", "1234567"), ("1\u202f234", "1234"), ("(1{,}800, 5)", "(1800,5)")]),
    ("decimals", [("5", "5.0"), ("0.5", ".5"), ("-0.25", "\N{MINUS SIGN}0.25"), ("0.0000672", r"6.72\times10^{-5}")]),
    (
        "fractions",
        [(r"\frac12", "1/2"), (r"-\dfrac{3}{4}", "-0.75"), (r"2\frac13", "7/3"), (r"\frac{-3}{4}", "-0.75")],
    ),
    (
        "a fraction and a factor",
        [("1/2x+3", r"\frac12x+3"), (r"2/3\pi", r"\frac{2\pi}{3}"), ("1/2(x+1)", r"\frac{x+1}{2}")],
    ),
    ("a power of a power", [("2^{3^2}", "512"), ("{2^3}^2", "64"), ("x^2y^2", "(xy)^2")]),
    ("percentages", [(r"50\%", "50 %"), (r"12.5\%", r"\frac{25}{2}\%")]),
    (
        "a unit that one box leaves out",
        [(r"2400 \mbox{ cm}^2", "2400"), (r"4\pi\text{ m}", r"4\pi"), (r"5\text{ Ω}", "5")],
    ),
    ("units that are the same", [(r"2400\text{ cm}^2", r"2400\,\mbox{cm}^{2}"), (r"20\%\text{ increase}", r"20\%")]),
    (
        "degrees",
        [("60^\\circ", form) for form in ("60", "60°", r"60.0 ^ {\circ}", r"60\text{ degrees}")],
    ),
    ("a name that one box leaves out", [("x=5", "5"), ("x = 5", r"\frac{10}{2}"), (r"x \in [-2,7]", "[-2,7]")]),
    ("names of functions and points", [("f(x)=x^2+1", "1+x^2"), ("(x,y) = (1,2)", "(1,2)"), (r"\theta=\pi", r"\pi")]),
    ("lists in order", [("(1,2)", r"(1,\frac42)"), ("[1,2)", r"\left[1,2\right)"), ("x=1, y=2", "1, 2")]),
    ("sets in any order", [("-2, 6", "6, -2"), (r"\{1,2\}", "2,1"), ("1,1,2", "2,1,1")]),
    ("a fraction in a list", [(r"\frac{1}{2},3", "0.5, 3"), (r"\frac{1}{2},3", r"3,\frac12"), ("1/2,3", "0.5,3")]),
    ("a fraction beside a digit", [(r"\frac{1}{2}3", "1.5"), (r"\frac{1{,}000}{2}", "500")]),
    ("sets of pairs", [("(1,2),(3,4)", "(3,4),(1,2)")]),
    ("dollars and powers", [("7 1/3", r"\frac{22}{3}"), (r"\$18.90", "18.9"), ("2^{10}", "1,024")]),
    ("both signs", [(r"\pm\sqrt3", r"-\sqrt{3}, \sqrt{3}"), (r"1\pm i", "1+i, 1-i")]),
    ("units of parts", [(r"5\text{ cm}, 7\text{ cm}", "5, 7")]),
    ("brackets around one value", [("42", "(42)"), ("42", r"\{42\}"), ("x+1", "[x+1]")]),
    ("unions", [(r"(-\infty,3)\cup(5,\infty)", r"(5,\infty)\cup(-\infty,3)")]),
    ("matrices", [(r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ \frac42 \end{pmatrix}")]),
    ("polynomials", [("x^3+125", "(x+5)(x^2-5x+25)"), ("x^2+xy+y^2", "y^2+yx+x^2"), ("x(x+1)", "x^2+x")]),
    ("complex numbers", [("1-12i", r"-12\mathrm{i}+1"), (r"\frac{1}{1+i}", r"\frac{1-i}{2}"), ("2", "(1+i)(1-i)")]),
    ("closed forms", [(r"\sqrt2+\sqrt3", r"\sqrt{5+2\sqrt6}"), (r"\dbinom{52}{5}", r"\frac{52!}{47!5!}")]),
    ("functions", [(r"\sin 1", r"\cos(\frac{\pi}{2}-1)"), (r"\log_2 10", r"\log_{2}(10)"), ("|x|", r"\sqrt{x^2}")]),
    ("relations", [("x<3", "3>x"), (r"x \le 3", r"3 \geq x"), ("x^2+y^2=1", "y^2+x^2-1=0")]),
]
UNEQUAL = [
    ("another number", [("5", "6"), ("5", "-5"), ("1234", "12,34"), ("0.5", "0.05"), ("5", "５"), ("5", "5x")]),
    ("a rounded number", [(r"\frac13", "0.333333"), (r"\sqrt2", "1.41421"), ("0.0000672", "0.0000674")]),
    ("a small number", [("e^{-50}", "e^{-51}"), ("0", "e^{-50}"), (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}")]),
    ("a small difference", [(r"\frac{1}{2004!}", r"\frac{1}{2003!}"), ("1", "1+10^{-20}i"), ("0.5x", "0.5000001x")]),
    ("a percentage", [(r"50\%", "50"), (r"50\%", "0.5"), (r"50\%", r"50\text{ percent}")]),
    ("a denominator and more", [(r"\frac{1}{2},3", r"\frac{1}{23}"), (r"\frac{1}{2}3", "1/23")]),
    ("a factor above or below", [("1/2x", r"\frac{1}{2x}"), ("1/2(x+1)", r"\frac{1}{2(x+1)}")]),
    ("a power behind a power", [("64", "2^3^2"), ("512", "2^3^2")]),
    ("digits side by side", [("12", "1 2"), ("12", r"1\,2"), ("7", "3 4"), ("6", "2 3")]),
    ("another unit", [(r"5\text{ cm}", r"5\text{ km}"), (r"5\text{ m}^2", r"5\text{ m}^3")]),
    ("no unit", [(r"5\text{ m}^2", r"5\text{ m}")]),
    ("an equal amount in another unit", [(r"1\text{ m}", r"100\text{ cm}"), (r"\$5", r"5\text{ dollars}")]),
    ("a unit outside of \\text", [("5", "5 cm"), ("5", "5 dollars"), (r"5\text{ cm}", "5 cm^2")]),
    ("units inside", [("56", r"5\text{ ft }6\text{ in}"), ("5", r"5\text{ ft }6\text{ in}")]),
    ("text in front", [("3", r"\text{at least }3"), ("3", r"\text{not }3"), ("4", r"\text{four}")]),
    ("opposite words", [(r"n\text{ even}", r"n\text{ odd}"), (r"3\text{ or more}", "3"), (r"\text{seat}", "east")]),
    ("prose", [("The answer is 5", "5"), ("5 (five)", "5"), ("xyz", "zyx"), (r"\text{IX}", r"\text{XI}")]),
    ("and, or, to", [("3 or 5", "5 or 3"), ("2 to 5", "5 to 2"), ("x<3 or x>5", "x<3 and x>5")]),
    ("words, another equation", [("2, 3", r"2\text{ and }3"), ("x^2+1=0", "x^2+2=0")]),
    ("an arrow", [(r"2 \to 5", r"5 \to 2"), (r"2 \to 5", "5"), (r"a \Rightarrow b", r"b \Rightarrow a")]),
    ("dots", [(r"2,3,\ldots,8", "2,3,8"), (r"\{1,2,\dots,9\}", r"\{2,1,\dots,9\}"), ("1,2,...,9", "1,2,9")]),
    ("a second relation", [("5", "x=y=5"), ("1<x<2", "x<2"), ("0.56 = 56\\%", "0.56"), ("x=1, y=2", "y=2, x=1")]),
    ("a colon", [("1:2", r"\frac12"), ("8:40", r"\frac15"), ("1:2:3", "1:3:2"), ("3:4", "6:8")]),
    ("a base", [("2112_6", "2112_7"), ("2112_6", "2112"), ("10001_2", "10001_{16}")]),
    ("a prime", [("f(x)", "f'(x)"), ("a", "a'")]),
    ("another name", [("x=5", "y=5"), ("x=1, y=2", "2, 1"), ("x+y=5", "5"), ("x", "X"), ("x", "y")]),
    ("another order of a list", [("(1,2)", "(2,1)"), ("[1,2]", "[2,1]")]),
    ("other brackets", [("(1,2)", "[1,2]"), ("(1,2)", "(1,2]"), ("(1,2)", r"\{1,2\}"), ("(1,2)", "1,2")]),
    ("another length", [("1,2", "1"), ("1,1,2", "1,2,2"), ("1,1,2", "1,2"), ("5", "5,6"), ("(1,2)", "(1,2,2)")]),
    ("thousands or a list", [("100,200", "200,100"), ("1200", "1, 200"), ("(1,200)", "1200")]),
    ("an idle operator", [("42", r"\sum 42"), ("42", r"\neq 42"), ("42", r"x \neq 42"), ("42", "42 +")]),
    ("another relation", [("x<3", r"x \le 3"), ("x<3", "x>3"), ("x=3", "x<3"), ("3=5", "2=5")]),
    ("another branch", [("|x|", "x"), ("x", r"\sqrt{x^2}"), (r"\sqrt{ab}", r"\sqrt{a}+\sqrt{b}")]),
    ("degrees of an angle", [(r"\sin 30^\circ", r"\sin 30"), (r"30^\circ\text{ N}", r"30^\circ\text{ S}")]),
    ("products side by side", [("5", "2(3)"), ("13", r"\binom{5}{2}3"), ("3", r"1+2\mathrm{i}"), ("2", "2 xy")]),
    ("nothing", [("5", ""), ("5", r"\text{}"), (r"\text{ cm}", r"5\text{ cm}"), ("5", r"\$")]),
]


def cases(families):
    return [
        pytest.param(gold, answer, id=f"{name}: {gold} | {answer}")
        for name, pairs in families
        for gold, answer in pairs
    ]


@pytest.mark.parametrize(("gold", "answer"), cases(EQUAL))
def test_equal_boxes(gold, answer):
    assert [shared_grader.compare(*pair) for pair in ((gold, answer), (answer, gold))] == [True, True]


@pytest.mark.parametrize(("gold", "answer"), cases(UNEQUAL))
def test_unequal_boxes(gold, answer):
    assert [shared_grader.compare(*pair) for pair in ((gold, answer), (answer, gold))] == [False, False]
    assert gold == "" or shared_grader.compare(gold, f" {gold}. ") is True


@pytest.mark.parametrize(
    "between", [*"|;", r"\mapsto", r"\iff", r"\perp", r"\equiv", r"\circ", r"\oplus", r"\bmod", "to", "mod", r"\quad"]
)
def test_what_is_not_read_is_compared_as_text(between):
    gold = f"3 {between} 5"
    others = [f"2 {between} 5", f"3 {between} 6", f"5 {between} 3", "3", "5", "8", "15", "35"]
    assert [other for other in others if shared_grader.compare(gold, other) is not False] == []
    assert shared_grader.compare(gold, f"3  {between} 5.") is True


def test_formulas_that_are_too_deep_to_be_read_are_not_decided():
    deep = r"\sqrt{" * 200 + "5" + "}" * 200
    assert shared_grader.compare(deep, f"{deep}+0") is None


@given(st.integers(-(10**9), 10**9), st.integers(0, 6))
def test_a_plain_number_is_read_exactly_however_it_is_written(digits, places):
    from fractions import Fraction

    value = Fraction(digits, 10**places)
    text = f"{digits / 10**places:,.{places}f}"
    forms = [text, text.replace(",", "{,}"), text.replace(",", r"\,"), rf"x = {text}\text{{ m}}"]
    assert [plain_number(form) for form in forms] == [value] * 4
    assert plain_number(f"{text}\\%") is None


def test_any_number_of_units_is_read_at_once():
    """A regular expression that tries each of them in two ways would take seven times as long for each one more."""
    assert plain_number("90" + "°" * 2000) == 90
    assert plain_number("90" + "°" * 2000 + " x") is None


@given(st.text("0123456789,.\\{}()[]frac/ -", max_size=25))
def test_no_text_raises_and_each_is_equal_to_itself(text):
    from tempo_trl.rewards.math_equality import is_equal

    assert is_equal(text, text)
    plain_number(text)
