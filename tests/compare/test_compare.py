"""`tempo-trl compare`: differences paired over questions and seeds, and what is said where runs do not match."""

import json
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.launch import cli
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.statistics import avg_at_n, paired_difference, pass_at_k

RNG = np.random.default_rng(0)
TEMPO, GRPO = (RNG.random(60) < share for share in (0.8, 0.6))


def evaluated(run: Path, correct: np.ndarray, kind: str = "greedy", first: int = 0, **facts) -> Path:
    """Give a run answers to as many questions as `correct` has rows, and results of them."""
    correct = np.asarray(correct, float).reshape(len(correct), -1)
    n, k = correct.shape
    lines = [
        {"row_id": first + i, "source": "math", "prompt_sha256": str(first + i), "answers": ["2"] * k, "correct": row}
        for i, row in enumerate(correct.tolist())
    ]
    write_atomically(run / f"evaluation/math.{kind}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    values = {"accuracy": avg_at_n(correct)} if k == 1 else {"pass@2": pass_at_k(correct, 2)}
    results = [
        {"task": "math", "metric": metric, "value": numbers.mean(), "n": n, "k": k} | facts
        for metric, numbers in values.items()
    ]
    write_atomically(run / "evaluation/math.json", json.dumps(results))
    return run


def trained(run: Path, rewards: list[float], **record) -> Path:
    """Give a run a log of one step a reward, and a record."""
    log = [{"step": step, "reward": reward} for step, reward in enumerate(rewards, start=1)]
    write_atomically(run / "trainer_state.json", json.dumps({"log_history": log}))
    if record:
        write_atomically(run / "tempo/run.json", json.dumps(record))
    return run


def compare(output: Path, *runs: Path, label: list[str] | None = None) -> dict:
    """What compare.json holds; its rows by what was measured and the method."""
    flags = ["--label", *label] if label else []
    assert cli.main(["compare", *map(str, runs), "-o", str(output), *flags]) == 0
    text = (output / "compare.json").read_text()
    numbers = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    return numbers | {"rows": {(row["what"], row["method"]): row for row in numbers["rows"]}}


def test_a_difference_is_paired_over_the_questions_of_both(tmp_path, capsys):
    tempo, grpo = evaluated(tmp_path / "tempo", TEMPO), evaluated(tmp_path / "grpo", GRPO[20:], first=20)
    numbers = compare(tmp_path / "out", tempo, grpo)
    row = numbers["rows"]["math accuracy", "tempo"]
    expected = paired_difference(TEMPO[20:].astype(float), GRPO[20:].astype(float))
    assert row["value"] == TEMPO.mean()
    assert [row["difference"], *row["difference_interval"]] == pytest.approx(expected)
    assert row["over"] == "40 questions, 20 left out"
    assert "difference" not in numbers["rows"]["math accuracy", "grpo"]
    assert "n 40, 60" in numbers["notes"][0]
    assert f"{expected[0]:+.3f}" in capsys.readouterr().out
    assert f"| TEMPO | 1 | {TEMPO.mean():.3f} |" in (tmp_path / "out/compare.md").read_text()


def test_several_answers_are_compared_with_as_many(tmp_path):
    rights = {name: (RNG.random((20, 4)) < 0.5).astype(float) for name in ("tempo", "grpo")}
    runs = [evaluated(tmp_path / name, right, "n4") for name, right in rights.items()]
    row = compare(tmp_path / "out", *runs)["rows"]["math pass@2 of 4", "tempo"]
    expected = paired_difference(*(pass_at_k(right, 2) for right in rights.values()))
    assert [row["difference"], *row["difference_interval"]] == pytest.approx(expected)


def test_without_common_questions_or_answers_a_difference_has_no_interval(tmp_path):
    tempo, grpo = evaluated(tmp_path / "tempo", TEMPO), evaluated(tmp_path / "grpo", GRPO, first=1000)
    row = compare(tmp_path / "out", tempo, grpo)["rows"]["math accuracy", "tempo"]
    assert (row["difference_interval"], row["over"]) == (None, "nothing")
    assert row["difference"] == pytest.approx(TEMPO.mean() - GRPO.mean())


def test_a_method_has_the_value_of_the_questions_that_all_its_seeds_answered(tmp_path):
    answers = {("TEMPO", 0): TEMPO, ("TEMPO", 1): TEMPO[:20], ("GRPO", 0): GRPO}
    seeds = [
        evaluated(trained(tmp_path / f"{method}{seed}", [0.1], method=method, seed=seed), right)
        for (method, seed), right in answers.items()
    ]
    numbers = compare(tmp_path / "out", *seeds)
    row = numbers["rows"]["math accuracy", "tempo"]
    low, high = row["interval"]
    assert row["value"] == pytest.approx(TEMPO[:20].mean())
    assert low <= row["value"] <= high
    assert row["difference"] == pytest.approx(TEMPO[:20].mean() - GRPO[:20].mean())
    assert any("runs of tempo and grpo were evaluated differently: n 20, 60" in note for note in numbers["notes"])


def test_seeds_without_a_common_question_have_a_mean_without_an_interval(tmp_path):
    folders = [trained(tmp_path / str(seed), [0.1], method="GRPO", seed=seed) for seed in (0, 1)]
    runs = [evaluated(folder, GRPO, first=1000 * seed) for seed, folder in enumerate(folders)]
    row = compare(tmp_path / "out", *runs)["rows"]["math accuracy", "grpo"]
    assert (row["runs"], row["value"], row["interval"]) == (2, pytest.approx(GRPO.mean()), None)


def test_rewards_are_paired_over_seeds(tmp_path):
    """Differences of 0.1 and 0.3: mean 0.2, standard error 0.1, Student's quantile for one degree 12.706."""
    ends = {("GRPO", 0): 0.2, ("GRPO", 1): 0.4, ("SpanCredit", 1): 0.7, ("SpanCredit", 0): 0.3, ("SpanCredit", 2): 0.5}
    runs = [
        trained(tmp_path / f"{method}{seed}", [0.0] * 39 + [end, end], method=method, seed=seed)
        for (method, seed), end in ends.items()
    ]
    numbers = compare(tmp_path / "out", *runs)
    row = numbers["rows"]["reward at the end", "span_credit"]
    assert (row["runs"], row["over"], numbers["notes"]) == (3, "2 seeds", [])
    assert [row["difference"], *row["difference_interval"]] == pytest.approx([0.2, -1.0706, 1.4706], abs=1e-4)
    assert row["value"] == pytest.approx(0.5)


@pytest.mark.parametrize("width", [20, 60])
def test_a_terminal_narrower_than_the_table_shows_every_number(width, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    runs = evaluated(tmp_path / "tempo", TEMPO), evaluated(tmp_path / "a_method_of_a_long_name", GRPO)
    rows = compare(tmp_path / "out", *runs)["rows"].values()
    numbers = [f"{end:+.3f}" for row in rows for end in row.get("difference_interval") or ()]
    printed = capsys.readouterr().out.split()
    assert len(numbers) == 2
    assert {*numbers, "questions"} <= {*printed}


def test_a_method_is_compared_with_grpo_on_its_own_model_and_data(tmp_path, capsys):
    ends = {("TEMPO", "small"): 0.2, ("GRPO", "large"): 0.6, ("TEMPO", "large"): 0.5, ("GRPO", "small"): 0.3}
    runs = [
        trained(tmp_path / f"{method}-{model}", [end], method=method, seed=0, model={"name": model})
        for (method, model), end in ends.items()
    ]
    numbers = compare(tmp_path / "out", *runs)
    differences = {method: row.get("difference") for (_, method), row in numbers["rows"].items()}
    expected = {"tempo (small)": -0.1, "grpo (large)": None, "tempo (large)": -0.1, "grpo (small)": None}
    assert differences == pytest.approx(expected)
    assert "Differences from GRPO (small), GRPO (large)." in capsys.readouterr().out


def test_rewards_of_unknown_seeds_have_a_difference_without_an_interval(tmp_path):
    runs = [trained(tmp_path / name, [end]) for name, end in (("tempo", 0.5), ("grpo", 0.2))]
    row = compare(tmp_path / "out", *runs)["rows"]["reward at the end", "tempo"]
    assert (row["difference"], row["difference_interval"], row["over"]) == (pytest.approx(0.3), None, "nothing")


def test_what_makes_a_comparison_doubtful_is_said(tmp_path):
    settings = {"method": "TEMPO", "seed": 1, "config": {"training": {"beta": 0.0}}}
    first = trained(tmp_path / "a", [0.1], **settings, started="2026-02-01T12:00:00")
    second = trained(tmp_path / "b", [0.1], method="TEMPO", seed=1, config={"training": {"beta": 0.1}})
    config = {"training": {"beta": 0.2, "of_grpo_alone": 1}}
    other = evaluated(trained(tmp_path / "c", [0.1, 0.2], method="GRPO", seed=1, config=config), GRPO, temperature=0.7)
    evaluated(first, TEMPO, date="2026-01-31", temperature=1.0)
    numbers = compare(tmp_path / "out", first, second, other, label=["tempo", "tempo", "grpo"])
    notes = " ".join(numbers["notes"])
    assert "evaluation/math.json is older than the run's last start" in notes
    assert "count as two seeds of tempo, but differ in beta." in notes
    assert "runs of tempo have seeds [1, 1], expected each once." in notes
    assert "were evaluated differently: temperature 0.7, 1.0." in notes
    assert "tempo and grpo also differ in beta." in notes
    assert "tempo ends at step 1, grpo at step 2." in notes


def test_runs_that_differ_in_more_than_seeds_are_no_seeds_of_one_name(tmp_path):
    settings = {"a": {"beta": 0.0, "seed": 1, "data_seed": 1}, "b": {"beta": 0.0, "seed": 2, "data_seed": 2}}
    settings["c"] = {"beta": 0.1, "seed": 1, "logging_steps": 5}
    runs = [
        trained(tmp_path / name, [0.1], method="TEMPO", seed=own["seed"], config={"training": own})
        for name, own in settings.items()
    ]
    numbers = compare(tmp_path / "out", *runs, trained(tmp_path / "d", [0.1], method="TEMPO"))
    rows = numbers["rows"]
    assert numbers["notes"] == []  # the names say what differs
    counted = {method: row["runs"] for (_, method), row in rows.items()}
    assert counted == {"tempo (beta 0.0)": 2, "tempo (beta 0.1)": 1, "tempo": 1}


def test_a_setting_is_told_by_a_name_only_if_the_name_has_it_whole(tmp_path):
    settings = [("GRPO", 1e-8, 0.3), ("TEMPO", 1e-8, 0.2), ("TEMPO", 1e-6, 0.2)]
    runs = [
        trained(tmp_path / str(n), [0.1], method=method, config={"training": {"adam_epsilon": adam, "epsilon": own}})
        for n, (method, adam, own) in enumerate(settings)
    ]
    notes = compare(tmp_path / "out", *runs)["notes"]
    assert notes == [f"tempo (adam_epsilon {adam}) and grpo also differ in epsilon." for adam in (1e-8, 1e-6)]


def test_a_run_is_known_by_its_record_and_without_one_by_its_folder_or_label(tmp_path):
    run = trained(tmp_path / "x", [0.1], method="TreeRPO_entropy", seed=3, model={"name": "Qwen/Qwen3-4B"})
    other = evaluated(tmp_path / "Qwen3-1.7B", TEMPO)
    names = {method for _, method in compare(tmp_path / "out", run, other)["rows"]}
    assert names == {"treerpo_entropy (qwen3-4b)", "Qwen3-1.7B (unknown)"}
    checkpoint = trained(run / "checkpoint-1", [0.1])
    evaluated(checkpoint, TEMPO)
    assert {m for _, m in compare(tmp_path / "out", run, checkpoint / "evaluation", label=["a", "b"])["rows"]} == {
        "a",
        "b",
    }


def test_folders_of_one_name_without_a_record_are_no_seeds_of_one_method(tmp_path):
    a, b = (trained(tmp_path / name / "checkpoint-5", [reward]) for name, reward in (("a", 0.4), ("b", 0.6)))
    rows = compare(tmp_path / "out", a, b)["rows"]
    assert {method: row["value"] for (_, method), row in rows.items()} == {str(a): 0.4, str(b): 0.6}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["empty"], "empty is not the folder of a run, expected trainer_state.json"),
        (["absent"], "absent is not the folder of a run"),
        (["run", "run/evaluation"], "twice, which would count"),
        (["run", "--label", "a", "b"], "expected one for each of the 1 runs"),
        (["broken"], "does not have a graded question a line"),
    ],
)
def test_what_cannot_be_compared_is_refused(given, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    evaluated(tmp_path / "run", TEMPO)
    write_atomically(evaluated(tmp_path / "broken", TEMPO) / "evaluation/math.greedy.jsonl", '{"row_id": 1}\n')
    assert cli.main(["compare", "-o", "out", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


BROKEN = [
    ("trainer_state.json", '{"log_hist'),
    ("tempo/run.json", "["),
    ("trainer_state.json", "[]"),
    ("tempo/trees_3.parquet", "PAR1 cut"),
    ("evaluation/math.json", '{"task": "math", "metric": "accuracy", "value": "1", "n": 1}'),
    ("evaluation/medqa.json", "\udcff"),
]


@pytest.mark.parametrize(("file", "content"), BROKEN)
def test_a_broken_file_of_a_run_is_named(file, content, tmp_path, capsys):
    write_atomically(tmp_path / file, content.encode(errors="surrogateescape"))
    for verb in ["report", *["compare"] * (not file.endswith("parquet"))]:
        assert cli.main([verb, str(tmp_path), "-o", str(tmp_path / "out")]) == 2
        assert str(tmp_path / file) in capsys.readouterr().err
