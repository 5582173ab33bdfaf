"""Methods for agents on TRL's tool loop: what a state is, and what each method credits."""

import re
from types import SimpleNamespace

import pytest
import torch

from tempo_trl import GiGPOConfig, GiGPOTrainer, HGPOTrainer, TEMPOTrainer, TokenCreditTrainer
from tempo_trl.methods.gigpo import gigpo_credit
from tempo_trl.methods.hgpo import hgpo_credit
from tempo_trl.methods.tempo import tempo_credit

from . import credit_functions as functions
from .agents import DOORS, CountingRooms, KeyedRooms, Rooms, rooms_of, scripted, visited_reward
from .launching import run_ranks, torchrun
from .recording import Recording, config, parity, questions, train

OPTIONS = {"reward_funcs": visited_reward, "max_completion_length": 400, "max_steps": 1}


def play(model, folder, cls=TokenCreditTrainer, world=Rooms, doors=DOORS, **overrides):
    keywords = {"environment_factory": world} | overrides.pop("trainer", {})
    rows = questions(conversational=True)
    return train(model, folder, scripted(cls, doors), rows, trainer=keywords, **OPTIONS | overrides)


def watch(model, folder, **overrides):
    watching = functions.Watching()
    trainer = overrides.pop("trainer", {}) | {"credit_func": watching}
    play(model, folder, trainer=trainer, **overrides)
    return watching.batches


def assert_states_are_rooms(batch, before: int | None = None) -> None:
    """States are equal where the rooms are, of which `before` stands for the prompt."""
    size = batch.num_generations
    seen = [[before if room is None else room for room in rooms_of(script)] for script in range(size)]
    for first in range(len(batch.lengths)):
        assert int((batch.observations[first] != 0).sum()) == len(seen[first % size])
        for second in range(first // size * size, first // size * size + size):
            for n, room in enumerate(seen[first % size]):
                for m, other in enumerate(seen[second % size]):
                    alike = bool(batch.observations[first, n] == batch.observations[second, m])
                    assert alike == (room == other)


@pytest.mark.matrix
def test_states_come_back_in_groups_that_are_split_over_ranks(tiny_model, tmp_path):
    options = ("rooms='Rooms'", "max_completion_length=400", "per_device_train_batch_size=6", "max_steps=1")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    for rank in ranks:
        assert rank["error"] is None
        assert_states_are_rooms(SimpleNamespace(**rank["batches"][0]))
    logged = [rank["history"][0] for rank in ranks]
    assert logged[0]["tempo/state_visits"] == logged[1]["tempo/state_visits"]


@pytest.fixture(scope="module")
def rooms(tiny_model, tmp_path_factory):
    """The batches of a run in the rooms, in training and in evaluation."""
    evaluation = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    rows = questions(2, conversational=True)
    return watch(tiny_model, tmp_path_factory.mktemp("rooms"), trainer={"eval_dataset": rows}, **evaluation)


def test_states_come_back_where_the_same_was_observed(rooms):
    assert {batch.training for batch in rooms} == {True, False}
    for batch in rooms:
        assert_states_are_rooms(batch)


def test_an_observation_that_counts_never_comes_back_unless_a_function_strips_it(tiny_model, tmp_path):
    (batch,) = watch(tiny_model, tmp_path / "a", world=CountingRooms)
    keys = batch.observations[:, 1:]
    assert len(keys[keys != 0].unique()) == int((keys != 0).sum())

    def room(text: str) -> str:  # of the answer alone: neither its role nor the marks of the chat template
        return re.fullmatch(r"(room \d) at \d+\.\d", text)[1]

    (batch,) = watch(tiny_model, tmp_path / "b", world=CountingRooms, trainer={"observation_key_func": room})
    assert_states_are_rooms(batch)


def test_an_environments_own_key_comes_first(tiny_model, tmp_path):
    (batch,) = watch(tiny_model, tmp_path, world=KeyedRooms)
    assert_states_are_rooms(batch, before=0)  # to which doors lead back


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda text: 3, ValueError, r"`observation_key_func` failed: .*must return a string, got int"),
        (lambda text: {}[text], RuntimeError, r"`observation_key_func` raised KeyError"),
    ],
)
def test_a_key_function_that_fails_is_named(function, error, message, tiny_model, tmp_path):
    with pytest.raises(error, match=message):
        watch(tiny_model, tmp_path, trainer={"observation_key_func": function})


def test_a_function_of_answers_is_refused_where_nothing_answers(tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"`observation_key_func` reads the answers .* this trainer has none"):
        GiGPOTrainer(tiny_model, parity, config(tmp_path, GiGPOConfig), questions(), observation_key_func=str)


def test_the_log_says_how_often_states_come_back(tiny_model, tmp_path):
    trainer = play(tiny_model, tmp_path, trainer={"credit_func": functions.grpo})
    logged = trainer.state.log_history[0]
    # Per group: 4 + 4 + 3 + 2 turns. Room 1 is seen by all four, room 0 by three, once each but for one: script 1
    # sees room 1 twice. 9 turns follow an observation; 6 of them in room 1 (3 others), 3 in room 0 (2 others).
    turns = [rooms_of(script)[1:] for script in range(4)]
    assert turns == [[1, 0, 1], [1, 0, 1], [1, 0], [1]]
    assert logged["tempo/turns"] == pytest.approx(13 / 4)
    assert logged["tempo/shared_states"] == 2
    assert logged["tempo/state_visits"] == pytest.approx((6 * 3 + 3 * 2) / 9)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("cls", "function"), [(GiGPOTrainer, gigpo_credit), (HGPOTrainer, hgpo_credit), (TEMPOTrainer, tempo_credit)]
)
def test_methods_train_on_their_credit(cls, function, rooms, tiny_model, tmp_path):
    trainer = play(tiny_model, tmp_path, type("Recorded", (Recording, cls), {"method_name": cls.method_name}))
    mask = rooms[0].loss_mask
    torch.testing.assert_close(trainer.batches[0].output["advantages"][mask], function(rooms[0]).advantages[mask])


class RewardingRooms(Rooms):
    def get_reward(self) -> float:
        return float(self.room)


def test_a_second_trainer_of_the_same_lists_has_the_rewards_of_the_first(tiny_model, tmp_path):
    functions_given, classes = [visited_reward], [None]
    keywords = {"environment_factory": RewardingRooms, "reward_processing_classes": classes}
    for _ in range(2):
        args, rows = config(tmp_path, max_completion_length=400), questions(conversational=True)
        trainer = TEMPOTrainer(tiny_model, functions_given, args, rows, **keywords)
        assert trainer.reward_func_names == ["visited_reward", "RewardingRooms"]
        assert (functions_given, classes) == ([visited_reward], [None])


def test_tools_without_a_maximum_length_are_refused(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="`max_completion_length` is None, expected a number with tools"):
        play(tiny_model, tmp_path, TEMPOTrainer, max_completion_length=None)


class Judged:
    """An environment without tools."""

    def reset(self, **columns): ...

    def get_reward(self) -> float:
        return 1.0


def test_an_environment_without_tools_needs_no_maximum_length(tiny_model, tmp_path):
    args, rows = config(tmp_path, max_completion_length=None), questions(conversational=True)
    rows = rows.add_column("environments", ["kitchen"] * 8)  # TRL gives it to `reset`, and functions the environments
    trainer = TEMPOTrainer(tiny_model, None, args, rows, environment_factory=Judged)
    assert trainer.reward_func_names == ["Judged"]


GIGPO = {"step_advantage_weight": 0.3, "gamma": 0.5, "state_history": 1, "scale_rewards": "none"}
HGPO = {"state_history": 1, "history_weight": 2.0, "gamma": 0.5, "scale_rewards": "none"}


@pytest.mark.parametrize(
    ("cls", "function", "options"), [(GiGPOTrainer, gigpo_credit, GIGPO), (HGPOTrainer, hgpo_credit, HGPO)]
)
def test_methods_pass_their_options_to_their_credit(cls, function, options, tiny_model, tmp_path):
    (batch,) = watch(tiny_model, tmp_path / "seen", scale_rewards="none")
    expected = function(batch, *options.values()).advantages[batch.loss_mask]
    for name, default in zip(options, function.__defaults__, strict=True):  # each of them changes the credit
        others = function(batch, *(options | {name: default}).values()).advantages[batch.loss_mask]
        assert not torch.allclose(others, expected), name
    recorded = type("Recorded", (Recording, cls), {"method_name": cls.method_name})
    trainer = play(tiny_model, tmp_path / "run", recorded, **options)
    torch.testing.assert_close(trainer.batches[0].output["advantages"][batch.loss_mask], expected)
