"""Runs are compared by the same decoding, the largest that they share; where they share none, that is said."""

import json
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.runs.statistics import paired_difference, pass_at_k

from .comparing import compare

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
        value = pass_at_k(graded[k], 4).mean()
        entries.append({"task": "math", "metric": "pass@4", "value": value, "n": questions, "k": k} | decoding)
    (folder / "evaluation/math.json").write_text(json.dumps(entries))
    return graded


def values(numbers: dict) -> dict[str, float]:
    return {cell["method"]: cell["value"] for cell in numbers["cells"]}


@pytest.mark.parametrize(("of_tempo", "of_grpo", "shared"), [((4, 16), (16,), 16), ((4, 8, 16), (4, 8), 8)])
def test_a_pair_is_compared_by_the_largest_decoding_that_both_have(of_tempo, of_grpo, shared, tmp_path):
    tempo, grpo = sampled(tmp_path / "tempo", *of_tempo), sampled(tmp_path / "grpo", *of_grpo)
    for runs in (("tempo", "grpo"), ("grpo", "tempo")):
        numbers = compare(tmp_path / "out", *(tmp_path / name for name in runs))
        [gap] = numbers["differences"]
        expected = paired_difference(pass_at_k(tempo[shared], 4), pass_at_k(grpo[shared], 4))
        assert [gap["difference"], *gap["interval"]] == pytest.approx(expected)
        assert numbers["notes"] == []


def test_one_run_alone_has_its_largest_decoding(tmp_path):
    graded = sampled(tmp_path / "tempo", 4, 16)
    assert values(compare(tmp_path / "out", tmp_path / "tempo"))["tempo"] == pytest.approx(
        pass_at_k(graded[16], 4).mean()
    )


def test_where_not_all_share_a_decoding_each_has_that_of_the_baseline(tmp_path):
    """GRPO has 4 alone, so TEMPO's 4 is compared with it, though 16 is larger and PPO has it."""
    graded = {name: sampled(tmp_path / name, *ks) for name, ks in (("tempo", (4, 16)), ("grpo", (4,)), ("ppo", (16,)))}
    numbers = compare(tmp_path / "out", *(tmp_path / name for name in graded))
    used = {"tempo": 4, "grpo": 4, "ppo": 16}
    assert values(numbers) == pytest.approx({name: pass_at_k(graded[name][k], 4).mean() for name, k in used.items()})
    assert numbers["notes"] == ["ppo and grpo on math (pass@4) were evaluated differently: k 16 and 4."]


def test_of_two_results_with_as_many_answers_both_have_that_of_the_same_questions(tmp_path):
    """A limited evaluation beside the whole one: 100 questions are compared with 100, and the whole with the whole."""
    entries = {n: {"task": "math", "metric": "accuracy", "value": n / 1000, "n": n} for n in (100, 200, 500)}
    for name, ns in (("tempo", (100, 500, 200)), ("grpo", (100, 200))):
        (tmp_path / name / "evaluation").mkdir(parents=True)
        (tmp_path / name / "evaluation/math.json").write_text(json.dumps([entries[n] for n in ns]))
    assert values(compare(tmp_path / "out", tmp_path / "tempo", tmp_path / "grpo")) == {"tempo": 0.2, "grpo": 0.2}


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"temperature": 1.0}, {"temperature": 0.7}, "temperature 1.0 and 0.7"),
        ({"top_p": 1.0, "top_k": 0}, {"top_p": 0.9, "top_k": 20}, "top_p 1.0 and 0.9; top_k 0 and 20"),
        ({"questions": 20}, {"questions": 10}, "n 20 and 10"),
    ],
)
def test_decodings_of_a_pair_that_differ_are_told(ours, theirs, said, tmp_path):
    sampled(tmp_path / "tempo", 4, **ours)
    sampled(tmp_path / "grpo", 4, **theirs)
    notes = compare(tmp_path / "out", tmp_path / "tempo", tmp_path / "grpo")["notes"]
    assert f"tempo and grpo on math (pass@4) were evaluated differently: {said}." in notes


def test_decodings_of_two_seeds_that_differ_are_told_and_one_of_which_nothing_tells_is_not_called_another(tmp_path):
    runs = [tmp_path / f"tempo-seed{seed}" for seed in (0, 1, 2)]
    for run, temperature in zip(runs, (1.0, 0.7, None), strict=True):
        sampled(run, 4, temperature=temperature)
    [note] = compare(tmp_path / "out", *runs)["notes"]
    assert note.endswith("were evaluated differently on math (pass@4): temperature 1.0 and 0.7.")
