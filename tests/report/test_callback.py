"""The trackers get the picture of a tree, offline."""

import pytest

from tempo_trl.report import callback
from tests.trainers.recording import share_of_threes, train

OPTIONS = {"reward_funcs": share_of_threes, "log_trees_steps": 1, "max_steps": 2}


def test_wandb_gets_a_picture_of_each_record(tiny_model, tmp_path, monkeypatch):
    import wandb

    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_SILENT", "true")):
        monkeypatch.setenv(name, value)
    train(tiny_model, tmp_path / "run", report_to="wandb", **OPTIONS)
    media = next(tmp_path.glob("wandb/offline-run-*/files/media"))
    wandb.finish()
    assert len(list(media.glob("images/tempo/tree_*.png"))) == 2


def test_without_a_tracker_nothing_is_drawn(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(callback, "_picture", lambda groups: pytest.fail("it draws"))
    train(tiny_model, tmp_path, report_to="none", **OPTIONS)
