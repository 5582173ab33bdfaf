"""Publishing a run to a Hub of the test's own, with huggingface_hub's real client."""

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM, AutoTokenizer

from tempo_trl.hub.publish import publish
from tempo_trl.launch import cli

from .conftest import READ_ONLY, TOKEN, environment
from .server import Fault, Repo

pytestmark = pytest.mark.matrix

REPO = "me/tiny-tempo"
MODEL = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
ABOUT = ["README.md", "trainer_state.json", "tempo/run.json", "tempo/recipe.yaml", "tempo/curves.png"]
PUBLISHED = {*MODEL, "chat_template.jinja", *ABOUT, "evaluation/math.json"}


def published(*argv: str) -> int:
    """Status of the verb."""
    return cli.main(["publish", *argv])


def test_what_comes_back_is_bit_for_bit_what_was_published(client, finished_run, tmp_path):
    assert published(str(finished_run), "--repo", REPO, "--private") == 0
    assert client.model(REPO).private
    assert set(client.model(REPO).files) == PUBLISHED  # no checkpoint, table, pickle, log or .env
    assert len(client.model(REPO).commits) == 1
    folder = snapshot_download(REPO, local_dir=tmp_path / "back")
    on_disk = [path for path in sorted(PUBLISHED) if (finished_run / path).is_file()]
    assert filecmp.cmpfiles(finished_run, folder, on_disk, shallow=False)[0] == on_disk

    sent, own = (AutoModelForCausalLM.from_pretrained(name, cache_dir=tmp_path) for name in (REPO, finished_run))
    assert all(weight.equal(own.state_dict()[name]) for name, weight in sent.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained(REPO, cache_dir=tmp_path)
    assert tokenizer("7+5").input_ids == AutoTokenizer.from_pretrained(finished_run)("7+5").input_ids


def test_published_again_nothing_is_sent_and_what_is_missing_is(client, finished_run):
    publish(finished_run, REPO)
    sent = len(client.sent("PUT", "/lfs/"))
    publish(finished_run, REPO)
    assert (len(client.model(REPO).commits), len(client.sent("PUT", "/lfs/"))) == (1, sent)
    del client.model(REPO).files["tempo/recipe.yaml"]
    publish(finished_run, REPO)
    assert client.model(REPO).commits[-1][1] == ["tempo/recipe.yaml"]


def test_the_same_command_sends_what_a_dropped_connection_left_out(client, finished_run, capsys):
    client.faults.append(Fault("POST", "/commit/", times=99))
    assert published(str(finished_run), "--repo", REPO) == 1
    assert "The same command uploads what is missing." in capsys.readouterr().err
    client.faults.clear()
    uploads = len(client.sent("PUT", "/lfs/"))
    assert published(str(finished_run), "--repo", REPO) == 0
    assert set(client.model(REPO).files) == PUBLISHED
    assert len(client.sent("PUT", "/lfs/")) == uploads  # weights had arrived the first time


@pytest.mark.parametrize(
    ("repo", "existing", "token", "flags", "status", "message"),
    [
        ("tiny", {}, TOKEN, "", 2, "'tiny' is not a repository name. Use user/name"),
        (REPO, {}, "hf_wrong", "", 1, "401"),
        (REPO, {}, READ_ONLY, "", 1, "You don't have the rights to create a model under this namespace"),
        ("you/tiny", {"model": Repo()}, TOKEN, "", 1, "you need the right to write"),
        ("lab/tiny", {"model": Repo(locked=True)}, TOKEN, "", 1, "you need the right to write"),
        (REPO, {"model": Repo()}, TOKEN, "--private", 2, f"{REPO} is public, but --private was given"),
    ],
)
def test_what_cannot_be_published_is_refused_before_anything_is_sent(
    repo, existing, token, flags, status, message, client, finished_run, monkeypatch, capsys
):
    monkeypatch.setenv("HF_TOKEN", token)
    client.repos.update({(kind, repo): found for kind, found in existing.items()})
    assert published(str(finished_run), "--repo", repo, *flags.split()) == status
    assert message in capsys.readouterr().err
    assert client.sent("POST", "/(commit|preupload)/") + client.sent("PUT", "") == []


def test_the_model_of_an_earlier_run_in_the_folder_is_refused(client, finished_run, capsys):
    """A run that ends before it saves leaves its record beside the weights of the run before."""
    record = json.loads((finished_run / "tempo/run.json").read_text())
    (finished_run / "tempo/run.json").write_text(json.dumps(record | {"started": "2999-01-01T00:00:00+00:00"}))
    assert published(str(finished_run), "--repo", REPO) == 2
    assert "model.safetensors is of an earlier run, saved at" in capsys.readouterr().err
    (finished_run / "tempo/run.json").write_text(json.dumps(record))
    (finished_run / "adapter_model.safetensors").touch()
    os.utime(finished_run / "adapter_model.safetensors", (1e9, 1e9))
    assert published(str(finished_run), "--repo", REPO) == 2
    assert "adapter_model.safetensors is of an earlier run, saved at 2001" in capsys.readouterr().err
    assert client.requests == []


@pytest.mark.parametrize("secret", [TOKEN, "hf_" + "SomebodyElsesTokenOfTheHub" * 2, "the key of a tracker"])
def test_a_file_with_a_secret_is_refused(secret, client, finished_run, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "the key of a tracker")
    (finished_run / "notes.txt").write_text(f"export TOKEN={secret}")
    assert published(str(finished_run), "--repo", REPO) == 2
    error = capsys.readouterr().err
    assert "notes.txt contains a token" in error
    assert secret not in error
    assert client.requests == []


def test_a_dry_run_asks_nobody_and_shows_the_card_and_the_files(client, finished_run, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    assert published(str(finished_run), "--repo", REPO, "--dry-run") == 0
    printed = capsys.readouterr().out
    assert all(f"  {path}\n" in printed for path in PUBLISHED)
    assert "# Model Card for tiny-tempo" in printed
    assert client.requests == []


def test_the_example_trains_and_publishes(hub, tmp_path):
    script = Path(__file__).parents[2] / "examples/publish.py"
    command = [sys.executable, str(script), "me/example"]
    variables = environment(hub, tmp_path) | {"TOKENIZERS_PARALLELISM": "false", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    repo = hub.model("me/example")
    assert repo.private
    output = tmp_path / "tempo_demo/publish"
    assert repo.files["model.safetensors"] == (output / "model.safetensors").read_bytes()
    record = json.loads(repo.files["tempo/run.json"])
    assert (record["method"], record["rewards"], record["dataset"]["rows"]) == ("TEMPO", ["correct_answer"], 1000)
    card = repo.files["README.md"].decode()
    assert "The model was not evaluated." in card
    assert "examples/publish.py me/example" in card
