"""Only equal measurements are compared, with as many answers per question; other differences are said."""

import json
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.runs.statistics import avg_at_n, paired_difference, pass_at_k

from .comparing import compare, differences

QUESTIONS = 20


def sampled(folder: Path, *ks: int, questions: int = QUESTIONS, **decoding) -> dict[int, np.ndarray]:
    """Give a run decodings of so many answers to each question; what was graded, by the number of answers."""
    (folder / "evaluation").mkdir(parents=True)
    rng, graded, entries = np.random.default_rng(len(folder.name)), {}, []
    for k in ks:
        graded[k] = (rng.random((questions, k)) < 1 / k).astype(float)
        rows = [
            {"row_id": i, "source": "math", "prompt_sha256": str(i), "answers": ["2"] * k, "correct": row.tolist()}
            for i, row in enumerate(graded[k])
        ]
        (folder / f"evaluation/math.n{k}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for metric, value in ((f"avg@{k}", avg_at_n(graded[k])), ("pass@4", pass_at_k(graded[k], 4))):
            entry = {"task": "math", "metric": metric, "value": value.mean(), "n": questions, "k": k}
            entries.append(entry | decoding)
    (folder / "evaluation/math.json").write_text(json.dumps(entries))
    return graded


def values(numbers: dict) -> dict[str, float]:
    return {cell["method"]: cell["value"] for cell in numbers["cells"]}


@pytest.mark.parametrize(("of_tempo", "of_grpo"), [((4, 16), (16,)), ((4, 8, 16), (4, 8)), ((4,), (16,))])
def test_a_pair_is_compared_by_each_number_of_answers_that_both_have(of_tempo, of_grpo, tmp_path):
    tempo, grpo = sampled(tmp_path / "tempo", *of_tempo), sampled(tmp_path / "grpo", *of_grpo)
    for runs in (("tempo", "grpo"), ("grpo", "tempo")):
        numbers = compare(tmp_path / "out", *(tmp_path / name for name in runs))
        found = {gap["metric"]: [gap["difference"], *gap["paired_interval"]] for gap in differences(numbers)}
        both = set(of_tempo) & set(of_grpo)
        expected = {f"pass@4 of {k}": paired_difference(pass_at_k(tempo[k], 4), pass_at_k(grpo[k], 4)) for k in both}
        expected |= {f"avg@{k}": paired_difference(avg_at_n(tempo[k]), avg_at_n(grpo[k])) for k in both}
        assert found.keys() == expected.keys()
        assert all(found[name] == pytest.approx(expected[name]) for name in found)
        assert numbers["notes"] == []  # the values are the means of the answers


def test_of_two_evaluations_of_a_task_the_one_with_more_questions_counts_and_a_different_number_is_said(tmp_path):
    entries = {n: {"task": "math", "metric": "accuracy", "value": n / 1000, "n": n} for n in (100, 200, 500)}
    for name, ns in (("tempo", (100, 500, 200)), ("grpo", (100, 200))):
        (tmp_path / name / "evaluation").mkdir(parents=True)
        (tmp_path / name / "evaluation/math.json").write_text(json.dumps([entries[n] for n in ns]))
    numbers = compare(tmp_path / "out", tmp_path / "tempo", tmp_path / "grpo")
    assert values(numbers) == {"tempo": 0.5, "grpo": 0.2}
    assert numbers["notes"] == ["tempo and grpo on math (accuracy) were evaluated differently: n 500 and 200."]


THINKS = "max_tokens 8192 and 1024; thinking True and False"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"temperature": 1.0}, {"temperature": 0.7}, "temperature 1.0 and 0.7"),
        ({"top_p": 1.0, "top_k": 0}, {"top_p": 0.9, "top_k": 20}, "top_p 1.0 and 0.9; top_k 0 and 20"),
        ({"questions": 20}, {"questions": 10}, "n 20 and 10"),
        ({"max_tokens": 8192, "thinking": True}, {"max_tokens": 1024, "thinking": False}, THINKS),
    ],
)
def test_decodings_of_a_pair_that_differ_are_told(ours, theirs, said, tmp_path):
    sampled(tmp_path / "tempo", 4, **ours)
    sampled(tmp_path / "grpo", 4, **theirs)
    notes = compare(tmp_path / "out", tmp_path / "tempo", tmp_path / "grpo")["notes"]
    assert f"tempo and grpo on math (pass@4 of 4) were evaluated differently: {said}." in notes


def test_decodings_of_two_seeds_that_differ_are_told_and_one_of_which_nothing_tells_is_not_called_another(tmp_path):
    runs = [tmp_path / f"tempo-seed{seed}" for seed in (0, 1, 2)]
    for run, temperature in zip(runs, (1.0, 0.7, None), strict=True):
        sampled(run, 4, temperature=temperature)
    notes = compare(tmp_path / "out", *runs)["notes"]
    for note, metric in zip(notes, ("avg@4", "pass@4 of 4"), strict=True):
        assert note.endswith(f"tempo on math ({metric}), but were evaluated differently: temperature 1.0 and 0.7.")
