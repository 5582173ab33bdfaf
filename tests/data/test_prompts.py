r"""The words around a question, style by style."""

import pytest

from tempo_trl.data import BENCHMARKS
from tempo_trl.data.prompts import STYLES, messages
from tests.data.rows import HUB_ROWS


def user_text(name: str, **words: str) -> str:
    benchmark = BENCHMARKS[name]
    *_, message = messages(benchmark.to_row(HUB_ROWS[name][0]), benchmark.domain, **words)
    assert message["role"] == "user"
    return message["content"]


def test_tasks_that_say_what_to_do_are_asked_as_they_are():
    for style in STYLES:
        assert user_text("orders", style=style) == "Two red mugs for Ada Bell, please."


ROW = {"question": "Two cups.", "system_prompt": "Write JSON.", "example": ("One mug.", '{"mug": 1}')}
ASKED = ["Write JSON.", "One mug.", '{"mug": 1}', "Two cups."]
ASKED_OTHERWISE = ["Be brief.", "One mug.\nAs JSON.", '{"mug": 1}', "Two cups.\nAs JSON."]


@pytest.mark.parametrize(("words", "asked"), [((), ASKED), (("Be brief.", "As JSON."), ASKED_OTHERWISE)])
def test_a_system_message_and_a_worked_example_of_a_row_come_before_its_question(words, asked):
    system, *rest = messages(ROW, "json", *words)
    assert [message["content"] for message in (system, *rest)] == asked
    assert [message["role"] for message in (system, *rest)] == ["system", "user", "assistant", "user"]
    assert len(messages(ROW, "json", "")) == 3


def test_both_domains_ask_for_a_box_and_options_are_lines():
    assert user_text("math") == ("$1 + 1$?\nPlease reason step by step, and put your final answer within \\boxed{}.")
    assert user_text("medqa_5options") == (
        "Which one is it?\nA. Propranolol\nB. Digoxin\nC. Amiodarone\nD. Warfarin\nE. Diltiazem\n"
        "Please reason step by step, and put the letter of your answer within \\boxed{}."
    )


def test_the_authors_code_asks_in_one_line_and_for_answer_tags():
    assert user_text("math", style="authors-code") == (
        "$1 + 1$? Let's think step by step and output the final answer within \\boxed{}."
    )
    row = BENCHMARKS["medqa"].to_row(HUB_ROWS["medqa"][0])
    system, user = messages(row, "choice", style="authors-code")
    assert (system["role"], "<answer> answer here </answer>" in system["content"]) == ("system", True)
    assert user == {
        "role": "user",
        "content": "Which one is it?A: Anti-A IgG, B: Anti-D IgG, C: Anti-B IgG, D: Anti-D IgM",
    }


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["math", "medqa"])
def test_words_of_one_s_own_take_the_place_of_the_style_s_and_empty_ones_are_none(name, style):
    row = BENCHMARKS[name].to_row(HUB_ROWS[name][0])
    system, user = messages(row, BENCHMARKS[name].domain, "Be brief.", "Answer.", style)
    assert system == {"role": "system", "content": "Be brief."}
    assert user["content"].endswith("Answer.")
    [bare] = messages(row, BENCHMARKS[name].domain, "", "", style)
    assert bare["content"] == user["content"].removesuffix("Answer.").rstrip()
