"""The trackers get the picture of a tree and the table of branch tokens, offline."""

import json
from pathlib import Path

import pytest

from tempo_trl.report import callback
from tempo_trl.report.credit_terms import terms_of
from tempo_trl.report.group import groups_of
from tempo_trl.runs.trees import read_trees
from tests.trainers.recording import share_of_threes, train

from .recorded import HOSTILE, record, rows_of

TEMPO = terms_of("tempo")
REPOSITORY = Path(__file__).parents[2]
OPTIONS = {"reward_funcs": share_of_threes, "log_trees_steps": 1, "max_steps": 2}


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


def test_without_a_tracker_nothing_is_drawn(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_picture", lambda groups: pytest.fail("it draws"))
    train(tiny_model, tmp_path, report_to="none", **OPTIONS)
