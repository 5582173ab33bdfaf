"""What cannot be evaluated is said before a model is loaded, or before it answers; and how answers are asked for."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from tempo_trl.evaluation.evaluate import evaluate
from tempo_trl.evaluation.generation import answered, chunks
from tempo_trl.evaluation.questions import Question
from tempo_trl.evaluation.settings import Settings
from tempo_trl.launch import cli
from tempo_trl.rewards.grader import Grader

from ..data.rows import HUB_ROWS, write_file
from .evaluating import let_the_model_say, right, write_rows


@pytest.fixture
def rows(tmp_path) -> str:
    return write_rows(tmp_path / "rows")


@pytest.fixture
def given(rows, tmp_path) -> dict:
    """Settings of a short evaluation."""
    return {"tasks": "gsm_hard", "data_dir": rows, "output": str(tmp_path / "out"), "max_tokens": 8}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tasks": "math,aime"}, "tasks: got 'aime', expected some of: math, gsm_hard"),
        ({"n": -1}, "n is -1, expected at least 0"),
        ({"n": 4, "temperature": 0.0}, "expected more than 0. Raise it: greedy answers are included"),
        ({"temperature": 0.5}, "are for sampled answers, of which n is 0. Raise n"),
        ({"seed": 1}, "are for sampled answers, of which n is 0. Raise n"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        Settings(model="x", **flags)


def test_what_is_not_there_is_said_by_the_command_before_anything_is_generated(tiny_model, rows, tmp_path, capsys):
    (Path(rows) / "amc23.jsonl").unlink()
    (Path(rows) / "medqa.json").write_text("[]")
    (tmp_path / "unfinished/checkpoint-5").mkdir(parents=True)
    (tmp_path / "unfinished/checkpoint-10").mkdir()
    (tmp_path / "both").mkdir()
    for name in ("model.safetensors", "adapter_model.safetensors", "adapter_config.json"):
        (tmp_path / "both" / name).write_text("{}")
    for model, task, message in (
        ("./nowhere", "math", "nowhere"),
        (str(tmp_path), "math", f"{tmp_path} has no model. Finish its training, or give one of its checkpoints."),
        (str(tmp_path / "unfinished"), "math", f"checkpoints, such as {tmp_path}/unfinished/checkpoint-10."),
        (str(tmp_path / "both"), "math", "has an adapter and a whole model, model.safetensors, of two runs."),
        (tiny_model, "amc23", "has no rows of amc23, expected one file such as amc23.jsonl"),
        (tiny_model, "medqa", "has medqa.json and medqa.jsonl of medqa, expected one file"),
    ):
        assert cli.main(["evaluate", "--model", model, "--tasks", task, "--data_dir", rows]) == 2
        assert message in capsys.readouterr().err


def test_a_grader_that_is_not_installed_is_missed_before_anything_is_generated(given, tiny_model, monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "math_verify" else find_spec(name))
    let_the_model_say(monkeypatch, lambda row, sample: pytest.fail("generated"))
    with pytest.raises(ImportError, match=r'"trl\[math-verify\]"'):
        evaluate(tiny_model, **given)


def test_a_grader_starts_before_anything_is_generated(given, tiny_model, monkeypatch):
    def compare(self, gold, answer):
        raise OSError("no child")

    monkeypatch.setattr(Grader, "compare", compare)
    let_the_model_say(monkeypatch, lambda row, sample: pytest.fail("generated"))
    with pytest.raises(OSError, match="no child"):
        evaluate(tiny_model, **given)


CHANGES = [({"max_tokens": 9}, "max_tokens was 8 and is 9"), ({"instruction": "Box it."}, "questions was")]
CHANGES += [({"n": 2, "seed": 3}, "seed was 0 and is 3")]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_answers_to_other_settings_are_not_mixed(change, message, tiny_model, given, monkeypatch):
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    evaluate(tiny_model, **given, n=2)
    with pytest.raises(ValueError, match=f"{message}.*--output"):
        evaluate(tiny_model, **given | {"n": 2} | change)


@pytest.mark.parametrize(("name", "change"), [("gsm_hard", {"target": 7.0}), ("orders", {"truth": '{"quantity": 3}'})])
def test_grades_of_a_corrected_row_are_not_mixed_with_older_ones(name, change, tiny_model, rows, given, monkeypatch):
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    given["tasks"] = name
    evaluate(tiny_model, **given)
    evaluate(tiny_model, **given)  # the same rows
    write_file(Path(rows) / f"{name}.jsonl", [HUB_ROWS[name][0] | change, *HUB_ROWS[name][1:]])
    with pytest.raises(ValueError, match=r"questions was.*--output"):
        evaluate(tiny_model, **given)


def test_greedy_answers_have_no_seed_and_a_secret_is_not_kept(tiny_model, given, tmp_path, monkeypatch):
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    evaluate(tiny_model, **given, model_args="token=very-secret")
    evaluate(tiny_model, **given, n=2, seed=3, model_args="token=very-secret")
    kept = [path.read_text() for path in (tmp_path / "out").rglob("*.json")]
    assert len(kept) == 3
    assert not any("very-secret" in text for text in kept)


def test_a_batch_that_does_not_fit_into_memory_can_be_made_smaller(tiny_model, given, monkeypatch):
    def say(row, sample):
        raise RuntimeError("CUDA out of memory")

    let_the_model_say(monkeypatch, say)
    with pytest.raises(RuntimeError, match="memory"):
        evaluate(tiny_model, **given)
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    assert evaluate(tiny_model, batch_size=2, **given)[0]["value"] == 1.0


def test_another_model_in_the_same_folder_is_refused(tiny_model, given, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, tmp_path / "run")
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    evaluate(str(tmp_path / "run"), n=2, **given)
    weights = tmp_path / "run/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")  # it was trained on
    with pytest.raises(ValueError, match=r"weights was .* and is"):
        evaluate(str(tmp_path / "run"), **given)


def test_an_answer_has_room_behind_the_longest_prompt(tiny_model, given):
    with pytest.raises(ValueError, match=r"max_tokens is 4000, but the longest prompt of gsm_hard has \d+ of the"):
        evaluate(tiny_model, **given | {"max_tokens": 4000})


def test_rows_without_an_answer_count_as_wrong_and_are_counted(tiny_model, tmp_path, monkeypatch):
    rows = write_rows(tmp_path / "rows")
    row = json.loads((tmp_path / "rows/medmcqa.jsonl").read_text().splitlines()[0])
    (tmp_path / "rows/medmcqa.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"cop": -1}) + "\n")
    let_the_model_say(monkeypatch, lambda row, sample: r"\boxed{D}")
    (entry,) = evaluate(tiny_model, tasks="medmcqa", data_dir=rows, output=str(tmp_path / "out"))
    assert (entry["value"], entry["n"], entry["ungradable"]) == (0.5, 2, 1)


def test_a_think_that_the_prompt_opens_is_seen_by_the_grader():
    row = {"source": "medqa", "row_id": 0, "solution": "B", "options": ["x", "y"], "prompt": []}

    class Cut:
        def generate_until(self, requests, disable_tqdm):
            return [r"It may be \boxed{B}, or", r"It may be \boxed{A}, or</think>\boxed{B}"]

    settings = Settings(model="x", n=2)
    (record,) = answered(Cut(), [Question(row, "Which?<think>\n")], settings.decodings[1], settings)
    assert (record["answers"], record["correct"]) == (["", "B"], [0.0, 1.0])
    assert record["completions"][0].startswith("<think>")


def test_every_sample_of_vllm_has_a_seed_of_its_own_that_does_not_depend_on_its_chunk():
    seeds = []

    class Recorder:
        max_length = 100

        def tok_encode(self, text):
            return list(text)

        def generate_until(self, requests, disable_tqdm):
            seeds.append({(request.doc["row_id"], request.idx): request.args[1]["seed"] for request in requests})
            return [""] * len(requests)

    settings = Settings(model="x", backend="vllm", n=4)
    row = {"source": "gsm_hard", "solution": "1", "prompt": []}
    asked = [Question(row | {"row_id": row_id}, "x" * length) for row_id, length in enumerate((3, 9, 9, 1, 4))]
    for per_chunk in (2, 5):
        for chunk in chunks(Recorder(), asked, per_chunk, max_tokens=10):
            answered(Recorder(), chunk, settings.decodings[1], settings)
    in_twos = seeds[0] | seeds[1] | seeds[2]
    assert in_twos == seeds[3]
    assert len(set(in_twos.values())) == 20
    assert [list(dict.fromkeys(row_id for row_id, _ in chunk)) for chunk in seeds[:3]] == [[1, 2], [4, 0], [3]]
