"""The trackers get the picture of a tree and the table of branch tokens, offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.report import callback
from tempo_trl.report.credit_terms import terms_of
from tempo_trl.report.group import groups_of
from tempo_trl.runs.trees import read_trees
from tests.trainers.recording import share_of_threes, train

from .recorded import HOSTILE, hand_worked_run, record, rows_of

TEMPO = terms_of("tempo")
REPOSITORY = Path(__file__).parents[2]
OPTIONS = {"reward_funcs": share_of_threes, "log_trees_steps": 1, "max_steps": 2}


def test_the_table_is_that_of_the_hand_worked_group(tmp_path):
    groups = groups_of(read_trees(hand_worked_run(tmp_path), [0]), TEMPO)
    table = callback.branch_token_table(groups[:1])
    scale = np.std([1, 0, 0, 1], ddof=1) + 1e-4
    by_token = {row[0]: row for row in table}
    assert by_token["2"][1] == pytest.approx(3 * (1 / 6) / scale, abs=1e-3)
    assert by_token["8"][1:5] == [pytest.approx(2 / 3 / scale, abs=1e-3), 0, 1, 2]
    assert by_token["8"][5:] == [pytest.approx(-2 / 3 / scale, abs=1e-3), "7+5=2;2-3=[8]#8"]
    assert [row[1] for row in table] == sorted((row[1] for row in table), reverse=True)


def test_the_headings_are_in_the_terms_of_the_method():
    assert callback.columns(TEMPO)[1:4] == ["sum |TD|", "V rose", "V fell"]
    own = terms_of("ppo", "PPO")
    assert callback.columns(own)[1:4] == ["sum |added|", "more than GRPO", "less than GRPO"]


def test_what_a_model_wrote_is_no_markup_in_tensorboard(tmp_path):
    groups = groups_of(read_trees(record(tmp_path, [rows_of(HOSTILE, [0.0, 1.0] * 4)])), TEMPO)
    text = callback._markdown(callback.columns(TEMPO), callback.branch_token_table(groups))
    assert "<" not in text
    assert {line.count("|") for line in text.splitlines()} == {len(callback.columns(TEMPO)) + 1}


def test_tensorboard_gets_a_picture_and_a_table_of_each_record(tiny_model, tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny_model, tmp_path, report_to="tensorboard", **OPTIONS)
    events = EventAccumulator(str(tmp_path / "runs" / "trees"))
    events.Reload()
    assert [image.step for image in events.Images(callback.PICTURE)] == [0, 1]
    assert events.Images(callback.PICTURE)[0].encoded_image_string.startswith(b"\x89PNG")
    tables = events.Tensors(f"{callback.TABLE}/text_summary")
    assert "sum &#124;TD&#124;" in tables[0].tensor_proto.string_val[0].decode()


def test_wandb_gets_a_picture_and_a_table_of_each_record(tiny_model, tmp_path, monkeypatch):
    import wandb

    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_SILENT", "true")):
        monkeypatch.setenv(name, value)
    train(tiny_model, tmp_path / "run", report_to="wandb", **OPTIONS)
    media = next(tmp_path.glob("wandb/offline-run-*/files/media"))
    wandb.finish()
    assert len(list(media.glob("images/tempo/tree_*.png"))) == 2
    tables = sorted(media.glob("table/tempo/branch_token_table_*.table.json"))
    assert len(tables) == 2
    assert json.loads(tables[0].read_text())["columns"] == callback.columns(TEMPO)


TRACKIO = """
import sys, trackio
from tempo_trl.report import callback
from types import SimpleNamespace
trackio.init(project="p", name="r", embed=False, auto_log_gpu=False, auto_log_cpu=False)
args = SimpleNamespace(report_to=["trackio"], output_dir=sys.argv[1])
callback.TreeCallback().on_log(args, SimpleNamespace(is_world_process_zero=True, global_step=5), None)
trackio.finish()
for run in trackio.Api().runs("p"):
    print([sorted(entry) for entry in trackio.SQLiteStorage.get_logs("p", run.name)])
"""


@pytest.mark.matrix
def test_trackio_gets_a_picture_and_a_table_of_the_latest_record(tmp_path):
    """In a process of its own: trackio asks for its folder once, when it is imported."""
    pytest.importorskip("trackio", reason="trackio is not installed: it wants an older pillow than others do")
    folder = hand_worked_run(tmp_path / "run")
    command = [sys.executable, "-c", TRACKIO, str(folder)]
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio")}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, cwd=REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert callback.PICTURE in result.stdout
    assert callback.TABLE in result.stdout
    assert len(list((tmp_path / "trackio").glob("media/p/r/*/*.png"))) == 1


def test_without_a_tracker_nothing_is_drawn(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_picture", lambda groups: pytest.fail("it draws"))
    train(tiny_model, tmp_path, report_to="none", **OPTIONS)
