"""The log of a run, as Trainer leaves it."""

import json
import os

import pytest

from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import training_log, unfinished_checkpoint


def test_the_log_of_a_run_that_has_not_ended_is_that_of_its_last_checkpoint(tmp_path):
    for step in (9, 10):
        state = {"log_history": [{"step": step, "reward": 0.5}]}
        write_atomically(tmp_path / f"checkpoint-{step}/trainer_state.json", json.dumps(state))
    assert training_log(tmp_path) == [{"step": 10, "reward": 0.5}]


@pytest.mark.parametrize("content", ['{"log_history": [{"st', None], ids=["half written", "removed"])
def test_a_checkpoint_that_the_run_writes_or_removes_meanwhile_leaves_the_log_of_the_one_before(content, tmp_path):
    write_atomically(tmp_path / "checkpoint-9/trainer_state.json", json.dumps({"log_history": [{"step": 9}]}))
    (tmp_path / "checkpoint-10").mkdir()
    if content:
        write_atomically(tmp_path / "checkpoint-10/trainer_state.json", content)
    assert training_log(tmp_path) == [{"step": 9}]


@pytest.mark.parametrize(("written", "last"), [(3000, 12), (1000, 10)], ids=["trains on", "of another run before"])
def test_the_log_of_a_finished_run_that_trains_on_is_that_of_its_last_checkpoint(written, last, tmp_path):
    for folder, step, time in (("checkpoint-10", 10, 2000), (".", 10, 2000), ("checkpoint-12", 12, written)):
        path = tmp_path / folder / "trainer_state.json"
        write_atomically(path, json.dumps({"log_history": [{"step": step, "reward": 0.5}]}))
        os.utime(path, (time, time))
    assert training_log(tmp_path)[-1]["step"] == last
    assert unfinished_checkpoint(tmp_path) == (tmp_path / "checkpoint-12" if last == 12 else None)
