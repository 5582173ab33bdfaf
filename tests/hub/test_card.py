"""The model card: what it says follows from what the run left, and nothing else."""

import copy
import json
import os
import time
import warnings
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from trl import GRPOTrainer

from tempo_trl.hub.card import CURVES, commands, write_card
from tempo_trl.hub.publish import files_to_publish
from tempo_trl.launch.arguments import launch_arguments
from tempo_trl.runs.curves import curves_png
from tempo_trl.runs.files import fingerprint, write_atomically
from tempo_trl.runs.results import read_results

from .conftest import LOG, RECORD_OF_A_RUN, RESULT

PAPER_OF_GRPO = GRPOTrainer._paper["id"]
PNG = b"\x89PNG\r\n"


def run(folder: Path, record: dict | None = None, log: list[dict] | None = LOG, results=None, **files: bytes) -> Path:
    write_atomically(folder / "tempo/run.json", json.dumps(RECORD_OF_A_RUN if record is None else record))
    if log is not None:
        write_atomically(folder / "trainer_state.json", json.dumps({"log_history": log}))
    if results is not None:
        write_atomically(folder / "evaluation/results.json", json.dumps(results))
    return folder


def card(folder: Path) -> str:
    write_card(folder, "me/tiny", read_results(folder))
    return (folder / "README.md").read_text()


def changed(**values) -> dict:
    return copy.deepcopy(RECORD_OF_A_RUN) | values


def test_the_card_says_what_was_trained_on_what(tmp_path):
    text = card(run(tmp_path))
    metadata = ModelCard(text).data
    assert metadata.tags == ["trl", "tempo"]
    assert (metadata.base_model, metadata.base_model_relation) == ("Qwen/Qwen3-1.7B", "finetune")
    assert metadata.datasets == ["DigitalLearningGmbH/MATH-lighteval"]
    assert metadata.library_name == "transformers"
    for said in ("**TEMPO**", "7,500 prompts", "| seed | 7 |", "commit 0123456789ab", "0.510, 0.550", "tran2025"):
        assert said in text
    assert "Do not use it for clinical decisions" in text
    assert "earlier part" not in text


@pytest.mark.parametrize(("method", "said"), [("GRPO", "**GRPO**\n(["), ("SpanCredit", "**SpanCredit** on GRPO\n([")])
def test_a_method_without_a_paper_of_its_own_is_said_to_be_on_grpo(method, said, tmp_path):
    paper = {"title": "DeepSeekMath", "id": PAPER_OF_GRPO, "citation": "@article{shao2024}"}
    assert said in card(run(tmp_path, changed(method=method, paper=paper)))


def test_a_paper_without_a_page_is_named_and_not_linked(tmp_path):
    text = card(run(tmp_path, changed(paper={"title": "A Text", "citation": "@misc{a}"})))
    assert "**TEMPO**\n(A Text)\non " in text and "papers/)" not in text


def test_every_result_is_in_the_card_with_its_interval(tmp_path):
    other = RESULT | {
        "task": "gsm8k",
        "metric": "pass@4",
        "value": 0.5,
        "interval": None,
        "n": 100,
        "k": 4,
        "hub_id": None,
    }
    folder = run(tmp_path, results=[RESULT, other])
    text = card(folder)
    assert "| math | DigitalLearningGmbH/MATH-lighteval | test | accuracy | 87.0 % (86.1 to 87.9) | 5000 | 1 |" in text
    assert "| gsm8k | local | test | pass@4 | 50.0 % | 100 | 4 |" in text
    assert [result.dataset_name for result in ModelCard(text).data.eval_results] == ["math"]


@pytest.mark.parametrize(("date", "kept"), [("2026-01-31", True), (None, True), ("2026-01-30T23:59:59+00:00", False)])
def test_results_from_before_the_last_start_of_a_run_are_not_those_of_its_model(date, kept, tmp_path):
    # The record says 2026-01-31T12:00:00.
    publishes_the_result_if(kept, RESULT | {"date": date}, run(tmp_path))


@pytest.mark.parametrize(
    ("weights", "kept"),
    [
        ("the run's", True),
        ("base+the run's", True),
        ("me/tiny@0123", True),
        ("0" * 64, False),
        ("Qwen/Qwen3-1.7B", False),
    ],
)
def test_results_of_another_model_are_not_those_of_the_run(weights, kept, tmp_path):
    folder = run(tmp_path)
    write_atomically(folder / "model.safetensors", b"weights")
    publishes_the_result_if(kept, RESULT | {"weights": weights.replace("the run's", fingerprint(folder))}, folder)


def test_a_result_of_the_run_s_weights_is_its_own_whenever_the_run_has_started_again(tmp_path):
    folder = run(tmp_path)
    write_atomically(folder / "model.safetensors", b"weights")
    publishes_the_result_if(True, RESULT | {"weights": fingerprint(folder), "date": "2026-01-30"}, folder)


def publishes_the_result_if(kept: bool, result: dict, folder: Path) -> None:
    """Hold what is published of a run with a result, and the warning if the result is not."""
    write_atomically(folder / "evaluation/results.json", json.dumps([result]))
    write_atomically(folder / "model.safetensors", b"weights")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        files = files_to_publish(folder, "me/tiny")
    assert ("evaluation/results.json" in files) == kept
    assert ("The model was not evaluated." in (folder / "README.md").read_text()) != kept
    assert len(caught) == (not kept)  # said once
    assert all("left out: evaluation/results.json is " in str(each.message) for each in caught)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"task": "math", "value": 0.5}, "missing 2 required positional arguments: 'metric' and 'n'"),
        ([RESULT | {"value": "87%"}], "got '87%', expected a number"),
        (["math"], "got a str as a result, expected a mapping"),
    ],
)
def test_results_that_cannot_be_read_are_refused(results, message, tmp_path):
    with pytest.raises(ValueError) as caught:
        card(run(tmp_path, results=results))
    assert message in str(caught.value)
    assert "results.json" in str(caught.value)


def test_what_is_not_on_the_hub_is_not_linked(tmp_path):
    local = changed(model={"hub_id": None, "name": "mine", "adapter": False}, dataset={"hub_id": None, "rows": None})
    text = card(run(tmp_path, local))
    metadata = ModelCard(text).data
    assert metadata.base_model is metadata.datasets is None
    assert "a local model (`mine`)" in text
    assert "data that are not on the Hub" in text


def test_the_last_command_is_one_that_the_launcher_takes_with_as_many_processes(tmp_path):
    command = (
        "--config sums/tempo --max_steps 3 --output_dir x --hub-token=y --reward_funcs a.b c.d --push_to_hub true"
    )
    record = changed(command=command.split())
    install, train = commands(record)
    assert install.startswith(f"git checkout {record['git']['commit']}")
    assert train == "tempo-trl train --config sums/tempo --max_steps 3 --reward_funcs a.b c.d --num_processes 2"
    assert launch_arguments(train.split()[2:]).num_processes == 2
    text = card(run(tmp_path, record))
    assert f"\n{train}\n" in text
    assert "In a clone of tempo_trl:" in text


def test_the_model_of_a_run_that_trains_on_is_not_published_with_its_record(tmp_path):
    write_atomically(run(tmp_path) / "model.safetensors", b"weights of step 5")
    state = tmp_path / "checkpoint-8/trainer_state.json"
    write_atomically(state, json.dumps({"log_history": [{"step": 8}]}))
    os.utime(state, (later := time.time() + 100, later))
    with pytest.raises(ValueError, match="trains on: it has checkpoint-8"):
        files_to_publish(tmp_path, "me/tiny")


def test_curves_are_those_that_were_logged_the_same_bytes_every_time(tmp_path):
    assert CURVES in card(run(tmp_path))
    drawn = (tmp_path / CURVES).read_bytes()
    assert drawn.startswith(PNG)
    card(tmp_path)
    assert (tmp_path / CURVES).read_bytes() == drawn
    assert curves_png([{"step": 1, "reward": 0.5}]).startswith(PNG)
    assert curves_png([{"step": 1, "loss": 0.5}]) is None


def test_the_picture_of_a_tree_is_shown_if_there_is_one_of_this_run(tmp_path, monkeypatch):
    folder = run(tmp_path)
    write_atomically(folder / "report/tree.png", "a picture")
    assert "Prefix tree of one group" not in card(folder)  # a report of several runs drew another one's
    monkeypatch.setattr("tempo_trl.hub.card.recorded_steps", lambda *arguments: [10])
    assert "(report/tree.png)" in card(folder)
