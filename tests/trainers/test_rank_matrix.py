"""1, 2 and 4 real ranks on the same scripted completions: the same credit, the same metrics, the same weights."""

from itertools import product

import pytest
import torch

from .launching import run_ranks, torchrun
from .rank_matrix import CASES, EVAL_PROMPTS, EVAL_ROWS, GROUP_EVAL
from .recording import assert_same

pytestmark = pytest.mark.matrix

WORLDS = ("2 ranks", "4 ranks")
RUNS = [*product(CASES, WORLDS)]


@pytest.fixture(scope="module")
def results(tiny_model, tmp_path_factory) -> dict[str, list[dict]]:
    """What each rank of each world wrote, case by case."""
    module, folder = "tests.trainers.rank_matrix", tmp_path_factory.mktemp
    ranks = {world: int(world[0]) for world in ("1", "2 ranks", "4 ranks")}
    return {world: run_ranks(torchrun(n), n, module, tiny_model, folder("matrix")) for world, n in ranks.items()}


def batches_of(ranks: list[dict], case: str) -> list[tuple[bool, list[list[int]], list[torch.Tensor]]]:
    """Each batch of all ranks together: (training, completion ids, each row's advantages without its padding)."""
    joined = []
    for parts in zip(*(rank[case]["batches"] for rank in ranks), strict=True):
        ids = [row for _, rows, _ in parts for row in rows]
        advantages = [row for _, _, rows in parts for row in rows]
        joined.append((parts[0][0], ids, [row[: len(tokens)] for row, tokens in zip(advantages, ids, strict=True)]))
    return joined


def evaluated(batches, case: str) -> tuple[list[list[int]], list[torch.Tensor]]:
    """The evaluation's rows in order, without those that only fill up the last batch (as accelerate does)."""
    ids = [row for training, rows, _ in batches if not training for row in rows]
    advantages = [row for training, _, rows in batches if not training for row in rows]
    # What fills the last batch up differs with the ranks, and is part of the batch's standard deviation.
    rows = EVAL_ROWS if CASES[case].get("scale_rewards") == "batch" else EVAL_PROMPTS * GROUP_EVAL
    return ids[:rows], advantages[:rows]


def assert_equal_rows(ours, expected):
    assert ours[0] == expected[0]
    for row, other in zip(ours[1], expected[1], strict=True):
        assert torch.equal(row, other)


@pytest.mark.parametrize(("case", "world"), RUNS)
def test_credit_does_not_depend_on_the_number_of_ranks(case, world, results):
    alone, together = batches_of(results["1"], case), batches_of(results[world], case)
    trained = [batch for batch in alone if batch[0]]
    assert len(trained) == len([batch for batch in together if batch[0]]) > 0
    for expected, ours in zip(trained, (batch for batch in together if batch[0]), strict=True):
        assert_equal_rows(ours[1:], expected[1:])
    assert_equal_rows(evaluated(together, case), evaluated(alone, case))
    assert_same(results[world][0][case]["weights"], results["1"][0][case]["weights"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("case", "world"), RUNS)
def test_every_rank_calls_the_same_collectives_in_the_same_order(case, world, results):
    sequences = [rank[case]["collectives"] for rank in results[world]]
    assert sequences[0]
    assert all(sequence == sequences[0] for sequence in sequences)


@pytest.mark.parametrize("world", WORLDS)
def test_the_collectives_of_equal_geometry_do_not_depend_on_the_data(world, results):
    names = ["groups of 8", "only flat groups on the first ranks", "no branch at all"]
    names += ["unscorable completions on the first ranks", "lengths that differ much between prompts"]
    sequences = {name: results[world][0][name]["collectives"] for name in names}
    assert all(sequence == sequences["groups of 8"] for sequence in sequences.values())


@pytest.mark.parametrize(("case", "world"), RUNS)
def test_metrics_are_those_of_all_completions(case, world, results):
    def trained(ranks):
        return [entry for entry in ranks[0][case]["metrics"] if "tempo/unique_tokens" in entry]

    for ours, expected in zip(trained(results[world]), trained(results["1"]), strict=True):
        assert ours == pytest.approx(expected, rel=1e-5)
    assert all(rank[case]["table"] == results[world][0][case]["table"] for rank in results[world])
