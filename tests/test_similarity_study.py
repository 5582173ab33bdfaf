"""The study of similar prefixes compares as the package does, and its page has its numbers."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import similarity
from tempo_trl.credit.similarity import prefix_similarities

DOCS = Path(__file__).parents[1] / "docs" / "evidence"
PAGE = (DOCS / "language_model.md").read_text()
NAMES = {
    "plain prefix mean (TEMPO's values)": "TEMPO's prefix values, without the completion itself",
    "adaptive prefix baseline": "adaptive prefix baseline",
    similarity.OURS: "kernel baseline",
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    """Completions whose reward is decided by their words, in any order."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("samples") / "samples.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for prompt in range(14):
            kinds = rng.integers(0, 2, 24)
            words = [["red", "green", "blue"] if kind else ["one", "two", "three"] for kind in kinds]
            texts = [" ".join([str(rng.integers(10**6)), *rng.permutation(own)]) for own in words]
            row = {"prompt": f"prompt {prompt}", "completions": texts, "rewards": kinds.astype(float).tolist()}
            file.write(json.dumps(row) + "\n")
    return path


def test_what_it_calls_ours_is_what_the_package_computes():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 12)
    ids = np.where(np.arange(40) < lengths[:, None], rng.integers(0, 9, (12, 40)), 0)
    batch = similarity.Samples(ids, lengths, np.zeros((3, 4)), np.arange(3), 4)
    computed = similarity.compared(batch, similarity.VARIANTS[similarity.OURS])
    package = prefix_similarities(torch.from_numpy(ids), torch.from_numpy(lengths), 4)
    np.testing.assert_allclose(computed.values, package, atol=1e-5)


def test_every_variant_keeps_the_whole_completions_and_stays_between_0_and_1():
    rng = np.random.default_rng(1)
    lengths = np.full(8, 30)
    batch = similarity.Samples(rng.integers(0, 9, (8, 30)), lengths, np.zeros((2, 4)), np.arange(2), 4)
    for name, variant in similarity.VARIANTS.items():
        values = similarity.compared(batch, variant).values
        assert np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1, name
        np.testing.assert_allclose(values[..., -1], values[..., -1].transpose(0, 2, 1), atol=1e-5, err_msg=name)


def test_it_finds_that_words_in_any_order_predict_the_reward(samples, tmp_path, capsys):
    output = tmp_path / "numbers.json"
    similarity.main([str(samples), "--sizes", "8", "--quick", "--output", str(output)])
    numbers = json.loads(output.read_text())
    errors = numbers["sizes"]["8"]["errors"]
    assert errors[similarity.OURS]["error"] < 0.8 < errors["adaptive prefix baseline"]["error"] < 1.2
    low, high = errors[similarity.OURS]["interval"]
    assert low <= errors[similarity.OURS]["error"] <= high
    assert similarity.OURS in capsys.readouterr().out
    assert numbers["provenance"]["command"].startswith("python -m benchmarks.similarity samples.jsonl.gz --sizes 8")


def shown(error: dict) -> str:
    low, high = error["interval"]
    return f"{error['error']:.3f} [{low:.3f}, {high:.3f}] | {error['by_eighth'][6]:.3f}"


@pytest.mark.parametrize("samples", ["code", "words"])
def test_the_page_says_the_numbers_of_the_study(samples):
    sizes = json.loads((DOCS / f"similarity_{samples}.json").read_text())["sizes"]
    for name, label in NAMES.items():
        cells = " | ".join(shown(size["errors"][name]) for size in sizes.values())
        assert f"| {label} | {cells} |" in PAGE


def test_the_page_says_the_numbers_of_every_variant():
    sizes = {
        samples: json.loads((DOCS / f"similarity_{samples}.json").read_text())["sizes"]
        for samples in ("code", "words")
    }
    for name in similarity.VARIANTS:
        cells = [
            f"{size['errors'][name][half]:.3f}"
            for size in (*sizes["code"].values(), sizes["words"]["8"])
            for half in ("chosen_by", "error")
        ]
        label = "the kernel baseline as it is" if name == similarity.OURS else name
        assert f"| {label} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("samples", ["code", "words"])
def test_the_numbers_say_how_they_came_about(samples):
    origin = json.loads((DOCS / f"similarity_{samples}.json").read_text())["provenance"]
    assert f"`{origin['command']}`" in PAGE
    assert re.fullmatch("[0-9a-f]{40}", origin["commit"]) and not origin["dirty"]
