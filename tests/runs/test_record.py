"""The record of a run: whole, true and free of secrets."""

import inspect
import json
import subprocess
from types import SimpleNamespace

import pytest
from huggingface_hub import get_token
from trl import GRPOTrainer

import tempo_trl
from tempo_trl import TEMPOConfig
from tempo_trl.methods.tempo import TEMPOTrainer
from tempo_trl.runs import files
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import commit_of, read_record, record_run
from tempo_trl.runs.redaction import HIDDEN, hide, move_token_to_environment, secrets_in, without_secrets

from ..hub.conftest import TOKEN


def trainer(folder, main_process: bool = True, **settings) -> SimpleNamespace:
    """What `record_run` reads of a trainer."""
    return SimpleNamespace(
        args=TEMPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", **settings),
        accelerator=SimpleNamespace(num_processes=1, distributed_type=SimpleNamespace(value="NO")),
        model=SimpleNamespace(config=SimpleNamespace(name_or_path="some/model")),
        train_dataset=[{}] * 5,
        reward_func_names=["math_reward"],
        is_world_process_zero=lambda: main_process,
        **{name: getattr(TEMPOTrainer, name) for name in ("_name", "_tag_names", "_paper")},
    )


def test_the_record_names_what_the_run_was_made_of(tmp_path):
    record_run(
        trainer(tmp_path, seed=3), ["--config", "x"], dataset="some/data", settings={"script": {"task": "math"}}
    )
    record = read_record(tmp_path)
    assert (record["method"], record["seed"], record["command"]) == ("TEMPO", 3, ["--config", "x"])
    assert record["model"] == {"hub_id": "some/model", "name": "some/model", "adapter": False}
    assert record["dataset"] == {"hub_id": "some/data", "rows": 5}
    assert record["config"]["training"]["td_coef"] == 1.0
    assert record["config"]["script"] == {"task": "math"}
    assert record["versions"]["tempo_trl"] == tempo_trl.__version__
    assert record["versions"]["trl"].startswith("1.16")


@pytest.mark.parametrize("trainer_class", [TEMPOTrainer, GRPOTrainer])
def test_what_we_read_of_a_trainer_and_tell_it_is_still_there(trainer_class):
    assert isinstance(trainer_class._name, str)
    assert "trl" in trainer_class._tag_names
    assert {"title", "id", "citation"} <= set(trainer_class._paper)
    assert "_internal_call" in inspect.signature(trainer_class.save_model).parameters  # or the end of a run pushes


def test_other_processes_write_nothing(tmp_path):
    record_run(trainer(tmp_path / "run", main_process=False))
    assert not (tmp_path / "run/tempo").exists()


def test_local_folders_are_no_names_on_the_hub_unless_the_name_of_what_they_hold_is_given(tmp_path):
    local, known = trainer(tmp_path), {"hub_id": "some/model", "weights": "a package, in 4 bits"}
    local.model.config.name_or_path = str(tmp_path)
    unknown = {"hub_id": None, "name": tmp_path.name, "adapter": False}
    for given in ({}, known):
        record_run(local, dataset=str(tmp_path), base_model=given)
        assert read_record(tmp_path)["model"] == unknown | given
    assert read_record(tmp_path)["dataset"]["hub_id"] is None


def test_a_resumed_run_keeps_the_records_of_its_parts_and_a_new_one_does_not(tmp_path):
    for command, resumed in (("first", False), ("second", True), ("third", True)):
        record_run(trainer(tmp_path), [command], resumed=resumed)
    record = read_record(tmp_path)
    assert [part["command"] for part in (*record["earlier"], record)] == [["first"], ["second"], ["third"]]
    record_run(trainer(tmp_path), ["anew"])
    assert read_record(tmp_path)["earlier"] == []


@pytest.mark.parametrize("where", ["argument", "recipe", "settings", "environment", "flag"])
def test_no_secret_is_recorded(where, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    secret = "s3cret of an unusual shape"
    if where == "environment":
        monkeypatch.setenv("WANDB_API_KEY", secret)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"seed: 1\nvllm_key: {secret}\nother: {TOKEN}\n")
    settings = {"model": {"model_init_kwargs": {"api_key": secret}}} if where == "settings" else {}
    flagged = trainer(tmp_path / "run", hub_token=secret if where in ("argument", "recipe", "flag") else None)
    record_run(flagged, ["--hub_token", secret], recipe, settings=settings)
    for name in ("run.json", "recipe.yaml"):
        written = (tmp_path / "run/tempo" / name).read_text()
        assert secret not in written
        assert TOKEN not in written
        assert HIDDEN in written
    assert read_record(tmp_path / "run")["config"]["training"]["hub_token"] in (None, "<HUB_TOKEN>")


@pytest.mark.parametrize("owner", ["alice", "josé"])
def test_the_home_folder_and_its_owner_are_not_named(owner, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home" / owner))
    record_run(trainer(tmp_path), ["--train_file", str(tmp_path / "home" / owner / "rows.jsonl")])
    assert read_record(tmp_path)["command"] == ["--train_file", "~/rows.jsonl"]


def test_a_secret_that_json_escapes_is_hidden_and_found_and_words_of_a_vocabulary_are_none():
    secret = 'päss"word\\'
    assert json.loads(hide(json.dumps({"command": [f"url={secret}"]}), {secret})) == {"command": [f"url={HIDDEN}"]}
    assert secrets_in(json.dumps(secret).encode(), {secret})
    kept = {"eos_token": "<|im_end|>", "pad_token_id": 3, "max_tokens": 5, "keys": ["a"], "forced_tokens": "keep"}
    env = {"LANGFUSE_SECRET_KEY": "x", "AZURE_OPENAI_KEY": "x", "PGPASSWORD": "x", "MYSQL_PWD": "x", "PWD": "/here"}
    secrets = {"hub_token": "x", "secret_key": "x", "env": env}
    assert without_secrets(kept | secrets) == kept | {"env": {"PWD": "/here"}}


def test_passwords_in_addresses_and_secrets_in_lists_are_hidden_and_found():
    address = "https://bot:Sup3rSecret@vllm.example.com:8000/v1"
    assert hide(f'"{address}"', set()) == f'"https://{HIDDEN}@vllm.example.com:8000/v1"'
    assert secrets_in(address.encode(), set())
    assert not secrets_in(b"http://localhost:8000/a@b and git@github.com:a/b", set())
    assert without_secrets({"servers": [{"api_key": "x", "port": 1}]}) == {"servers": [{"port": 1}]}


def test_the_token_moves_to_where_the_client_looks_for_it(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "old")
    args = SimpleNamespace(hub_token="new")
    move_token_to_environment(args)
    assert args.hub_token is None
    assert get_token() == "new"


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_atomically(path, "old")

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def git(folder, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.matrix
def test_the_commit_is_the_package_s_own_and_changes_are_told(tmp_path):
    package = tmp_path / "package"
    write_atomically(package / "__init__.py", "")
    assert commit_of(package) is None
    git(tmp_path, "init")
    assert commit_of(package) is None  # lies in a repository that does not know it, as in a virtual environment
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = {"commit": git(tmp_path, "rev-parse", "HEAD").strip(), "dirty": False}
    assert commit_of(package) == clean
    (package / "__init__.py").write_text("changed = True")
    assert commit_of(package) == clean | {"dirty": True}


@pytest.mark.parametrize(("content", "said"), [("{", "Expecting"), (b"\xff", ".utf-8. codec")])
def test_a_torn_record_is_named(content, said, tmp_path):
    write_atomically(tmp_path / "tempo/run.json", content)
    with pytest.raises(ValueError, match=f"run.json is not valid JSON: .*{said}.* Restore it, or train again"):
        read_record(tmp_path)
