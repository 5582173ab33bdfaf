"""The rewards of instructions in TRL's form."""

import json

import pytest

from tempo_trl.rewards import ifeval_reward, instruction_reward

ASKED = "Write about a busy market. Do not use any commas."
GOOD, COMMA, HOLLOW = "The market is full of people.", "The market is full, and it is loud.", "Market."


def test_an_answer_is_paid_if_it_follows_its_instruction_in_prose():
    rows = {"kind": ["no_comma"] * 3, "words": [[]] * 3, "number": [0] * 3, "prompts": [ASKED] * 3}
    assert instruction_reward([GOOD, COMMA, HOLLOW], **rows) == [1.0, 0.0, 0.0]


def test_messages_are_read_as_plain_text_is():
    messages = [[{"role": "assistant", "content": GOOD}]]
    prompts = [[{"role": "user", "content": ASKED}]]
    assert instruction_reward(messages, ["no_comma"], [[]], [0], prompts) == [1.0]
    copied = [[{"role": "assistant", "content": "I will write about a busy market in this text."}]]
    assert instruction_reward(copied, ["no_comma"], [[]], [0], prompts) == [1.0]
    assert instruction_reward(
        [[{"role": "assistant", "content": f"You say: {ASKED}"}]], ["no_comma"], [[]], [0], prompts
    ) == [0.0]


def test_what_follows_the_thinking_is_graded_and_an_unfinished_thought_earns_nothing():
    thought = f"<think>{COMMA}</think>\n"
    answers = [thought + GOOD, thought + COMMA, f"<think>{GOOD}</think>", f"<think>{GOOD}"]
    rows = {"kind": ["no_comma"] * 4, "words": [[]] * 4, "number": [0] * 4, "prompts": [ASKED] * 4}
    assert instruction_reward(answers, **rows) == [1.0, 0.0, 0.0, 0.0]


def test_the_rate_of_each_kind_is_logged():
    logged = {}
    rows = {"kind": ["no_comma", "no_comma", "max_words"], "words": [[]] * 3, "number": [0, 0, 20]}
    instruction_reward([GOOD, COMMA, COMMA], prompts=[ASKED] * 3, log_metric=logged.__setitem__, **rows)
    assert logged == {"instructions/prose": 1.0, "instructions/no_comma": 0.5, "instructions/max_words": 1.0}


def test_the_share_of_followed_instructions_is_paid():
    pytest.importorskip("lm_eval.tasks.ifeval.instructions_registry")
    names = ["punctuation:no_comma", "keywords:existence"]
    given = json.dumps([{"keywords": None}, {"keywords": ["market"], "num_words": None}])
    answers = [GOOD, COMMA, "It rains, it pours.", ""]
    assert ifeval_reward(answers, [names] * 4, [given] * 4) == [1.0, 0.5, 0.0, 0.0]
