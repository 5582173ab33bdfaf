"""Tools, environments and rewards per turn of a recipe or of flags: loaded by their dotted paths."""

from pathlib import Path

import pytest

from tempo_trl.launch.arguments import parse
from tempo_trl.launch.fields import TOKEN_CREDIT
from tempo_trl.launch.train import build_trainer, main

from .test_credit_func import GIVEN, token_credit  # noqa: F401

MINE = """
def credit(batch): ...
def look(): ...
def take(): ...
def per_turn(completions, **columns): ...
def state_of(text): ...
class World: ...
"""
RECIPE = """
method: token_credit
credit_func: my_agent.credit
tools: [my_agent.look, my_agent.take]
environment_factory: my_agent.World
step_reward_funcs: [my_agent.per_turn, my-org/my-process-reward-model]
observation_key_func: my_agent.state_of
"""
FLAGS = [
    *("--method", TOKEN_CREDIT, "--credit_func", "my_agent.credit", "--tools", "my_agent.look", "my_agent.take"),
    *("--environment_factory", "my_agent.World", "--observation_key_func", "my_agent.state_of"),
    *("--step_reward_funcs", "my_agent.per_turn", "my-org/my-process-reward-model"),
]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """A folder with the module `my_agent`, as the current directory."""
    (tmp_path / "my_agent.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("recipe", [True, False])
def test_the_trainer_gets_what_the_paths_name(recipe):
    flags = FLAGS
    if recipe:
        Path("recipe.yaml").write_text(RECIPE)
        flags = ["--config", "recipe.yaml"]
    given = build_trainer(parse([*GIVEN, *flags])).given
    assert [tool.__name__ for tool in given["tools"]] == ["look", "take"]
    assert given["environment_factory"].__name__ == "World"
    assert given["observation_key_func"].__name__ == "state_of"
    function, model = given["step_reward_funcs"]
    assert (function.__name__, model) == ("per_turn", "my-org/my-process-reward-model")


def test_an_environment_may_bring_its_own_reward():
    flags = ["--method", TOKEN_CREDIT, "--credit_func", "my_agent.credit", "--environment_factory", "my_agent.World"]
    given = build_trainer(parse(["--task", "sums", "--use_cpu", "true", "--bf16", "false", *flags])).given
    assert given["environment_factory"].__name__ == "World" and given["reward_funcs"] == []


@pytest.mark.parametrize("name", ["step_reward_funcs", "observation_key_func"])
def test_methods_of_trl_refuse_what_trl_does_not_take(name, capsys):
    assert main([*GIVEN, "--method", "grpo", f"--{name}", "my_agent.per_turn"]) == 2
    error = capsys.readouterr().err
    assert f"`{name}` is" in error and "method 'grpo' trains with TRL's GRPOTrainer" in error
