"""The table of metrics has every metric that our trainers log, and no other."""

import re
from pathlib import Path

import pytest

from tempo_trl import GiGPOConfig, GiGPOTrainer
from tempo_trl.runs.metrics import METRICS

from .trainers.credit_functions import door_rewards
from .trainers.every_method import trainer_of
from .trainers.recording import share_of_threes
from .trainers.test_agents import play

REPOSITORY = Path(__file__).parents[1]
OURS = ("step_rewards", "spans", "tempo", "rollout", "treerpo", "grpo_lambda", "ppo")
RUNS = {name: {} for name in ("prefix_baseline", "span_credit", "grpo_lambda", "treerpo", "ppo")}
RUNS |= {"tempo": {"tree_forward": "on"}}


def logged(method: str, model: str, folder) -> set[str]:
    trainer = trainer_of(method, model, folder, reward=share_of_threes, max_steps=2, **RUNS[method])
    trainer.train()
    return names_in(trainer)


def names_in(trainer) -> set[str]:
    names = {name for entry in trainer.state.log_history for name in entry if name.split("/")[0] in OURS}
    of_any_function = (re.sub("(step_rewards|spans)/[^/]*/", r"\1/NAME/", name) for name in names)
    return {re.sub(r"_\d+$", "_L", name) for name in of_any_function}


def logged_of_agents(model: str, folder) -> set[str]:
    options = {"config_cls": GiGPOConfig, "trainer": {"step_reward_funcs": door_rewards}}
    return names_in(play(model, folder, GiGPOTrainer, **options))


@pytest.fixture(scope="module")
def names(tiny_model, tmp_path_factory) -> set[str]:
    of_methods = (logged(method, tiny_model, tmp_path_factory.mktemp(method)) for method in RUNS)
    return set().union(*of_methods, logged_of_agents(tiny_model, tmp_path_factory.mktemp("agents")))


def test_every_metric_that_is_logged_is_explained_and_no_other(names):
    assert names == METRICS.keys()


def test_every_metric_that_a_page_names_is_logged():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("recipes/**/*.*ml")]
    pattern = f"`((?:{'|'.join(OURS)})/[\\w/]+)`"
    named = {re.sub(r"turn_\d+", "turn_L", name) for page in pages for name in re.findall(pattern, page.read_text())}
    pictures = {"tempo/tree"}  # what a tracker shows beside metrics
    assert named >= {"tempo/prefix_r2", "step_rewards/NAME/turn_L"}
    assert named <= METRICS.keys() | pictures
