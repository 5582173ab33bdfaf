"""Log-probabilities leave the model in float32, whatever engine holds it."""

import json
import subprocess
import sys

import pytest

from tempo_trl import TEMPOTrainer
from tempo_trl.trainers import run

from .launching import REPOSITORY
from .recording import train


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_under_fsdp2_in_bfloat16_log_probabilities_are_not_rounded():
    """That accelerate's policy rounds them is why this is here: where it no longer does, the override can go."""
    command = [sys.executable, "-m", "tests.trainers.fsdp2_outputs"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["theirs"], said["ours"]) == ("torch.bfloat16", "torch.float32")
    assert said["rounding"] > 1e-4


def test_a_trainer_sees_to_it_before_it_prepares_a_model(tiny_model, tmp_path, monkeypatch):
    order = []
    plain = TEMPOTrainer.create_accelerator_and_postprocess

    def create(self):
        plain(self)
        prepare = self.accelerator.prepare_model
        self.accelerator.prepare_model = lambda *args, **keywords: (
            order.append("prepared") or prepare(*args, **keywords)
        )

    monkeypatch.setattr(TEMPOTrainer, "create_accelerator_and_postprocess", create)
    monkeypatch.setattr(run, "keep_outputs_in_float32", lambda accelerator: order.append("float32"))
    train(tiny_model, tmp_path, TEMPOTrainer, beta=0.1, max_steps=1)
    assert order[0] == "float32"
    assert order[1:] == ["prepared"] * 2  # the reference model, and the policy
