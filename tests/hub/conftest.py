"""A Hub of the test's own and runs to publish there."""

import json
import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants, hf_api

from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import FOLDER, RECIPE, RECORD

from .server import LocalHub, User

TOKEN = "hf_" + "Tok3nOfTheTestsForThisHub" * 2  # of the shape of a real one
READ_ONLY = "hf_" + "MayReadAndNothingElseHere" * 2
RECORD_OF_A_RUN = {
    "command": ["--config", "math/tempo", "--seed", "7", "--output_dir", "out", "--push_to_hub", "true"],
    "paper": {"title": "Exploiting Tree Structure", "id": "2509.18314", "citation": "@article{tran2025exploiting}"},
    "model": {"hub_id": "Qwen/Qwen3-1.7B", "name": "Qwen/Qwen3-1.7B", "adapter": False},
    "dataset": {"hub_id": "DigitalLearningGmbH/MATH-lighteval", "rows": 7500},
    "versions": {"tempo_trl": "0.1.0", "python": "3.12.1", "trl": "1.16.0"},
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "config": {"training": {"learning_rate": 1e-6, "num_generations": 6, "td_coef": 1.0, "beta": 0.0}},
}
RECORD_OF_A_RUN |= {"method": "TEMPO", "tags": ["trl", "tempo"], "rewards": ["math_reward"], "seed": 7}
RECORD_OF_A_RUN |= {"started": "2026-01-31T12:00:00+00:00", "resumed": False, "earlier": []}
RECORD_OF_A_RUN |= {"processes": 2, "distributed": "MULTI_GPU", "devices": ["NVIDIA H100", "NVIDIA H100"]}
RESULT = {"task": "math", "hub_id": "DigitalLearningGmbH/MATH-lighteval", "split": "test", "metric": "accuracy"}
RESULT |= {"value": 0.87, "interval": [0.861, 0.879], "n": 5000, "k": 1}
RESULT |= {"tempo_trl": "0.1.0", "date": "2026-01-31T12:00:00"}
LOG = [{"step": step, "reward": 0.5 + step / 100, "tempo/added_share": 0.03} for step in range(1, 6)]


@pytest.fixture
def hub():
    """The server, with somebody who may write to `me` and `lab`, and somebody who may read."""
    with LocalHub(**{TOKEN: User("me", organisations=("lab",)), READ_ONLY: User("me", role="read")}) as server:
        yield server


def environment(hub: LocalHub, home: Path, token: str = TOKEN) -> dict[str, str]:
    """Environment of a process whose Hub is the test's."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": token,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def client(hub, monkeypatch, tmp_path):
    """huggingface_hub in this process talks to the test's Hub, and does not wait between attempts."""
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "HF_HUB_OFFLINE": False,
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_DISABLE_XET": True,
        "HF_TOKEN_PATH": str(tmp_path / "no_token"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(hf_api.api, "endpoint", hub.url)  # made when it was imported
    monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)  # made at its first use, and kept
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    yield hub
    close_session()


@pytest.fixture
def finished_run(tmp_path, tiny_model) -> Path:
    """Folder of a run that has ended: the tiny model, and what training leaves beside one."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_model, folder)
    write_atomically(folder / FOLDER / RECORD, json.dumps(RECORD_OF_A_RUN))
    write_atomically(folder / FOLDER / RECIPE, "method: tempo\n")
    write_atomically(folder / "trainer_state.json", json.dumps({"log_history": LOG}))
    write_atomically(folder / "evaluation/math.json", json.dumps(RESULT))
    for other in ("training_args.bin", "checkpoint-5/model.safetensors", "completions/1.parquet", "run.log", ".env"):
        write_atomically(folder / other, b"not for others")
    return folder
