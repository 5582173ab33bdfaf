"""`credit_func` of a recipe or a flag: loaded for the method that takes one, refused for every other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tempo_trl.launch.arguments import parse
from tempo_trl.launch.fields import TOKEN_CREDIT
from tempo_trl.launch.train import build_trainer, load_function, main
from tempo_trl.methods import METHODS, Method

GIVEN = [
    "--task",
    "sums",
    "--reward_funcs",
    "tempo_trl.demo.task.correct_answer",
    "--use_cpu",
    "true",
    "--bf16",
    "false",
]
MINE = "import torch\n\nnumber = 3\n\ndef credit(batch):\n    return torch.zeros(batch.completion_ids.shape)\n"


class StubTrainer:
    """A trainer that keeps what it was given."""

    def __init__(self, **given):
        self.given = given


@pytest.fixture(autouse=True)
def token_credit(monkeypatch):
    trainer = f"{__name__}.StubTrainer"
    monkeypatch.setitem(METHODS, TOKEN_CREDIT, Method(label="mine", trainer=trainer, config="trl.GRPOConfig"))


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    """A folder with the module `mine_of_credit`, as the current directory."""
    (tmp_path / "mine_of_credit.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("recipe", [True, False])
def test_the_trainer_of_token_credit_gets_the_function_that_the_path_names(recipe, mine):
    flags = ["--method", TOKEN_CREDIT, "--credit_func", "mine_of_credit.credit"]
    if recipe:
        Path("recipe.yaml").write_text(f"method: {TOKEN_CREDIT}\ncredit_func: mine_of_credit.credit\n")
        flags = ["--config", "recipe.yaml"]
    given = build_trainer(parse([*GIVEN, *flags])).given
    assert given["credit_func"].__module__ == "mine_of_credit"
    assert given["credit_func"].__name__ == "credit"


def test_the_trainers_of_other_methods_get_none(monkeypatch):
    monkeypatch.setitem(METHODS, "stub", METHODS[TOKEN_CREDIT])
    assert "credit_func" not in build_trainer(parse([*GIVEN, "--method", "stub"])).given


@pytest.mark.parametrize("method", [name for name in METHODS if name != TOKEN_CREDIT])
def test_other_methods_refuse_a_credit_function(method, capsys):
    needed = ["--span_reward_funcs", "json_fields"] if method == "span_credit" else []
    assert main([*GIVEN, "--method", method, *needed, "--credit_func", "mine_of_credit.credit"]) == 2
    error = capsys.readouterr().err
    assert f"`credit_func` is 'mine_of_credit.credit', but method '{method}'" in error
    assert "Set `method` to 'token_credit', or remove `credit_func`" in error


@pytest.mark.parametrize("flags", [[], ["--credit_func", "credit"]])
def test_token_credit_refuses_to_go_without_a_dotted_path(flags, capsys):
    assert main([*GIVEN, "--method", TOKEN_CREDIT, *flags]) == 2
    assert "Set `credit_func` to my_package.my_module.my_credit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module.credit", "cannot import function 'no_such_module.credit': No module named 'no_such_module'"),
        (
            "mine_of_credit.kredit",
            "cannot import function 'mine_of_credit.kredit': module 'mine_of_credit' has no",
        ),
        ("mine_of_credit.number", "'mine_of_credit.number' has type int, expected a function"),
        (".credit", "cannot import function '.credit'"),
    ],
)
def test_a_path_that_names_no_function_is_refused_by_name(path, message, mine):
    with pytest.raises(ValueError) as caught:
        load_function(path)
    assert message in str(caught.value)
    for flags in (["--method", TOKEN_CREDIT, "--credit_func", path], ["--reward_funcs", path]):
        with pytest.raises(ValueError) as caught:
            build_trainer(parse([*GIVEN, *flags]))
        assert message in str(caught.value)


@pytest.mark.matrix
def test_a_launched_run_imports_from_its_current_directory(mine):
    """As `python -m tempo_trl.train` starts: a module of the folder is found."""
    flags = ["--config", "sums/tempo", "--reward_funcs", "mine_of_credit.number", "--output_dir", str(mine / "out")]
    started = subprocess.run([sys.executable, "-m", "tempo_trl.train", *flags], capture_output=True, text=True)
    assert "ValueError: 'mine_of_credit.number' has type int" in started.stderr
