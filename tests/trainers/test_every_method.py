"""The matrix: every method with LoRA, a KL term, several iterations, a resume, and two ranks."""

import re

import pytest
import torch

from tempo_trl import GRPOLambdaConfig
from tempo_trl.credit import span_advantages, tempo_advantages
from tempo_trl.credit.advantages import outcome_advantages, outcome_and_td_errors
from tempo_trl.credit.grown_tree import branches
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.credit.siblings import sibling_advantages
from tempo_trl.runs.metrics import METRICS
from tempo_trl.runs.token_places import TokenTexts

from ..credit.groups import as_tensors, prefix_baseline_advantages
from ..tiny import tiny_tokenizer
from .engines import NEEDS_DEEPSPEED, launcher_of
from .every_method import EVERY_METHOD, TREES, trainer_of
from .launching import run_ranks, torchrun
from .recording import assert_same, assert_same_weights, weights

EVERYTHING = {"lora": True, "beta": 0.04, "num_iterations": 2, "steps_per_generation": 2, "max_steps": 8}
OF_THE_RANKS = ("beta=0.04", "num_iterations=2", "max_steps=4")
PREFIXES = ("tempo", "rollout", "treerpo", "grpo_lambda", "ppo", "spans")
SPLIT = [method for method in EVERY_METHOD if method not in TREES]


@pytest.mark.matrix
@pytest.mark.both_stacks
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_with_lora_a_kl_term_and_iterations_a_resumed_run_is_the_run_that_never_stopped(method, tiny_model, tmp_path):
    saves = EVERYTHING | {"save_strategy": "steps", "save_steps": 4}
    whole = trainer_of(method, tiny_model, tmp_path, **saves)
    before = weights(whole)
    whole.train()
    moved = [name for name, value in weights(whole).items() if not torch.equal(value, before[name])]
    assert moved
    assert all("lora" in name for name in moved)
    assert any("kl" in entry for entry in whole.state.log_history)

    resumed = trainer_of(method, tiny_model, tmp_path, **saves)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert [batch.completion_ids for batch in resumed.batches] == [whole.batches[-1].completion_ids]
    assert torch.equal(resumed.batches[-1].output["advantages"], whole.batches[-1].output["advantages"])
    assert_same_weights(resumed, whole)


@pytest.fixture(scope="module")
def ranks(tiny_model, tmp_path_factory):
    """What two ranks saw of a run of each method, with a KL term and two iterations."""
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(torchrun(2), 2, "tests.trainers.every_method", tiny_model, folder, *OF_THE_RANKS)


@pytest.mark.matrix
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_two_ranks_hold_the_same_weights_and_log_the_same_credit(method, ranks, tiny_model, tmp_path):
    first, second = (rank[method] for rank in ranks)
    start = weights(trainer_of(method, tiny_model, tmp_path))
    assert any(not torch.equal(value, start[name]) for name, value in first["weights"].items())
    assert_same(first["weights"], second["weights"])
    for a, b in zip(first["history"], second["history"], strict=True):
        ours = [key for key in a if key.split("/")[0] in PREFIXES and not key.endswith("_time")]
        assert {key: a[key] for key in ours} == {key: b[key] for key in ours}


@pytest.mark.matrix
@pytest.mark.parametrize("method", SPLIT)
def test_a_group_split_over_two_ranks_gets_the_credit_of_a_whole_one(method, ranks):
    if method == "ppo":
        pytest.skip("its advantages come from a critic, not from the group: tests/trainers/test_ppo.py")
    covariance = PrefixCovariance()  # of the prefix baseline
    for batches in zip(*(rank[method]["batches"] for rank in ranks), strict=True):
        ids, rewards = [row for batch in batches for row in batch.completion_ids], batches[0].rewards_per_func[:, 0]
        inputs = *as_tensors(ids, rewards.tolist()), 4
        width = inputs[0].shape[1]
        advantages = torch.cat([spread(batch.output, width) for batch in batches])
        torch.testing.assert_close(advantages, expected_credit(method, inputs, covariance), rtol=1e-4, atol=1e-5)


@pytest.mark.matrix
@pytest.mark.parametrize("method", TREES)
def test_a_rank_credits_its_own_trees_with_its_own_rewards(method, ranks):
    for number, rank in enumerate(ranks):
        for batch in rank[method]["batches"]:
            rewards = batch.rewards_per_func[4 * number : 4 * number + 4, 0]
            assert [tree.completion_ids(leaf) for tree in batch.trees for leaf in tree.rows] == batch.completion_ids
            inputs = *as_tensors(batch.completion_ids, rewards.tolist()), 4
            expected = credit_of_trees(method, batch.trees, inputs)
            torch.testing.assert_close(spread(batch.output, expected.shape[1]), expected, rtol=1e-4, atol=1e-5)


def credit_of_trees(method: str, trees: list, inputs: tuple) -> torch.Tensor:
    ids, lengths, rewards, _ = inputs
    grown, inside = branches(trees, ids.shape[1]), torch.arange(ids.shape[1]) < lengths[:, None]
    if method.startswith("treerpo"):
        kind = {"average": "leaves"} if method.endswith("entropy") else {"scale": "std"}
        return sibling_advantages(grown.segment, grown.parent, grown.leaf, rewards, **kind) * inside
    if method.startswith("tempo"):
        return tempo_on_trees(trees, inputs)
    pytest.skip("its baseline learns from all ranks: checked on one process in test_grown_trees.py")


def tempo_on_trees(trees: list, inputs: tuple, td_coef: float = 1.0) -> torch.Tensor:
    ids, lengths, rewards, size = inputs
    weights = torch.cat([tree.leaf_weights() for tree in trees])
    outcome = outcome_advantages(rewards, size)
    outcome, td = outcome_and_td_errors(prefix_tree(ids, lengths, size), outcome, ids.shape[1], weights)
    return (outcome + td_coef * td) * (size * weights.float())[:, None]


def spread(output: dict, width: int) -> torch.Tensor:
    """A rank's advantages on the tokens of its completions, `(B, width)`."""
    mask = output["completion_mask"]
    advantages = output["advantages"].view(len(mask), -1) * mask
    return torch.nn.functional.pad(advantages, (0, width - advantages.shape[1]))


def credit_of_halves(inputs: tuple) -> torch.Tensor:
    """Span credit of credit_functions.halves, judged from the tokens."""
    ids, lengths, _, size = inputs
    rows = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    texts = TokenTexts(tiny_tokenizer())
    found = [texts(row) for row in rows]
    halves = [place.tokens(0, (len(place.text) + 1) // 2) for place in found]
    rewards = torch.tensor([[float(row[0] % 3), float(sum(row) % 2)] for row in rows])
    starts, ends = torch.full((2, len(rows), 2), -1)
    starts[:, 0], ends[:, 0] = torch.tensor(halves).T
    return span_advantages(rewards, starts, ends, lengths, ids.shape[1], size)


def expected_credit(method: str, inputs: tuple, covariance: PrefixCovariance) -> torch.Tensor:
    ids, lengths, rewards, size = inputs
    if method == "tempo":
        return tempo_advantages(*inputs)
    if method == "prefix_baseline":
        advantages = prefix_baseline_advantages(*inputs, covariance)
        covariance.update([pair_statistics(prefix_tree(ids, lengths, size), outcome_advantages(rewards, size))])
        return advantages
    inside = torch.arange(ids.shape[1]) < lengths[:, None]
    outcome = outcome_advantages(rewards, size).float()[:, None] * inside
    if method in ("gigpo", "hgpo"):  # the advantage among the visits of the prompt
        groups = rewards.view(-1, size)
        relative = (groups - groups.mean(dim=1, keepdim=True)) / (groups.std(dim=1, keepdim=True) + 1e-6)
        return relative.view(-1, 1) * inside + (outcome if method == "gigpo" else 0.0)
    if method == "grpo_lambda":
        return outcome.clamp(min=GRPOLambdaConfig.advantage_floor)
    if method == "span_credit":
        return outcome + credit_of_halves(inputs)
    if method == "token_credit":
        return outcome * (0.5 + torch.arange(ids.shape[1]) / lengths[:, None])  # credit_functions.later_counts_more
    return outcome


@pytest.mark.matrix
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_metric_of_ours_is_explained(method, ranks):
    logged = {name for entry in ranks[0][method]["history"] for name in entry if name.split("/")[0] in PREFIXES}
    known = {re.sub(r"_\d+$", "_L", re.sub("spans/.*/(mean|credit)", r"spans/NAME/\1", name)) for name in logged}
    assert known <= METRICS.keys()


@pytest.mark.matrix
@NEEDS_DEEPSPEED
def test_zero2_arrives_at_the_weights_of_ddp_with_every_method(ranks, tiny_model, tmp_path):
    launcher = launcher_of("zero2", tmp_path)
    sharded = run_ranks(launcher, 2, "tests.trainers.every_method", tiny_model, tmp_path, *OF_THE_RANKS)
    for method in EVERY_METHOD:
        assert sharded[0][method]["batches"][0].completion_ids == ranks[0][method]["batches"][0].completion_ids
        for name, value in ranks[0][method]["weights"].items():
            ours = sharded[0][method]["weights"][name]
            torch.testing.assert_close(ours, value, rtol=1e-4, atol=1e-5, msg=f"{method}, {name}")
