"""Comparing runs: Table 1 with ours in it, differences paired over questions, curves over seeds, speed."""

import json

import numpy as np
import pytest
from scipy import stats

from tempo_trl.compare.curves import band, read_curve
from tempo_trl.launch import cli
from tempo_trl.runs.compared_runs import read_runs
from tempo_trl.runs.statistics import avg_at_n, paired_difference, pass_at_k

from .comparing import compare, evaluated, runs_of, trained

RNG = np.random.default_rng(0)
TEMPO, GRPO = (RNG.random(60) < share for share in (0.8, 0.6))


def test_table_1_has_our_values_above_the_papers_and_not_run_where_nothing_is(tmp_path, capsys):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    for run, correct in ((tempo, TEMPO), (grpo, GRPO)):
        evaluated(run / "evaluation", correct)
    numbers = compare(tmp_path / "out", tempo, grpo)
    table = (tmp_path / "out/compare.md").read_text()
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in table.splitlines() if line.startswith("|")}
    assert list(rows)[2:] != []
    first = table.splitlines()[table.splitlines().index("## Accuracy, Qwen3-1.7B") + 2]
    assert [cell.strip() for cell in first.split("|")[2:-1]] == [
        "MATH",
        "GSM-HARD",
        "AMC23",
        "MedQA",
        "MedMCQA",
        "MMLU-Medical",
    ]
    accuracy = table[: table.index("## Difference")]
    tempo_row = next(line for line in accuracy.splitlines() if line.startswith("| TEMPO"))
    assert f"{100 * TEMPO.mean():.1f}<br>" in tempo_row
    assert "paper 87.0" in tempo_row
    assert tempo_row.count("not run") == 5
    assert "| PPO | not run<br>paper 81.6" in accuracy
    [cell] = [cell for cell in numbers["cells"] if cell["method"] == "tempo"]
    assert cell["value"] == pytest.approx(TEMPO.mean())
    assert cell["minus_paper"] == pytest.approx(TEMPO.mean() - 0.87)
    assert "not run" in capsys.readouterr().out


def test_the_difference_is_paired_over_the_questions_of_both(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    evaluated(tempo / "evaluation", TEMPO)
    evaluated(grpo / "evaluation", GRPO)
    [gap] = compare(tmp_path / "out", tempo, grpo)["differences"]
    difference, low, high = paired_difference(TEMPO.astype(float), GRPO.astype(float))
    assert (gap["method"], gap["baseline"], gap["questions"]) == ("tempo", "grpo", 60)
    assert [gap["difference"], *gap["interval"]] == pytest.approx([difference, low, high])
    assert gap["paper"] == pytest.approx(0.870 - 0.824)


def test_a_model_compared_with_its_own_answers_differs_by_nothing(tmp_path):
    runs = [evaluated(tmp_path / name, TEMPO) for name in ("one", "other")]
    [gap] = compare(tmp_path / "out", *runs, label=["grpo", "again"])["differences"]
    assert [gap["difference"], *gap["interval"]] == [0.0, 0.0, 0.0]


def test_only_questions_asked_in_the_same_words_are_paired_and_that_is_said(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    evaluated(tempo / "evaluation", TEMPO)
    evaluated(grpo / "evaluation", GRPO[20:], first=20)
    numbers = compare(tmp_path / "out", tempo, grpo)
    [gap] = numbers["differences"]
    assert (gap["questions"], gap["questions_left_out"]) == (40, [20, 0])
    assert gap["difference"] == pytest.approx(TEMPO[20:].mean() - GRPO[20:].mean())
    assert any("over the 40 questions that both have" in note for note in numbers["notes"])

    evaluated(grpo / "evaluation", GRPO, words="other words ")
    numbers = compare(tmp_path / "out", tempo, grpo)
    assert numbers["differences"][0]["interval"] is None
    assert any("no questions in common" in note for note in numbers["notes"])


def test_several_answers_a_question_are_computed_from_the_answers(tmp_path):
    folders = runs_of(tmp_path, "tempo", "grpo")
    graded = [RNG.random((30, 4)) < share for share in (0.5, 0.4)]
    for run, correct in zip(folders, graded, strict=True):
        folder = run / "evaluation"
        folder.mkdir(parents=True)
        common = {"task": "math", "source": "math", "gold": "2", "completions": [], "answers": ["2"] * 4}
        rows = [
            common | {"row_id": i, "prompt_sha256": str(i), "correct": row.astype(float).tolist()}
            for i, row in enumerate(correct)
        ]
        (folder / "math.n4.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        values = {"avg@4": avg_at_n(correct.astype(float)), "pass@2": pass_at_k(correct.astype(float), 2)}
        entries = [
            {"task": "math", "metric": metric, "value": value.mean(), "n": 30, "k": 4}
            for metric, value in values.items()
        ]
        (folder / "math.json").write_text(json.dumps(entries))
    numbers = compare(tmp_path / "out", *folders)
    gaps = {gap["metric"]: gap for gap in numbers["differences"]}
    pass_2 = [pass_at_k(correct.astype(float), 2) for correct in graded]
    assert [gaps["pass@2"]["difference"], *gaps["pass@2"]["interval"]] == pytest.approx(paired_difference(*pass_2))
    assert numbers["notes"] == []  # the values are the means of the answers


def test_a_value_that_is_not_the_mean_of_its_answers_is_told(tmp_path):
    run = evaluated(tmp_path / "run", TEMPO)
    [entry] = json.loads((run / "math.json").read_text())
    (run / "math.json").write_text(json.dumps([entry | {"value": 0.99}]))
    assert any("0.9900, but the mean over its answers is" in note for note in compare(tmp_path / "out", run)["notes"])


def test_a_curve_runs_over_steps_tokens_and_seconds():
    log = [
        {"step": 2, "reward": 0.1, "num_tokens": 50, "step_time": 3.0},  # the mean of two steps
        {"step": 4, "eval_reward": 0.5},
        {"step": 4, "reward": 0.2, "num_tokens": 90, "step_time": 1.0},
        {"step": 4, "train_runtime": 99.0},
    ]
    curve = read_curve(log, "reward")
    assert curve.steps.tolist() == [2, 4]
    assert curve.tokens.tolist() == [50, 90]
    assert curve.seconds.tolist() == [6.0, 8.0]
    assert curve.value.tolist() == [0.1, 0.2]
    assert read_curve(log, "eval_reward").value.tolist() == [0.5]
    assert read_curve([], "reward") is None


def test_a_step_that_no_function_could_score_is_no_point_of_a_curve(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    trained(tempo, [0.1, float("nan"), 0.5])
    trained(grpo, [0.1, 0.3, float("nan")])
    numbers = compare(tmp_path / "out", tempo, grpo)
    assert [curve["mean"]["steps"] for curve in numbers["curves"]] == [[1, 3], [1, 2]]
    assert numbers["speed"][0]["level"] == 0.3
    assert read_curve([{"step": 1, "reward": float("nan")}, {"step": 2, "reward": None}], "reward") is None


def test_the_band_is_students_interval_of_the_mean_over_seeds():
    values = RNG.random((3, 5))
    logs = [[{"step": s + 1, "reward": v, "step_time": 1.0} for s, v in enumerate(row)] for row in values]
    mean, low, high = band([read_curve(log, "reward") for log in logs])
    expected = stats.t.interval(0.95, 2, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    np.testing.assert_allclose(mean.value, values.mean(axis=0))
    np.testing.assert_allclose([low, high], expected)
    assert np.isnan(band([read_curve(logs[0], "reward")])[1]).all()  # one run tells nothing of how runs vary


def test_the_speed_line_says_after_which_share_of_the_baselines_time_its_best_was_reached(tmp_path, capsys):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    trained(grpo, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], tokens=100, seconds=2.0)
    trained(tempo, [0.2, 0.4, 0.6, 0.8, 0.8], tokens=50, seconds=4.0)
    [speed] = compare(tmp_path / "out", tempo, grpo)["speed"]
    assert (speed["level"], speed["method"], speed["baseline"]) == (0.8, "tempo", "grpo")
    assert speed["times_as_fast"] == {"steps": 2.0, "tokens": 4.0, "seconds": 1.0}
    said = " ".join(capsys.readouterr().out.split())
    assert "TEMPO reached GRPO's best mean reward in training (0.800 at step 8) at step 4" in said
    assert "after 1/2.00 of its steps, 1/4.00 of its tokens, 1/1.00 of its time" in said

    trained(tempo, [0.2, 0.4, 0.6])
    assert compare(tmp_path / "out", tempo, grpo)["speed"][0]["times_as_fast"]["steps"] is None
    assert "TEMPO never reached GRPO's best" in " ".join(capsys.readouterr().out.split())


def test_runs_of_one_method_are_its_seeds_and_make_one_curve(tmp_path):
    runs = [trained(tmp_path / f"demo/tempo-seed{seed}", [0.1 * seed, 0.2 * seed]) for seed in (1, 2)]
    numbers = compare(tmp_path / "out", *runs)
    assert [run["seed"] for run in numbers["runs"]] == [1, 2]
    [curve] = numbers["curves"]
    assert len(curve["runs"]) == 2
    assert curve["mean"]["value"] == pytest.approx([0.15, 0.3])
    [picture] = (tmp_path / "out").glob("curves*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


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


def test_a_run_without_evaluation_has_curves_and_one_without_training_has_cells(tmp_path):
    tempo, grpo = runs_of(tmp_path, "tempo", "grpo")
    trained(tempo, [0.1, 0.2])
    evaluated(grpo / "evaluation", GRPO)
    numbers = compare(tmp_path / "out", tempo, grpo)
    assert [curve["method"] for curve in numbers["curves"]] == ["tempo"]
    assert [cell["method"] for cell in numbers["cells"]] == ["grpo"]


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
