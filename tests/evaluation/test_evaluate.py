"""Evaluations from end to end, of a tiny model on local rows: files, numbers, resuming, seeds, adapters."""

import itertools
import json
import runpy
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from tempo_trl.data import BENCHMARKS, load_prompts
from tempo_trl.evaluation.evaluate import evaluate
from tempo_trl.evaluation.settings import PAPER_TASKS, Settings
from tempo_trl.launch import cli
from tempo_trl.runs.files import fingerprint, write_atomically
from tempo_trl.runs.results import read_results
from tempo_trl.runs.statistics import maj_at_n, pass_at_k

from ..data.rows import GOLD, ROOT
from .evaluating import SHORT, SIX, everything_but_dates, let_the_model_say, lines, right, write_rows

pytestmark = pytest.mark.matrix

KEYS = ["task", "row_id", "source", "prompt_sha256", "gold", "completions", "answers", "correct"]
TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {}}}
LONG = {"tasks": "gsm_hard,medqa", "n": 2, "batch_size": 4, **SHORT}


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> str:
    return write_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory) -> str:
    return write_rows(tmp_path_factory.mktemp("many_rows"), repeats=8)


@pytest.fixture(scope="module")
def uninterrupted(tiny_model, many_rows, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("uninterrupted")
    evaluate(tiny_model, data_dir=many_rows, output=str(folder), **LONG)
    return everything_but_dates(folder)


@pytest.fixture(scope="module")
def six(tiny_model, rows, tmp_path_factory) -> Path:
    """A run's folder whose model sometimes says the right thing, evaluated with 4 samples by the command."""
    run = tmp_path_factory.mktemp("run")
    shutil.copytree(tiny_model, run, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        let_the_model_say(patch, lambda row, sample: right(row) if (row["row_id"] + sample) % 3 else r"\boxed{-7}")
        assert cli.main(["evaluate", "--model", str(run), "--data_dir", rows, "--n", "4"]) == 0
    return run


def test_each_of_the_six_tasks_has_its_answers_and_their_grades_a_line_a_question(six):
    assert PAPER_TASKS.split(",") == SIX
    for task in SIX:
        for name, n in (("greedy", 1), ("n4", 4)):
            questions = lines(six / "evaluation" / f"{task}.{name}.jsonl")
            assert [question["row_id"] for question in questions] == list(range(len(GOLD[task])))
            assert all(list(question) == KEYS for question in questions)
            assert all(question["task"] == question["source"] == task for question in questions)
            assert all(len(question[key]) == n for question in questions for key in KEYS[5:])
            for question in questions:
                expected = [(question["row_id"] + sample) % 3 > 0 for sample in range(n)]
                assert question["correct"] == [float(right) for right in expected]
                assert [answer == question["gold"] for answer in question["answers"]] == expected
    golds = [question["gold"] for question in lines(six / "evaluation/math.greedy.jsonl")]
    assert golds == ["2"]  # of the box in the worked solution


def test_every_number_can_be_recomputed_from_the_lines(six):
    for task in SIX:
        entries = {entry["metric"]: entry for entry in json.loads((six / f"evaluation/{task}.json").read_text())}
        greedy = lines(six / "evaluation" / f"{task}.greedy.jsonl")
        sampled = lines(six / "evaluation" / f"{task}.n4.jsonl")
        grades = np.array([question["correct"] for question in sampled])
        majority = maj_at_n([question["answers"] for question in sampled], grades).mean()
        expected = {"accuracy": np.mean([question["correct"] for question in greedy]), "avg@4": grades.mean()}
        expected |= {"maj@4": majority} | {f"pass@{k}": pass_at_k(grades, k).mean() for k in (1, 2, 4)}
        assert {name: entry["value"] for name, entry in entries.items()} == pytest.approx(expected)
        assert all(low <= entry["value"] <= high for entry in entries.values() for low, high in [entry["interval"]])


def test_results_are_what_the_hub_s_metadata_is_made_from(six):
    results = {(result.task, result.metric): result for result in read_results(six)}
    assert {task for task, _ in results} == set(SIX)
    assert (results["math", "accuracy"].n, results["math", "accuracy"].k) == (1, 1)
    assert (results["gsm_hard", "pass@2"].n, results["gsm_hard", "pass@2"].k) == (3, 4)
    assert all(result.hub_id is None for result in results.values())  # local rows are not the benchmark
    entry = json.loads((six / "evaluation/medqa.json").read_text())[-1]
    expected = {"split": "test", "temperature": 1.0, "model": six.name, "lm_eval": version("lm_eval"), "seed": 0}
    assert {key: entry[key] for key in expected} == expected
    assert entry["weights"] == fingerprint(six)


def test_the_model_reads_the_prompts_of_training_through_its_chat_template(tiny_model, rows, tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    read = []
    monkeypatch.setattr(
        "lm_eval.models.huggingface.HFLM.generate_until",
        lambda lm, requests, disable_tqdm: [read.append(request.args[0]) or "" for request in requests],
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    for thinking, style in itertools.product((False, True), ("boxed", "authors-code")):
        read.clear()
        output, template = str(tmp_path / f"{thinking}-{style}"), {"enable_thinking": thinking, "tools": [TOOL]}
        evaluate(tiny_model, tasks=",".join(SIX), data_dir=rows, output=output, thinking=thinking, prompt_style=style,
                 chat_template_kwargs={"tools": [TOOL]}, max_tokens=64, batch_size=1)  # fmt: skip
        trained_on = [
            tokenizer.apply_chat_template(row, tokenize=False, add_generation_prompt=True, **template)
            for task in SIX
            for row in load_prompts(task, path=f"{rows}/{task}.jsonl", style=style)["prompt"]
        ]
        assert sorted(read) == sorted(trained_on)


def test_a_runs_model_is_asked_as_it_was_trained_unless_a_flag_says_otherwise(tmp_path):
    template = {"reasoning_effort": "low"}
    trained = {"max_completion_length": 99, "chat_template_kwargs": template | {"enable_thinking": True}}
    config = {"training": trained, "script": {"prompt_style": "authors-code", "instruction": "Box it."}}
    write_atomically(tmp_path / "run/tempo/run.json", json.dumps({"config": config}))
    (tmp_path / "run/checkpoint-3").mkdir()
    expected = {"prompt_style": "authors-code", "instruction": "Box it.", "thinking": True, "max_tokens": 99}
    expected["chat_template_kwargs"] = template
    for folder in ("run", "run/checkpoint-3"):
        assert Settings.of(str(tmp_path / folder)) == Settings(str(tmp_path / folder), **expected)
    flags = vars(cli.command_parser().parse_args(["evaluate", "--model", str(tmp_path / "run"), "--no-thinking"]))
    given = Settings.of(**{name: value for name, value in flags.items() if name != "run"})
    assert given == Settings(str(tmp_path / "run"), **expected | {"thinking": False})
    assert Settings.of("Qwen/Qwen3-1.7B") == Settings("Qwen/Qwen3-1.7B")


def test_the_same_seed_gives_the_same_answers_and_another_seed_others(tiny_model, many_rows, uninterrupted, tmp_path):
    evaluate(tiny_model, data_dir=many_rows, output=str(tmp_path / "again"), **LONG)
    assert everything_but_dates(tmp_path / "again") == uninterrupted
    evaluate(tiny_model, data_dir=many_rows, output=str(tmp_path / "other"), seed=1, **LONG)
    other = everything_but_dates(tmp_path / "other")
    assert other["gsm_hard.greedy.jsonl"] == uninterrupted["gsm_hard.greedy.jsonl"]
    assert other["gsm_hard.n2.jsonl"] != uninterrupted["gsm_hard.n2.jsonl"]


@pytest.mark.parametrize("chunks_done", [0, 3, 7])
def test_an_evaluation_that_was_interrupted_comes_to_the_same_result(
    chunks_done, tiny_model, many_rows, uninterrupted, tmp_path, monkeypatch
):
    from lm_eval.models.huggingface import HFLM

    generate_until, calls = HFLM.generate_until, []

    def fail_later(lm, requests, **others):
        calls.append(len(requests))
        if len(calls) > chunks_done:
            raise RuntimeError("CUDA out of memory")
        return generate_until(lm, requests, **others)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="memory"):
        patch.setattr(HFLM, "generate_until", fail_later)
        evaluate(tiny_model, data_dir=many_rows, output=str(tmp_path), **LONG)
    for partial in (tmp_path / "state").glob("*.jsonl"):
        with partial.open("a") as file:
            file.write('{"task": "gsm_hard", "row_')  # as a full disk leaves it
    evaluate(tiny_model, data_dir=many_rows, output=str(tmp_path), **LONG)
    assert everything_but_dates(tmp_path) == uninterrupted


def test_what_is_finished_is_not_asked_again_and_sampling_can_follow(tiny_model, rows, tmp_path, monkeypatch):
    asked = []
    let_the_model_say(monkeypatch, lambda row, sample: asked.append(sample) or right(row))
    common = {"tasks": "medmcqa", "data_dir": rows, "output": str(tmp_path), "max_tokens": 8}
    assert [entry["metric"] for entry in evaluate(tiny_model, **common)] == ["accuracy"]
    assert [entry["metric"] for entry in evaluate(tiny_model, n=2, **common)] == [
        "accuracy", "avg@2", "pass@1", "pass@2", "maj@2",
    ]  # fmt: skip
    assert asked == [0, 0, *[0, 1] * 2]
    (tmp_path / "medmcqa.json").unlink()
    assert {entry["value"] for entry in evaluate(tiny_model, **common)} == {1.0}
    assert len(asked) == 6


def test_an_adapter_is_evaluated_on_its_base_model(tiny_model, rows, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    torch.manual_seed(0)  # of the adapter, whose answers are others than the base's
    lora = LoraConfig(r=4, lora_alpha=64, init_lora_weights=False, target_modules=["q_proj", "down_proj"])
    adapted = get_peft_model(base, lora)
    adapted.save_pretrained(tmp_path / "adapter")
    shutil.copytree(tiny_model, tmp_path / "merged")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    common = {"tasks": "gsm_hard,medqa", "data_dir": rows, "max_tokens": 24}
    said = {}
    for model in (tiny_model, str(tmp_path / "adapter"), str(tmp_path / "merged")):
        entries = evaluate(model, output=str(tmp_path / "out" / Path(model).name), **common)
        assert entries[0]["model"] == Path(model).name
        said[Path(model).name] = everything_but_dates(tmp_path / "out" / Path(model).name)["gsm_hard.greedy.jsonl"]
    assert said["adapter"] == said["merged"] != said[Path(tiny_model).name]


def test_the_benchmark_s_name_stands_for_all_of_its_rows_on_the_hub(tiny_model, rows, tmp_path, monkeypatch):
    let_the_model_say(monkeypatch, lambda row, sample: right(row))
    monkeypatch.setattr(
        "tempo_trl.evaluation.questions.load_prompts",
        lambda name, split, path, *words: load_prompts(name, split, f"{rows}/{name}.jsonl", *words),
    )
    whole = evaluate(tiny_model, tasks="gsm_hard,medmcqa", output=str(tmp_path / "whole"))
    assert [(entry["hub_id"], entry["split"], entry["n"]) for entry in whole] == [
        (BENCHMARKS["gsm_hard"].hub_id, "train", 3),
        (BENCHMARKS["medmcqa"].hub_id, "validation", 2),
    ]
    part = evaluate(tiny_model, tasks="gsm_hard", output=str(tmp_path / "part"), limit=2)
    assert [(entry["hub_id"], entry["n"]) for entry in part] == [(None, 2)]


def test_a_slice_of_a_split_is_asked_and_named(tiny_model, tmp_path):
    slice_of = {"tasks": "orders", "split": "train[1:3]", "max_tokens": 4, "output": str(tmp_path)}
    (result,) = evaluate(tiny_model, **slice_of)
    assert (result["hub_id"], result["split"], result["n"]) == (None, "train[1:3]", 2)


def test_the_example_evaluates_a_checkpoint_and_reads_its_answers(tiny_model, rows, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lm_eval.models.huggingface.HFLM.generate_until", _greedy_wrong)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["evaluate_checkpoint.py", tiny_model, rows])
    runpy.run_path(str(ROOT / "examples/evaluate_checkpoint.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert "accuracy  0.0%" in text
    assert "pass@4    100.0%" in text
    assert "row 0: said 3, expected 2" in text


def _greedy_wrong(lm, requests, disable_tqdm):
    return [right(request.doc) if request.args[1]["do_sample"] else r"\boxed{3}" for request in requests]
