"""Comparing runs: Table 1 with ours in it, differences paired over questions, and the ends of trainings."""

import json

import numpy as np
import pytest

from tempo_trl.launch import cli
from tempo_trl.runs.compared_runs import read_runs
from tempo_trl.runs.statistics import paired_difference

from .comparing import compare, differences, evaluated, runs_of, trained

RNG = np.random.default_rng(0)
TEMPO, GRPO = (RNG.random(60) < share for share in (0.8, 0.6))


def test_table_1_has_our_values_above_the_papers_and_not_run_where_nothing_is(tmp_path, capsys):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    for run, correct in ((tempo, TEMPO), (grpo, GRPO)):
        evaluated(run / "evaluation", correct)
    numbers = compare(tmp_path / "out", tempo, grpo)
    table = (tmp_path / "out/compare.md").read_text()
    first = table.splitlines()[table.splitlines().index("## Accuracy, Qwen3-1.7B") + 2]
    assert first == "|  | MATH | GSM-HARD | AMC23 | MedQA | MedMCQA | MMLU-Medical |"
    tempo_row = next(line for line in table.splitlines() if line.startswith("| TEMPO"))
    assert f"{100 * TEMPO.mean():.1f}<br>" in tempo_row
    assert "paper 87.0" in tempo_row
    assert tempo_row.count("not run") == 5
    difference, low, high = 100 * np.array(paired_difference(TEMPO.astype(float), GRPO.astype(float)))
    assert f"<br>{difference:+.1f}<br>{low:+.1f} to {high:+.1f}<br>paper" in tempo_row
    assert "| PPO | not run<br>paper 81.6" in table
    assert "the difference from GRPO in points" in table
    [cell] = differences(numbers)
    assert (cell["method"], cell["baseline"], cell["paired_questions"]) == ("tempo", "grpo", 60)
    assert [cell["value"], cell["paper"]] == pytest.approx([TEMPO.mean(), 0.87])
    assert [cell["difference"], *cell["paired_interval"]] == pytest.approx([difference / 100, low / 100, high / 100])
    assert cell["paper_difference"] == pytest.approx(0.870 - 0.824)
    assert "not run" in capsys.readouterr().out


def test_only_questions_asked_in_the_same_words_are_paired_and_that_is_said(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    evaluated(tempo / "evaluation", TEMPO)
    evaluated(grpo / "evaluation", GRPO[20:], first=20)
    numbers = compare(tmp_path / "out", tempo, grpo)
    [gap] = differences(numbers)
    assert (gap["paired_questions"], gap["left_out"]) == (40, [20, 0])
    assert gap["difference"] == pytest.approx(TEMPO[20:].mean() - GRPO[20:].mean())
    assert any("over the 40 questions that both have" in note for note in numbers["notes"])

    evaluated(grpo / "evaluation", GRPO, words="other words ")
    numbers = compare(tmp_path / "out", tempo, grpo)
    assert differences(numbers)[0]["paired_interval"] is None
    assert any("no questions in common" in note for note in numbers["notes"])


def test_a_value_that_is_not_the_mean_of_its_answers_is_told(tmp_path):
    run = evaluated(tmp_path / "run", TEMPO)
    [entry] = json.loads((run / "math.json").read_text())
    (run / "math.json").write_text(json.dumps([entry | {"value": 0.99}]))
    assert any("0.9900, but the mean over its answers is" in note for note in compare(tmp_path / "out", run)["notes"])


def test_runs_of_one_method_are_its_seeds_and_their_trainings_one_row(tmp_path, capsys):
    runs = [trained(tmp_path / f"sums/tempo-seed{seed}", [0.1 * seed, 0.2 * seed]) for seed in (1, 2)]
    numbers = compare(tmp_path / "out", *runs)
    assert [run["seed"] for run in numbers["runs"]] == [1, 2]
    [end] = numbers["training"]
    # of 0.2 and 0.4: mean 0.3, standard error 0.1, Student's 97.5% quantile with one degree of freedom 12.706
    assert [end["value"], *end["interval"]] == pytest.approx([0.3, 0.3 - 1.2706, 0.3 + 1.2706], abs=1e-4)
    assert (end["runs"], end["steps"], end["seconds"]) == (2, 2, 4)
    assert "(-0.971 to 1.571)" in " ".join(capsys.readouterr().out.split())


def test_a_reward_in_training_is_the_mean_over_the_last_twentieth_that_could_be_scored(tmp_path):
    run = trained(tmp_path / "tempo", [0.0] * 38 + [0.4, float("nan"), 0.6])
    [end] = compare(tmp_path / "out", run)["training"]
    assert end["value"] == pytest.approx(0.5)
    assert end["interval"] == [None, None]  # one run does not show how runs vary


@pytest.mark.parametrize(
    ("name", "setting", "method"),
    [
        ("GRPO", {"top_entropy_quantile": 0.2}, "hepo"),
        ("TreeRPO_entropy", {}, "treerpo_entropy"),
    ],
)
def test_the_record_of_a_run_comes_before_its_path(name, setting, method, tmp_path):
    run = trained(runs_of(tmp_path, "grpo")[0], [0.1])
    (run / "tempo").mkdir()
    record = {"method": name, "seed": 9, "model": {"name": "Qwen/Qwen3-4B"}, "dataset": {}}
    record["config"] = {"script": {"task": "medqa"}, "training": setting}
    (run / "tempo/run.json").write_text(json.dumps(record))
    [read] = read_runs([run])
    assert (read.method, read.model, read.trained_on, read.seed) == (method, "qwen3-4b", "medqa", 9)


def test_a_run_without_evaluation_has_its_training_and_one_without_training_has_cells(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    trained(tempo, [0.1, 0.2])
    evaluated(grpo / "evaluation", GRPO)
    numbers = compare(tmp_path / "out", tempo, grpo)
    assert [end["method"] for end in numbers["training"]] == ["tempo"]
    assert [cell["method"] for cell in numbers["cells"]] == ["grpo"]


def test_what_a_run_was_not_trained_for_is_another_row_than_the_papers(tmp_path):
    folders = [tmp_path / "runs/qwen3-1.7b/math/tempo", tmp_path / "runs/qwen3-1.7b/medqa/tempo"]
    for folder in folders:
        for task in ("math", "medqa"):
            evaluated(folder / "evaluation", TEMPO, task)
    cells = compare(tmp_path / "out", *folders)["cells"]
    found = {(cell["task"], cell["dataset"]): cell["paper"] for cell in cells}
    expected = {("math", None): 0.87, ("medqa", None): 0.5915, ("math", "medqa"): None, ("medqa", "math"): None}
    assert found == pytest.approx(expected)
    assert "| TEMPO (medqa) |" in (tmp_path / "out/compare.md").read_text()


def test_the_evaluation_of_a_model_of_the_hub_is_the_base(tmp_path):
    folder = evaluated(tmp_path / "evaluation/Qwen/Qwen3-1.7B", GRPO)
    [cell] = compare(tmp_path / "out", folder)["cells"]
    assert (cell["model"], cell["method"], cell["paper"]) == ("qwen3-1.7b", "base", 0.685)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["empty"], "empty is not a run, expected trainer_state.json"),
        (["absent"], "absent does not exist"),
        (["run", "run"], "twice, which would count"),
        (["run", "--label", "a", "b"], "expected one for each of the 1 runs"),
        (["broken"], "is not a graded question"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    evaluated(tmp_path / "run", TEMPO)
    (evaluated(tmp_path / "broken", TEMPO) / "math.greedy.jsonl").write_text('{"row_id": 1}\n')
    assert cli.main(["compare", "-o", "out", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
