"""Our task files in lm-eval's own command: the same questions, answers and grades."""

import shlex
import sys
from functools import partialmethod

import pytest

from tempo_trl.data import BENCHMARKS
from tempo_trl.evaluation.evaluate import evaluate
from tempo_trl.evaluation.harness import dataset
from tempo_trl.evaluation.settings import EXAMPLES, PAPER_TASKS, TASKS_FOLDER

from .evaluating import SIX, lines, write_rows


def test_every_benchmark_without_examples_has_a_task_file_and_the_paper_s_six_are_the_default():
    names = BENCHMARKS.keys() - {"orders"}
    assert {path.stem for path in TASKS_FOLDER.glob("*.yaml")} == {f"tempo_{name}" for name in names}
    with pytest.raises(ValueError, match="orders has prompts with examples"):
        dataset("orders")
    assert PAPER_TASKS.split(",") == SIX


def test_lm_eval_s_own_command_gives_our_greedy_answers(tiny_model, tmp_path, monkeypatch, capsys):
    rows = write_rows(tmp_path / "rows")
    command = EXAMPLES[EXAMPLES.index("lm_eval --model") :].replace("\\\n", " ")
    command = command.replace('"$(python -m tempo_trl.evaluation)"', str(TASKS_FOLDER))
    command = command.replace("[--metadata", "--metadata").replace("}']", "}'").replace('"rows"', f'"{rows}"')
    command = command.replace("Qwen/Qwen3-1.7B", tiny_model).replace("tempo_math", ",".join(f"tempo_{n}" for n in SIX))
    # A batch of one, as lm-eval's default: padding changes the last bits of a model's numbers.
    ours = {"max_tokens": 24, "batch_size": 1, "output": str(tmp_path / "ours")}
    theirs = ["--gen_kwargs", "max_gen_toks=24", "--device", "cpu", "--log_samples"]
    monkeypatch.setattr(sys, "argv", [*shlex.split(command), *theirs, "--output_path", str(tmp_path / "theirs")])
    monkeypatch.chdir(tmp_path)

    from lm_eval.__main__ import cli_evaluate
    from lm_eval.tasks import TaskManager

    # lm-eval's own tasks, of which it reads thousands of files, are left out for the time that takes.
    monkeypatch.setattr(TaskManager, "__init__", partialmethod(TaskManager.__init__, include_defaults=False))
    cli_evaluate()
    table = capsys.readouterr().out
    evaluate(tiny_model, data_dir=rows, **ours)
    for task in SIX:
        assert f"tempo_{task}" in table
        (path,) = (tmp_path / "theirs").rglob(f"samples_tempo_{task}_*.jsonl")
        samples, questions = lines(path), lines(tmp_path / "ours" / f"{task}.greedy.jsonl")
        assert [sample["resps"][0] for sample in samples] == [question["completions"] for question in questions]
        assert [[sample["accuracy"]] for sample in samples] == [question["correct"] for question in questions]


def test_lm_eval_grades_with_our_rewards(tmp_path):
    from lm_eval.tasks import TaskManager

    metadata = {"data_dir": write_rows(tmp_path / "rows"), "pretrained": "what lm-eval adds of its own"}
    manager = TaskManager(include_path=TASKS_FOLDER, include_defaults=False, metadata=metadata)
    said = {"tempo_math": r"$\boxed{\frac{4}{2}}$", "tempo_amc23": r"$\boxed{21.0}$", "tempo_medqa": r"\boxed{B}"}
    for name, answer in said.items():
        task = manager.load(name)["tasks"][name]
        assert task.process_results(task.eval_docs[0], [answer]) == {"accuracy": 1.0}
        assert task.process_results(task.eval_docs[0], [r"\boxed{A}"]) == {"accuracy": 0.0}
