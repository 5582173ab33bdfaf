r"""Which words of a completion commit it to an answer: a table of shapes and the letter that each commits to."""

from itertools import product

import pytest

from tempo_trl.rewards.choice_answer import chosen_letter

from .answers import DRUGS

LEADS = ["The answer is", "the correct answer is:", "Answer:", "**Answer:**", "ANSWERS:", "Ans:", "Answer =", "答案是"]
LEADS += ["The best answer choice is", "The answer is option", "the correct option is", "The answer is therefore"]
LEADS += [
    "The answer is A. Sorry, the answer is",
    "I would choose",
    "I'd go with",
    "I'd say",
    "The answer is for sure",
]
NAMES = ["B", "(B)", "$B$", "**B. Digoxin**", "B) Digoxin"]
REASONS = ["", ".", "\n\nA is wrong.", " because A is wrong.", ", since A is wrong.", ", as A and C are wrong."]
REASONS += ["; A is wrong.", ", although A is tempting.", ". It is a cardiac glycoside.", ", which slows conduction."]
REASONS += [". This is because A, C and D slow the heart.", ", not D.", " (not D or E).", " rather than D."]
SECOND = [" or C.", ", or maybe C.", " and C.", "/C.", ", C.", " as well as C.", "; or C.", ", as A is too."]
SECOND += [". Warfarin.", ": Warfarin", ". Wait, no.", ". Hold on, that is wrong.", ". Actually, no."]
SECOND += [". No: the answer is not B.", ", many would say.", " rather than D or E, or is it A?"]
DOUBTS = ["I do not think that", "I don't think", "Many would say", "A common mistake is to say", "If"]


def test_a_statement_commits_to_a_letter_or_its_option_in_whatever_words():
    said = [f"{lead} {name}{reason}" for lead, name, reason in product(LEADS, NAMES, REASONS)]
    assert [each for each in said if chosen_letter(each, DRUGS) != "B"] == []


def test_two_letters_and_what_is_withdrawn_doubted_or_denied_commit_to_none():
    said = [f"{lead} {name}{second}" for lead, name, second in product(LEADS, ["B", "(B)", "$B$", "**B**"], SECOND)]
    said += [f"{doubt} {lead} B." for doubt, lead in product(DOUBTS, ["the answer is", "the best choice is", "it's"])]
    assert [each for each in said if chosen_letter(each, DRUGS) != ""] == []


LIST = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCDE", DRUGS, strict=True))


SHAPES = {
    "the last box decides": [
        (r"Hence $\boxed{B}$.", "B"),
        (r"\boxed{\left(B\right)}", "B"),
        (r"\boxed{A} No, wait: Amiodarone would be wrong. \boxed{B}", "B"),
        (r"\boxed{B} Check: not A, not C. A is wrong.", "B"),
        (r"The answer is A. \boxed{B}", "B"),
        (r"\boxed{B} The answer is A.", "B"),
        (r"A: no. C: no. D: no. \boxed{B}", "B"),
        ("\\boxed{B}\n\n**Explanation:** Digoxin is a cardiac glycoside.", "B"),
    ],
    "without a box the last closed answer tag decides": [
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
    "without both what follows answer is decides": [
        ("**Answer**: (B)", "B"),
        ("Answer:\n\nB", "B"),
        ("The answer is Digoxin.", "B"),
        ("The answer is Digoxin because it slows conduction.", "B"),
        ("The answer is digoxin, which slows conduction.", "B"),
        ("The answer is B) Digoxin, given once a day.", "B"),
        ("The answer is A.\nAnswer: B", "B"),
        ("If A were given, the heart would stop, so the answer is B.", "B"),
        ("The answer is B. Warfarin because of the stroke.", ""),
        ("The answer is Digoxin and Warfarin.", ""),
        ("The answer is either B or C.", ""),
        ("The answer is B?", ""),
        ("The answer is (B)?", ""),
        ("The answer is **(B)**? The answer is (B).", "B"),
        ("The answer is not B.", ""),
        ("The answer is B. The answer is not C.", "B"),
        ("The answer is B. The answer is not C.\nThe answer is not **A**.", "B"),
        ("The answer is B. The answer is not B.", ""),
        ("The answer is B. The answer is not C. The answer is not B.", ""),
        ("The answer is B. The answer is not C, it is A.", "A"),
        ("The answer is not A. The answer is not C.", ""),
        ("The most appropriate option is B.", "B"),
        ("The least likely option is A. The most likely choice is B.", "B"),
        ("The answer isn't B.", ""),
        ("If the answer is B", ""),
        ("The incorrect answer is B.", ""),
        ("The answer is B. Or not. The answer is unknown.", ""),
        ("The answer is one of A, B, C and D.", ""),
        ("The answer is a drug.", ""),
        ("The answer is a", ""),
        ("Answer choices: B", ""),
    ],
    "without all that a letter alone on the first or last line decides": [
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
    "the last statement that commits decides in whatever words": [
        ("B is right.", "B"),
        ("So B is the correct choice.", "B"),
        ("The best choice is (B).", "B"),
        ("答案：（B）", "B"),
        ("答案是B。", "B"),
        ("A is wrong.\nB is right. The answer is (B).", "B"),
        ("A is wrong.\nB is right.", "B"),
        ("The answer is A. Wait, no. B is right.", "B"),
        ("The answer is B. Wait for the culture.", "B"),
        ("A is right and B is right.", ""),
        ("The answer is A, but B is right.", ""),
        ("B is right?", ""),
        ("If B is right, A is not.", ""),
        ("I do not think that B is right.", ""),
        ("Vitamin B is right.", ""),
        ("I would not choose B.", ""),
        ("The incorrect option is B.", ""),
    ],
    "without box and tag the last answer in json decides": [
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
    "a box that is denied commits to nothing": [
        (r"\boxed{B}. Note that \boxed{A} would be wrong.", "B"),
        (r"\boxed{B}, not \boxed{A}.", "B"),
        (r"\boxed{B}; $\boxed{A}$ is not the answer.", "B"),
        (r"\boxed{A} is wrong.", ""),
        (r"It cannot be \boxed{A}: not \boxed{A}.", ""),
    ],
    "reasons signs and opinions of others": [
        ("The answer is not A, it is B.", "B"),
        ("The answer is not A but B.", "B"),
        ("The answer isn't A. It's B.", "B"),
        ("B) Digoxin", "B"),
        ("B. Digoxin", "B"),
        ("B - Digoxin", "B"),
        ("**B. Digoxin**\n\nIt slows conduction.", "B"),
        ("Option B", "B"),
        ("Answer - B", "B"),
        ("Answer: b", "B"),
        ("Answer B", "B"),
        ("Therefore, B.", "B"),
        ("It's B", "B"),
        ("It must be B.", "B"),
        ("The answer is 'B'.", "B"),
        ("\\boxed{2 + 2 = 4}\n\nAnswer: B", "B"),
        (r"\boxed{A or B} The answer is B.", "B"),
        ("The answer is not A, it is not B.", ""),
        ("B) Warfarin", ""),
        ("B) Digoxin is wrong.", ""),
        ("B) Digoxin\nC) Amiodarone", ""),
        ("It's B or C.", ""),
        ("It is C. difficile.", ""),
        ("Answer = B or C", ""),
        ("Answer - none", ""),
        ("Some might think it's B.", ""),
        ("The tempting answer is B.", ""),
    ],
    "a list of the options is no statement": [
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
    "thinking is no answer": [
        (r"<think>\boxed{A}</think>\boxed{B}", "B"),
        ("<think>The answer is A.</think>The answer is B.", "B"),
        ("<think>The answer is B.", ""),
        ("<think>\nB", ""),
    ],
}


@pytest.mark.parametrize(
    ("completion", "letter"),
    [pytest.param(*case, id=f"{rule}-{case[0]}") for rule, cases in SHAPES.items() for case in cases],
)
def test_a_completion_commits_to_one_letter_or_to_none(completion, letter):
    assert chosen_letter(completion, DRUGS) == letter
