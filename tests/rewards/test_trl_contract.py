"""What TRL asks of each reward: an empty batch, the last assistant message, and imports that cost nothing."""

import subprocess
import sys

import pytest

from tempo_trl import rewards
from tempo_trl.launch.fields import REWARDS, SPAN_REWARDS
from tempo_trl.launch.functions import load_function
from tempo_trl.rewards import choice_reward, format_reward, math_reward
from tempo_trl.rewards.boxed import completion_text

from .answers import ROOT

COLUMNS = {choice_reward: ("solution", "options"), format_reward: (), math_reward: ("solution",)}


@pytest.mark.parametrize("reward", COLUMNS)
def test_an_empty_batch_has_no_rewards(reward):
    columns = {name: [] for name in COLUMNS[reward]}
    assert reward([], log_metric=lambda name, share: pytest.fail("no share of nothing"), **columns) == []


COMPLETIONS = [("5", "5"), ([{"role": "assistant", "content": "5"}, {"role": "tool", "content": "6"}], "5")]
COMPLETIONS += [([{"role": "assistant", "content": "6"}, {"role": "assistant", "content": "5"}], "5")]
COMPLETIONS += [([{"role": "assistant", "content": "5"}, {"role": "assistant", "content": None}], "")]
COMPLETIONS += [([{"role": "assistant", "content": [{"type": "text", "text": "5"}]}], "5")]
COMPLETIONS += [([{"role": "user", "content": "5"}], ""), ([], "")]


@pytest.mark.parametrize(("completion", "text"), COMPLETIONS)
def test_the_last_assistant_message_is_graded(completion, text):
    assert completion_text(completion) == text
    [said, from_text] = (choice_reward([each], ["B"], [["5", "6"]]) for each in (completion, text))
    assert said == from_text


@pytest.mark.parametrize("name", ["equations", "json_fields", "json_schema", "tool_call_fields"])
def test_recipes_name_the_structured_rewards_by_their_shorthands(name):
    assert load_function(SPAN_REWARDS[name]) is getattr(rewards, name)
    assert load_function(REWARDS[f"{name}_reward"]) is getattr(rewards, f"{name}_reward")


def test_importing_the_rewards_imports_none_of_the_heavy_packages():
    heavy = {"torch", "trl", "transformers", "sympy", "math_verify"}
    script = f"import sys, tempo_trl.rewards; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT) == "set()\n"
