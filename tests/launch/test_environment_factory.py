"""`environment_factory` of a recipe or a flag: loaded for every method, and refused if it names nothing to call."""

from pathlib import Path

import pytest

from tempo_trl.data.rooms import Rooms
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.train import build_trainer
from tempo_trl.methods import METHODS, Method

FLAGS = ["--task", "rooms", "--reward_funcs", "tempo_trl.data.rooms.room_reward", "--use_cpu", "true"]
FLAGS += ["--bf16", "false", "--method", "stub"]
ROOMS = ["--environment_factory", "tempo_trl.data.rooms.Rooms"]


class StubTrainer:
    """A trainer that keeps what it was given."""

    def __init__(self, **given):
        self.given = given


@pytest.fixture(autouse=True)
def stub(monkeypatch):
    trainer = f"{__name__}.StubTrainer"
    monkeypatch.setitem(METHODS, "stub", Method(label="stub", trainer=trainer, config="trl.GRPOConfig"))


@pytest.mark.parametrize("recipe", [True, False])
def test_the_trainer_gets_the_class_that_the_path_names(recipe, tmp_path):
    flags = ROOMS
    if recipe:
        path = tmp_path / "recipe.yaml"
        path.write_text("environment_factory: tempo_trl.data.rooms.Rooms\n")
        flags = ["--config", str(path)]
    given = build_trainer(parse([*FLAGS, *flags])).given
    assert given["environment_factory"] is Rooms
    assert Path(given["model"]).name == "rooms_start"
    assert given["train_dataset"].column_names == ["prompt", "start", "key", "goal", "seed"]


def test_a_run_without_one_gets_none():
    assert "environment_factory" not in build_trainer(parse(FLAGS)).given


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Rooms", "Expected package.module.function"),
        ("tempo_trl.data.rooms.Halls", "has no attribute 'Halls'"),
        ("tempo_trl.data.rooms.TURNS", "'tempo_trl.data.rooms.TURNS' has type int, expected a function"),
    ],
)
def test_a_path_that_names_nothing_to_call_is_refused(path, message):
    with pytest.raises(ValueError, match=message):
        build_trainer(parse([*FLAGS, "--environment_factory", path]))
