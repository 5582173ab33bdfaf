"""The paper's experiment in small, as a reader would type it: train, evaluate, compare, publish, load back."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard, snapshot_download
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tempo_trl.launch import cli, train

from ..data.rows import HUB_ROWS, write_file

pytestmark = pytest.mark.matrix

SMALL = (
    "--use_cpu true --bf16 false --use_vllm false --per_device_train_batch_size 12 --gradient_accumulation_steps 1 "
    "--steps_per_generation 1 --max_completion_length 12 --top_k 3 --max_steps 2 --logging_steps 1 "
    "--save_strategy no --learning_rate 1e-2 --reward_weights 1.0 1.0 "
    "--reward_funcs choice_reward tests.trainers.recording.parity"
)
METHODS = ("tempo", "grpo")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """A folder with rows of MedQA in the Hub's columns."""
    folder = tmp_path_factory.mktemp("rows")
    [row] = HUB_ROWS["medqa"]
    write_file(folder / "medqa.jsonl", [row | {"question": f"Case {case}. Which one is it?"} for case in range(8)])
    return folder


@pytest.fixture(scope="module")
def runs(rows, tiny_model, tmp_path_factory) -> dict[str, Path]:
    """The folder of a run of each method, trained from the paper's recipe with a tiny model."""
    folders = {method: tmp_path_factory.mktemp("runs") / method for method in METHODS}
    for method, folder in folders.items():
        flags = ["--config", f"qwen3-1.7b/medqa/{method}", "--train_file", str(rows / "medqa.jsonl")]
        model = ["--model_name_or_path", tiny_model, *SMALL.split()]
        assert train.main([*flags, *model, "--output_dir", str(folder)]) == 0
    return folders


def test_the_whole_way_from_rows_to_the_hub_and_back(runs, rows, client, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    questions = ["--tasks", "medqa", "--data_dir", str(rows), "--n", "2", "--max_tokens", "12", "--top_k", "3"]
    for folder in runs.values():
        assert cli.main(["evaluate", "--model", str(folder), *questions]) == 0
    results = {method: json.loads((folder / "evaluation/medqa.json").read_text()) for method, folder in runs.items()}
    assert {entry["metric"] for entry in results["tempo"]} >= {"accuracy", "avg@2", "pass@2", "maj@2"}

    capsys.readouterr()
    assert cli.main(["compare", *map(str, runs.values()), "-o", str(tmp_path / "compared")]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in ("TEMPO", "GRPO", "medqa"))
    assert json.loads((tmp_path / "compared/compare.json").read_text())

    assert cli.main(["publish", str(runs["tempo"]), "--repo", "me/tempo-medqa"]) == 0
    back = Path(snapshot_download("me/tempo-medqa", local_dir=tmp_path / "back"))
    card = ModelCard.load(back / "README.md")
    assert {"trl", "tempo"} <= set(card.data.tags)
    assert "medqa" in card.text
    assert json.loads((back / "evaluation/medqa.json").read_text()) == results["tempo"]
    assert not (back / ".eval_results").exists()  # numbers on rows of one's own are not the Hub benchmark's

    published = AutoModelForCausalLM.from_pretrained(back).state_dict()
    for name, value in load_file(runs["tempo"] / "model.safetensors").items():
        assert torch.equal(published[name], value), name
