"""What the folders that are compared are taken for, and what is refused: a path misread is a method misreported."""

import json
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.launch import cli
from tempo_trl.runs.compared_runs import read_runs
from tempo_trl.runs.files import fingerprint, write_atomically

from .comparing import compare, evaluated, trained

RIGHT, WRONG = np.array([1.0] * 9 + [0.0]), np.array([0.0] * 9 + [1.0])


def of_model(folder: Path, model: str, **facts: str) -> Path:
    """Say whose answers an evaluation holds."""
    [entry] = json.loads((folder / "math.json").read_text())
    (folder / "math.json").write_text(json.dumps([entry | {"model": model} | facts]))
    return folder


def method_of(folder: str | Path) -> str:
    [run] = read_runs([folder])
    return run.method


@pytest.mark.parametrize("checkout", ["tempo_trl", "tempo_demo", "tempo-trl.git", "tempo", "grpo"])
def test_the_base_is_the_base_whatever_the_folder_above_is_called(checkout, tmp_path, monkeypatch):
    (tmp_path / checkout).mkdir()
    monkeypatch.chdir(tmp_path / checkout)
    base = evaluated(Path("evaluation/Qwen/Qwen3-1.7B"), RIGHT)
    runs = [evaluated(Path(f"runs/qwen3-1.7b/math/{name}/evaluation"), WRONG).parent for name in ("tempo", "grpo")]
    numbers = compare(tmp_path / "out", base, *runs)
    assert {cell["method"]: cell["value"] for cell in numbers["cells"]} == {"base": 0.9, "tempo": 0.1, "grpo": 0.1}
    assert method_of(base.absolute()) == "base"


def test_only_a_method_alone_or_with_its_seed_names_a_run(tmp_path):
    names = {"tempo": "tempo", "grpo-seed0": "grpo", "treerpo_entropy_seed3": "treerpo_entropy", "GRPO": "grpo"}
    others = ("tempo_demo", "tempo_trl", "tempo_recommended", "grpo-lambda", "grpo.bak", "tempo-seed", "trees")
    for name, method in (names | {name: name for name in others}).items():
        assert method_of(evaluated(tmp_path / name, RIGHT)) == method
        assert method_of(evaluated(tmp_path / name / "checkpoint-9", RIGHT)) == (
            method if name in names else "checkpoint-9"
        )


def test_a_folder_that_was_not_given_names_no_method_unless_it_lies_in_a_models(tmp_path, monkeypatch):
    evaluated(tmp_path / "tempo/out", RIGHT)
    run = trained(tmp_path / "runs/qwen3-1.7b/math/tempo", [0.1])
    for inside, given in (("", "runs/qwen3-1.7b/math/tempo"), ("runs/qwen3-1.7b/math", "tempo"), (run, ".")):
        monkeypatch.chdir(tmp_path / inside)
        [read] = read_runs([given])
        assert (read.method, read.model, read.trained_on) == ("tempo", "qwen3-1.7b", "math")
    monkeypatch.chdir(tmp_path / "tempo")
    assert [method_of("out"), method_of("./out"), method_of("../tempo/out")] == ["out", "out", "tempo"]


def test_a_base_was_trained_on_nothing_and_what_was_trained_is_no_base(tmp_path):
    assert method_of(trained(tmp_path / "tempo/qwen3-1.7b", [0.1])) == "tempo"
    [run] = read_runs([evaluated(tmp_path / "math/Qwen3-1.7B", RIGHT)])
    assert (run.method, run.trained_on) == ("base", None)


def test_evaluations_of_two_models_are_two_methods_not_two_seeds(tmp_path):
    a = of_model(evaluated(tmp_path / "evalA/evaluation", RIGHT), "some/model")
    b = of_model(evaluated(tmp_path / "evalB/evaluation", WRONG), "other/model")
    numbers = compare(tmp_path / "out", a, b)
    assert {cell["method"]: cell["value"] for cell in numbers["cells"]} == {"evalA": 0.9, "evalB": 0.1}
    assert numbers["notes"] == []


def test_the_evaluation_of_a_run_has_the_record_and_the_name_of_the_run(tmp_path, monkeypatch):
    run = tmp_path / "grpo-seed4"
    evaluated(run / "evaluation", RIGHT)
    monkeypatch.chdir(run / "evaluation")
    assert [method_of(run / "evaluation"), method_of("../evaluation"), method_of(".")] == ["grpo"] * 3
    (run / "tempo").mkdir()
    (run / "tempo/run.json").write_text(json.dumps({"method": "TEMPO", "seed": 9, "model": {"name": "me/Tiny"}}))
    [read] = read_runs([run / "evaluation"])
    assert (read.method, read.model, read.seed) == ("tempo", "tiny", 9)


def test_results_of_a_run_may_lie_beside_its_model(tmp_path):
    run = evaluated(trained(tmp_path / "grpo", [0.1, 0.2]), RIGHT)
    (run / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    [read] = read_runs([run])
    assert [(result.task, result.file) for result in read.results] == [("math", "math.json")]


def test_a_run_and_its_own_evaluation_are_the_same_run_given_twice(tmp_path):
    evaluation = evaluated(tmp_path / "tempo/evaluation", RIGHT)
    with pytest.raises(ValueError, match="twice, which would count"):
        read_runs([evaluation.parent, evaluation])


def test_a_mean_over_answers_of_different_models_is_doubted_and_over_seeds_is_not(tmp_path):
    a = of_model(evaluated(tmp_path / "a", RIGHT), "some/model")
    b = of_model(evaluated(tmp_path / "b", WRONG), "other/model")
    [note] = compare(tmp_path / "out", a, b, label=["ours", "ours"])["notes"]
    assert "count as two seeds of ours, but evaluate some/model and other/model" in note

    models = {f"sums/tempo-seed{seed}/evaluation": f"tempo-seed{seed}" for seed in (0, 1)}
    models["results/tempo-seed7"] = "tempo-seed2"  # of --output
    seeds = [of_model(evaluated(tmp_path / folder, RIGHT), model) for folder, model in models.items()]
    assert compare(tmp_path / "out", *seeds)["notes"] == []
    themselves = [of_model(evaluated(tmp_path / name, RIGHT), name) for name in ("first", "second")]
    assert compare(tmp_path / "out", *themselves, label=["ours", "ours"])["notes"] == []


@pytest.mark.parametrize(
    ("model", "weights", "date", "doubt"),
    [
        ("renamed", "the run's", "2026-02-02", None),
        ("tempo", "another's", "2026-02-02", None),  # is believed to be the folder's
        ("grpo", "another's", "2026-02-02", "an evaluation of grpo, whose weights are not the run's"),
        (
            "tempo",
            "the run's",
            "2026-01-31",
            "older than the run's last start, 2026-02-01T12:00:00, so of other weights",
        ),
    ],
)
def test_results_of_other_weights_than_the_run_s_are_doubted(model, weights, date, doubt, tmp_path):
    run = trained(tmp_path / "tempo", [0.1])
    write_atomically(run / "tempo/run.json", json.dumps({"method": "TEMPO", "started": "2026-02-01T12:00:00"}))
    write_atomically(run / "model.safetensors", b"trained")
    hashes = {"the run's": f"base+{fingerprint(run)}", "another's": "0" * 64}
    of_model(evaluated(run / "evaluation", RIGHT), model, weights=hashes[weights], date=date)
    notes = compare(tmp_path / "out", run)["notes"]
    assert notes == ([f"{run}: evaluation/math.json is {doubt}. Evaluate again, with --overwrite."] if doubt else [])


def test_methods_that_were_trained_on_other_rows_of_a_task_are_doubted(tmp_path):
    files = {"tempo": "a.jsonl", "grpo": "b.jsonl", "hepo": "a.jsonl"}
    runs = [trained(tmp_path / name, [0.1]) for name in files]
    for run in runs:
        script = {"task": "math", "method": run.name, "train_file": files[run.name]}
        write_atomically(run / "tempo/run.json", json.dumps({"method": run.name, "config": {"script": script}}))
    doubt = f"{runs[0]} and {runs[1]} count as trained on math, but differ in train_file."
    assert compare(tmp_path / "out", *runs)["notes"] == [doubt]


def test_checkpoints_of_one_run_have_its_record_and_are_not_taken_for_seeds(tmp_path, monkeypatch):
    run = trained(tmp_path / "out", [0.1, 0.2, 0.3])
    steps = [evaluated(trained(run / f"checkpoint-{step}", [0.1] * step) / "evaluation", RIGHT) for step in (1, 2)]
    for given in ([steps[0].parent, steps[1]], [run, steps[0].parent]):
        [note] = compare(tmp_path / "compared", *given, label=["ours", "ours"])["notes"]
        assert "count as two seeds of ours, but are checkpoints of one run" in note
        assert compare(tmp_path / "compared", *given, label=["half", "whole"])["notes"] == []
    (run / "tempo").mkdir()
    (run / "tempo/run.json").write_text(json.dumps({"method": "TEMPO", "seed": 9, "model": {"name": "me/Tiny"}}))
    monkeypatch.chdir(run / "checkpoint-1")
    for folder in (run / "checkpoint-1", steps[0], ".", "evaluation", "../checkpoint-2"):
        [read] = read_runs([folder])
        assert (read.method, read.model, read.seed) == ("tempo", "tiny", 9)


@pytest.mark.parametrize("output", ["file", "file/below", "/proc/compared"])
def test_an_output_that_cannot_be_a_folder_is_refused_in_one_line(output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("not a folder")
    evaluated(tmp_path / "run", RIGHT)
    assert cli.main(["compare", "run", "-o", output]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tempo-trl compare: error: cannot create the folder {output}: ")


def test_a_disk_that_refuses_is_told_in_one_line(tmp_path, capsys):
    run = evaluated(tmp_path / "run", RIGHT)
    (tmp_path / "out/compare.md").mkdir(parents=True)  # refuses root, too
    assert cli.main(["compare", str(run), "-o", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("tempo-trl compare: error: [Errno 21] Is a directory")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("trainer_state.json", '{"log_history": {"step": 1}}'),
        ("tempo/run.json", '{"method": "GRPO", "model": "Qwen/Qwen3-1.7B"}'),
        ("evaluation/math.json", '{"task": "math", "metric": "accuracy", "value": 1, "n": 1, "temperature": "hot"}'),
        ("evaluation/math.json", '{"task": "math", "metric": "accuracy", "value": 1, "n": 1, "model": ["tempo"]}'),
    ],
)
def test_a_file_of_another_form_is_named_in_one_line(file, content, tmp_path, capsys):
    path = tmp_path / "run" / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert cli.main(["compare", str(tmp_path / "run"), "-o", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tempo-trl compare: error: {path}") and "expected" in line and "got" in line


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_all_broken_files_of_all_runs_are_named_at_once(verb, tmp_path, capsys):
    broken = {
        "tempo/trainer_state.json": '{"log_hist',
        "tempo/tempo/run.json": "[",
        "tempo/tempo/trees_3.parquet": "PAR1 cut",
        "tempo/evaluation/math.json": "{",
        "tempo/evaluation/medqa.json": "\udcff",
        "grpo/trainer_state.json": "",
    }
    for name, content in broken.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    folders = [str(tmp_path / "tempo"), str(tmp_path / "grpo")]
    assert cli.main([verb, *folders, "-o", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [name for name in broken if not any(str(tmp_path / name) in line for line in lines)] == []
    assert len(lines) == len(broken)


def test_broken_trees_are_named_by_the_verb_that_draws_them(tmp_path, capsys):
    (tmp_path / "tempo").mkdir()
    (tmp_path / "tempo" / "trees_3.parquet").write_text("PAR1 cut")
    assert cli.main(["tree", str(tmp_path)]) == 2
    assert "trees_3.parquet is not a whole file of recorded trees" in capsys.readouterr().err
