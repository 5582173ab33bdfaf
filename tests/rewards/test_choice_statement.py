r"""Which words of a completion commit it to an answer: a table of shapes and the letter that each commits to."""

import pytest

from tempo_trl.rewards.choice_answer import chosen_letter

from .answers import DRUGS


def check(options, completion, letter):
    assert chosen_letter(completion, options) == letter


@pytest.mark.parametrize(
    "completion, letter",
    [
        (r"\boxed{B}", "B"),
        (r"Hence $\boxed{B}$.", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{\textbf{(B)}}", "B"),
        (r"\boxed{\mathrm{B}}", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{\left(B\right)}", "B"),
        (r"\boxed{\underline{B}}", "B"),
        (r"\boxed{[B]}", "B"),
        (r"\boxed{B.}", "B"),
        (r"\boxed{B)}", "B"),
        (r"\boxed{ B }", "B"),
        (r"\boxed{$B$}", "B"),
        (r"\boxed{**B**}", "B"),
        (r"\boxed{b}", "B"),
        (r"\boxed{(b)}", "B"),
        (r"\boxed{\text{Option B}}", "B"),
        (r"\boxed{\text{Answer: B}}", "B"),
        (r"\boxed{\text{The answer is B}}", "B"),
        (r"\boxed{A} No, wait: Amiodarone would be wrong. \boxed{B}", "B"),
        (r"\boxed{B} Check: not A, not C. A is wrong.", "B"),
        (r"The answer is A. \boxed{B}", "B"),
        (r"\boxed{B} The answer is A.", "B"),
        (r"A: no. C: no. D: no. \boxed{B}", "B"),
        ("\\boxed{B}\n\n**Explanation:** Digoxin is a cardiac glycoside.", "B"),
    ],
)
def test_the_last_box_decides(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ("<answer>B</answer>", "B"),
        ("<answer> (B) </answer>", "B"),
        ("<ANSWER>B: Digoxin</ANSWER>", "B"),
        ("<answer>Digoxin</answer>", "B"),
        ("<answer>A</answer> Hm. <answer>B</answer>", "B"),
        ("<think>A</think><answer>B</answer>", "B"),
        ("The answer is A. <answer>B</answer>", "B"),
        (r"<answer>A</answer> \boxed{B}", "B"),
        ("<answer>B", ""),
        ("B</answer>", ""),
        ("<answer></answer> The answer is B.", ""),
        ("<answer>B or C</answer>", ""),
    ],
)
def test_without_a_box_the_last_closed_answer_tag_decides(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ("The answer is B.", "B"),
        ("The answer is B", "B"),
        ("the correct answer is: B", "B"),
        ("Answer: B", "B"),
        ("**Answer:** B", "B"),
        ("**Answer**: (B)", "B"),
        ("The answer is **B. Digoxin**.", "B"),
        ("Answer:\n\nB", "B"),
        ("The best answer choice is B.", "B"),
        ("The answer is option B.", "B"),
        ("The answer is therefore $B$.", "B"),
        ("The answer is B. This is because A, C and D slow the heart.", "B"),
        ("The answer is B because A is wrong.", "B"),
        ("The answer is B, since A is wrong.", "B"),
        ("The answer is B, not D.", "B"),
        ("The answer is B (not D or E).", "B"),
        ("The answer is B rather than D.", "B"),
        ("The answer is B rather than D or E, or is it A?", ""),
        ("The answer is Digoxin.", "B"),
        ("The answer is Digoxin because it slows conduction.", "B"),
        ("The answer is digoxin, which slows conduction.", "B"),
        ("The answer is B) Digoxin, given once a day.", "B"),
        ("The answer is A. Sorry, the answer is B.", "B"),
        ("The answer is A.\nAnswer: B", "B"),
        ("If A were given, the heart would stop, so the answer is B.", "B"),
        ("The answer is B. Warfarin.", ""),
        ("The answer is B. Warfarin because of the stroke.", ""),
        ("The answer is B: Warfarin", ""),
        ("The answer is Digoxin and Warfarin.", ""),
        ("The answer is B or C.", ""),
        ("The answer is B, or maybe C.", ""),
        ("The answer is either B or C.", ""),
        ("The answer is B and C.", ""),
        ("The answer is B/C.", ""),
        ("The answer is B, C.", ""),
        ("The answer is B?", ""),
        ("The answer is not B.", ""),
        ("The answer isn't B.", ""),
        ("I do not think that the answer is B.", ""),
        ("I don't think the answer is B.", ""),
        ("If the answer is B", ""),
        ("The incorrect answer is B.", ""),
        ("The answer is B. Or not. The answer is unknown.", ""),
        ("The answer is B. No: the answer is not B.", ""),
        ("The answer is one of A, B, C and D.", ""),
        ("The answer is a drug.", ""),
        ("The answer is a", ""),
        ("Answer choices: B", ""),
    ],
)
def test_without_both_what_follows_answer_is_decides(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ("B", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        ("B.", "B"),
        ("B\n\nDigoxin slows conduction.", "B"),
        ("Digoxin slows conduction.\n\nB", "B"),
        ("### Answer\nB", "B"),
        ("b", ""),
        ("F", ""),
        ("B\nso\nC", ""),
        ("First\nB\nlast", ""),
        ("Digoxin", ""),
        ("I would give B here.", ""),
        ("A patient with these symptoms needs Digoxin.", ""),
        ("Because the pulse is irregular.", ""),
        ("", ""),
        ("   \n ", ""),
    ],
)
def test_without_all_that_a_letter_alone_on_the_first_or_last_line_decides(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ("B is right.", "B"),
        ("So B is the correct choice.", "B"),
        ("the correct option is B.", "B"),
        ("The best choice is (B).", "B"),
        ("I would choose B.", "B"),
        ("I'd go with (B).", "B"),
        ("ANSWERS: B", "B"),
        ("The answer is for sure B, since A is wrong.", "B"),
        ("答案：（B）", "B"),
        ("答案是B。", "B"),
        ("A is wrong.\nB is right. The answer is (B).", "B"),
        ("A is wrong.\nB is right.", "B"),
        ("The answer is A. Wait, no. B is right.", "B"),
        ("The answer is B. Wait for the culture.", "B"),
        ("The answer is B. Wait, no.", ""),
        ("The answer is B. Hold on, that is wrong.", ""),
        ("A is right and B is right.", ""),
        ("The answer is A, but B is right.", ""),
        ("B is right?", ""),
        ("If B is right, A is not.", ""),
        ("I do not think that B is right.", ""),
        ("Vitamin B is right.", ""),
        ("I would not choose B.", ""),
        ("The incorrect option is B.", ""),
    ],
)
def test_the_last_statement_that_commits_decides_in_whatever_words(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ('{"answer_choice": "B"}', "B"),
        ('{"answer": "B. Digoxin", "confidence": 85}', "B"),
        ('```json\n{\n  "step_by_step_thinking": "The answer is A, maybe.",\n  "answer_choice": "B"\n}\n```', "B"),
        ('{"answer_choice": "B", "explanation": "The answer is A where the heart fails."}', "B"),
        ('{"final_answer": "(B)"}', "B"),
        ("{'answer': 'B'}", "B"),
        ('{"answer": ["B"]}', "B"),
        ('{"answer": "A"} Or rather {"answer": "B"}', "B"),
        ('The answer is A. {"answer": "B"}', "B"),
        ('{"answer": ["A", "B"]}', ""),
        ('{"answer": "unknown"} B', ""),
        ('{"answer": ""}', ""),
        ('{"options": {"A": "Propranolol", "B": "Digoxin"}}', ""),
    ],
)
def test_without_box_and_tag_the_last_answer_in_json_decides(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        (r"\boxed{B}. Note that \boxed{A} would be wrong.", "B"),
        (r"\boxed{B}, not \boxed{A}.", "B"),
        (r"\boxed{B}; $\boxed{A}$ is not the answer.", "B"),
        (r"\boxed{A} is wrong.", ""),
        (r"It cannot be \boxed{A}: not \boxed{A}.", ""),
    ],
)
def test_a_box_that_is_denied_commits_to_nothing(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        ("The answer is B, as A and C are wrong.", "B"),
        ("The answer is B, although A is tempting.", "B"),
        ("The answer is B; A is wrong.", "B"),
        ("The answer is not A, it is B.", "B"),
        ("The answer is not A but B.", "B"),
        ("The answer isn't A. It's B.", "B"),
        ("B) Digoxin", "B"),
        ("B. Digoxin", "B"),
        ("B - Digoxin", "B"),
        ("**B. Digoxin**\n\nIt slows conduction.", "B"),
        ("Option B", "B"),
        ("Answer = B", "B"),
        ("Answer - B", "B"),
        ("Answer: b", "B"),
        ("Answer B", "B"),
        ("Ans: B", "B"),
        ("Therefore, B.", "B"),
        ("It's B", "B"),
        ("It must be B.", "B"),
        ("I'd say B.", "B"),
        ("The answer is 'B'.", "B"),
        ("\\boxed{2 + 2 = 4}\n\nAnswer: B", "B"),
        (r"\boxed{A or B} The answer is B.", "B"),
        ("The answer is B. It is a cardiac glycoside.", "B"),
        ("The answer is B, as A is too.", ""),
        ("The answer is B as well as C.", ""),
        ("The answer is B; or C.", ""),
        ("The answer is not A, it is not B.", ""),
        ("B) Warfarin", ""),
        ("B) Digoxin is wrong.", ""),
        ("B) Digoxin\nC) Amiodarone", ""),
        ("It's B or C.", ""),
        ("It is C. difficile.", ""),
        ("Answer = B or C", ""),
        ("Answer - none", ""),
        ("The answer is B. Actually, no.", ""),
        ("Many would say the answer is B.", ""),
        ("Some might think it's B.", ""),
        ("The answer is B, many would say.", ""),
        ("The tempting answer is B.", ""),
        ("A common mistake is to say the answer is B.", ""),
    ],
)
def test_reasons_signs_and_opinions_of_others(completion, letter):
    check(DRUGS, completion, letter)


LIST = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCDE", DRUGS, strict=True))


@pytest.mark.parametrize(
    "completion, letter",
    [
        (LIST, ""),
        (f"Answer:\n{LIST}", ""),
        (f"Answer choices:\n{LIST}", ""),
        (f"The answer is one of\n{LIST}", ""),
        ("Answer: " + LIST.replace("\n", " "), ""),
        ("Answer: " + LIST.replace(". ", ": ").replace("\n", ", "), ""),
        ("A\nB\nC\nD\nE", ""),
        ("A)\n\nB)\n\nC)", ""),
        (f"Answer: {LIST}", ""),
        ("Answer: A. Propranolol. B. Digoxin.", ""),
        ("Answer: A. B.", ""),
        ("Answer: A, B, C, D or E", ""),
        ("Answer: A/B/C/D/E", ""),
        ("Answer: ABCDE", ""),
        (rf"\boxed{{{LIST}}}", ""),
        (r"\boxed{A, B, C, D, E}", ""),
        (f"{LIST}\n\nB", "B"),
        (f"{LIST}\nThe answer is B.", "B"),
        (f"{LIST}. The answer is B.", "B"),
        (f"{LIST}\n\\boxed{{B}}", "B"),
    ],
)
def test_a_list_of_the_options_is_no_statement(completion, letter):
    check(DRUGS, completion, letter)


@pytest.mark.parametrize(
    "completion, letter",
    [
        (r"<think>\boxed{A}</think>\boxed{B}", "B"),
        ("<think>The answer is A.</think>The answer is B.", "B"),
        ("<think>The answer is B.", ""),
        ("<think>\nB", ""),
    ],
)
def test_thinking_is_no_answer(completion, letter):
    check(DRUGS, completion, letter)
