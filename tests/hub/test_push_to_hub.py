"""`push_to_hub` in a recipe: real TEMPO runs of the built-in model, pushed to a Hub of the test's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub.errors import HfHubHTTPError
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tempo_trl.demo.task import policy_path
from tempo_trl.launch.train import main
from tempo_trl.runs.redaction import HIDDEN

from ..data.rows import write_file
from .conftest import TOKEN, environment
from .server import Fault, Repo

ROOT = Path(__file__).parents[2]
SMALL = "--num_generations 4 --per_device_train_batch_size 8 --steps_per_generation 1 --eval_strategy no"
SMALL += " --eval_on_start false --log_completions false --push_to_hub true"


def arguments(folder: Path, repo: str, flags: str) -> list[str]:
    return f"--config sums/tempo {SMALL} --output_dir {folder} --hub_model_id {repo} {flags}".split()


@pytest.mark.matrix
def test_a_run_pushes_at_every_save_and_keeps_its_token_to_itself(hub, tmp_path, monkeypatch):
    hub.faults.append(Fault("POST", "/commit/"))  # of the first checkpoint: Trainer says nothing
    recipe = tmp_path / "mine.yaml"
    recipe.write_text((ROOT / "recipes/sums/tempo.yaml").read_text() + f"hub_token: {TOKEN}\n")
    flags = "--hub_strategy every_save --hub_always_push true --save_steps 1 --max_steps 3"
    argv = [*arguments(tmp_path / "run", "me/pushed", flags), "--config", str(recipe)]
    variables = environment(hub, tmp_path, token="") | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tempo_trl.train", *argv]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr

    repo, messages = hub.model("me/pushed"), [message for message, _ in hub.model("me/pushed").commits]
    in_progress = [paths for message, paths in repo.commits if message.startswith("Training in progress, step")]
    assert {"README.md", "model.safetensors", "tempo/run.json", "tempo/curves.png"} <= set(in_progress[0])
    assert messages[-2:] == ["End of training", "tempo_trl: run"]
    for name in ("model.safetensors", "trainer_state.json", "tempo/run.json", "tempo/recipe.yaml"):
        assert repo.files[name] == (tmp_path / "run" / name).read_bytes(), name
    pushed = AutoModelForCausalLM.from_pretrained(tmp_path / "run").state_dict()
    trained = load_file(tmp_path / "run/checkpoint-3/model.safetensors")
    assert all(weight.equal(pushed[name]) for name, weight in trained.items())
    card = repo.files["README.md"].decode()
    assert "Do not use it for clinical decisions" in card
    assert "tempo/curves.png" in card

    record = json.loads(repo.files["tempo/run.json"])
    assert record["config"]["training"]["max_steps"] == 3
    assert record["config"]["script"]["task"] == "sums"
    assert HIDDEN in repo.files["tempo/recipe.yaml"].decode()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != recipe]
    everything = [done.stdout.encode(), done.stderr.encode(), *written, *hub.bodies, *repo.files.values()]
    assert not [content for content in everything if TOKEN.encode() in content]


@pytest.mark.matrix
@pytest.mark.parametrize("peft", [False, True])
def test_a_run_on_data_on_disk_whose_last_push_drops_is_published_all_the_same(peft, client, tmp_path):
    client.faults.append(Fault("POST", "/commit/"))
    (tmp_path / "data").mkdir()
    write_file(tmp_path / "data/train.jsonl", [{"prompt": f"{digit}+1?", "answer": "1"} for digit in range(4)])
    recipe, data = tmp_path / "mine.yaml", f"dataset_name: {tmp_path / 'data'}\nmodel_name_or_path: {policy_path()}\n"
    recipe.write_text(f"extends: sums/tempo\ntask: null\n{data}")
    lora = " --use_peft true --lora_r 4 --lora_target_modules q_proj v_proj --learning_rate 1e-2" if peft else ""
    flags = f"--max_steps 1 --save_strategy no{lora} --config {recipe}"
    assert main(arguments(tmp_path / "run", "me/run", flags)) == 0
    assert client.faults[0].times == 0
    repo, weights = client.model("me/run"), "adapter_model.safetensors" if peft else "model.safetensors"
    assert repo.files[weights] == (tmp_path / "run" / weights).read_bytes()
    card = repo.files["README.md"].decode()
    assert f"library_name: {'peft' if peft else 'transformers'}\n" in card
    if peft:
        loaded = AutoPeftModelForCausalLM.from_pretrained("me/run", cache_dir=tmp_path)
        weights = {name: weight for name, weight in loaded.state_dict().items() if "lora_B" in name}
        assert any(weight.abs().sum() > 0 for weight in weights.values())
        assert "an adapter for" in card


def test_a_run_that_may_not_push_does_not_begin(client, tmp_path):
    client.repos["model", "lab/run"] = Repo(locked=True)
    with pytest.raises(HfHubHTTPError, match="you need the right to write"):
        main(arguments(tmp_path / "run", "lab/run", "--max_steps 1"))
    assert client.sent("POST", "/(commit|preupload)/") == []
    assert not list((tmp_path / "run").glob("checkpoint-*"))
