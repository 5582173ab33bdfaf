"""Functions that recipes and flags name by their dotted paths: credit, tools, environments, rewards per turn."""

import subprocess
import sys
from pathlib import Path

import pytest
from trl import GRPOConfig

from tempo_trl.demo.task import policy_path
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.functions import load_function
from tempo_trl.launch.train import build_trainer
from tempo_trl.methods import METHODS, Method

TOKEN_CREDIT = "token_credit"
ON_SUMS = ["--task", "sums", "--use_cpu", "true", "--bf16", "false"]
GIVEN = [*ON_SUMS, "--reward_funcs", "tempo_trl.demo.task.correct_answer"]
MINE = """
import torch
from tempo_trl.rewards import SpanReward, mean_reward
number = 3
def is_whole(texts, **columns):
    return [[SpanReward("whole", float(text == "[7] with special tokens"))] for text in texts]
whole = mean_reward(is_whole)
def credit(batch):
    return torch.zeros(batch.completion_ids.shape)
def look(): ...
def take(): ...
def per_turn(completions, **columns): ...
def state_of(text): ...
class World: ...
def listed(split, seed): return [{"prompt": "a"}]
def of_one(split): ...
def number_of(split, seed): return None + 1
def rows(split, seed):
    from datasets import Dataset
    return Dataset.from_list([{"prompt": f"{split} {seed}", "answer": "1"}] * 9)
"""
RECIPE = """
method: token_credit
credit_func: my_functions.credit
tools: [my_functions.look, my_functions.take]
environment_factory: my_functions.World
step_reward_funcs: [my_functions.per_turn, my-org/my-process-reward-model]
observation_key_func: my_functions.state_of
"""
OF_TOKEN_CREDIT = ["--method", TOKEN_CREDIT, "--credit_func", "my_functions.credit"]
FLAGS = [
    *(*OF_TOKEN_CREDIT, "--tools", "my_functions.look", "my_functions.take"),
    *("--environment_factory", "my_functions.World", "--observation_key_func", "my_functions.state_of"),
    *("--step_reward_funcs", "my_functions.per_turn", "my-org/my-process-reward-model"),
]


StubConfig = GRPOConfig


class StubTrainer:
    """A trainer that keeps what it was given."""

    def __init__(self, **given):
        self.given, self.reward_funcs, self._tokenizer = given, given["reward_funcs"], self

    @classmethod
    def check_functions(cls, args, step_reward_funcs=(), span_reward_funcs=(), **others):
        return list(step_reward_funcs), list(span_reward_funcs)

    def decode(self, token_ids, **options):
        return f"{token_ids} with special tokens"


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch) -> Path:
    """A folder with the module `my_functions`, as the current directory; `stub` and token_credit train nothing."""
    (tmp_path / "my_functions.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for method in (TOKEN_CREDIT, "stub"):
        stub = Method(label="stub", trainer=f"{__name__}.StubTrainer")
        monkeypatch.setitem(METHODS, method, stub)
    return tmp_path


@pytest.mark.parametrize("recipe", [True, False])
def test_the_trainer_gets_what_the_paths_name(recipe):
    flags = FLAGS
    if recipe:
        Path("recipe.yaml").write_text(RECIPE)
        flags = ["--config", "recipe.yaml"]
    given = build_trainer(parse([*GIVEN, *flags])).given
    assert (given["credit_func"].__module__, given["credit_func"].__name__) == ("my_functions", "credit")
    assert [tool.__name__ for tool in given["tools"]] == ["look", "take"]
    assert given["environment_factory"].__name__ == "World"
    assert given["observation_key_func"].__name__ == "state_of"
    function, model = given["step_reward_funcs"]
    assert (function.__name__, model) == ("per_turn", "my-org/my-process-reward-model")


def test_a_trainer_gets_no_function_that_the_run_does_not_name_and_the_task_s_own_model():
    given = build_trainer(parse([*GIVEN, "--method", "stub"])).given
    assert given["model"] == str(policy_path())
    assert given.keys().isdisjoint({"credit_func", "tools", "environment_factory", "step_reward_funcs"})


def test_the_name_of_a_span_reward_function_is_no_folder():
    Path("equations").mkdir()
    given = build_trainer(parse([*GIVEN, "--method", "stub", "--span_reward_funcs", "equations"])).given
    assert [function.__name__ for function in given["span_reward_funcs"]] == ["equations"]


def test_the_mean_of_criteria_gets_the_runs_tokenizer():
    _, reward = build_trainer(parse([*GIVEN, "my_functions.whole", "--method", "stub"])).reward_funcs
    assert reward.__name__ == "is_whole_reward"
    assert reward(completions=["7"], completion_ids=[[7]]) == [1.0]


def test_a_task_may_be_a_function_of_split_and_seed():
    task = ["--task", "my_functions.rows", "--model_name_or_path", "some/model", "--do_eval", "true", "--seed", "7"]
    given = build_trainer(parse([*GIVEN, "--method", "stub", *task])).given
    assert (given["train_dataset"][0]["prompt"], given["eval_dataset"][0]["prompt"]) == ("train 7", "test 0")


@pytest.mark.parametrize("name", ["listed", "of_one", "number_of"])
def test_a_task_that_is_no_loader_of_a_dataset_is_refused(name):
    with pytest.raises(
        ValueError, match=r"`task` must be a function `load\(split, seed\)` that returns a Dataset, got"
    ):
        build_trainer(
            parse([*GIVEN, "--method", "stub", "--task", f"my_functions.{name}", "--model_name_or_path", "m"])
        )


def test_an_environment_may_bring_its_own_reward():
    given = build_trainer(parse([*ON_SUMS, *OF_TOKEN_CREDIT, "--environment_factory", "my_functions.World"])).given
    assert given["environment_factory"].__name__ == "World" and given["reward_funcs"] == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_functions.kredit", "cannot import function 'my_functions.kredit': module 'my_functions' has no"),
        ("my_functions.number", "'my_functions.number' has type int, expected a function"),
        (".credit", "cannot import function '.credit'.* Expected package.module.function"),
    ],
)
def test_a_path_that_names_no_function_is_refused_by_name(path, message):
    with pytest.raises(ValueError, match=message):
        load_function(path)
    own = ["--method", TOKEN_CREDIT, "--credit_func", path], ["--environment_factory", path, "--method", "stub"]
    for flags in (*own, ["--reward_funcs", path]):
        with pytest.raises(ValueError, match=message):
            build_trainer(parse([*GIVEN, *flags]))


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_a_launched_run_imports_from_its_current_directory(mine):
    """As `python -m tempo_trl.train` starts: a module of the folder is found."""
    flags = ["--config", "sums/tempo", "--reward_funcs", "my_functions.number", "--output_dir", str(mine / "out")]
    started = subprocess.run([sys.executable, "-m", "tempo_trl.train", *flags], capture_output=True, text=True)
    assert "error: 'my_functions.number' has type int" in started.stderr
