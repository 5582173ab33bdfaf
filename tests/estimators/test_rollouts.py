"""Samples are of the tabular policy, within their budget, and the same for the same seed."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from benchmarks.estimators.measure import sampled
from benchmarks.estimators.rollouts import Entropy, Fixed, Independent
from benchmarks.estimators.sampler import TabularSampler
from benchmarks.estimators.task import Task
from tempo_trl.rollout.growth import Request

from .trees import completions, random_tree

TASK = Task((1, 3), depth=6, irrelevant=0.5)
ROLLOUTS = [Independent(3), Independent(8), Fixed(2, 3), Fixed(4, 2), Entropy(8), Entropy(5)]


def counted(tree, ids: np.ndarray) -> np.ndarray:
    place = tree.vocabulary ** np.arange(tree.depth - 1, -1, -1)
    return np.bincount(ids @ place, minlength=tree.vocabulary**tree.depth)


def test_independent_completions_have_the_probabilities_of_the_tree():
    tree, rng = random_tree(), np.random.default_rng(1)
    ids = Independent(4).sample(tree, 12 * tree.depth, 1000, rng).ids.numpy()
    _, probability, _ = completions(tree)
    assert chisquare(counted(tree, ids), probability * len(ids)).pvalue > 1e-3


def test_continuations_asked_for_by_trees_have_them_too():
    tree = random_tree()
    sampler = TabularSampler(tree, np.random.default_rng(2))
    ((*answers,),) = sampler.sample([Request([], [2], 5000, 2)])
    ids = np.array([[2, *answer.token_ids] for answer in answers])
    below, probability = counted(tree, ids)[18:], completions(tree)[1][18:]  # the completions that begin with 2
    assert below.sum() == 5000
    assert chisquare(below, probability / probability.sum() * 5000).pvalue > 1e-3


def test_a_continuation_tells_its_log_probabilities_and_the_likeliest_tokens():
    tree = random_tree()
    requests = [Request([9], [1], 1, 2), Request([9], [], 2, 1)]
    ((long,), (short, _)) = TabularSampler(tree, np.random.default_rng(0)).sample(requests, top_k=2)
    first, second = long.token_ids
    states = [2, 3 * 2 + 1 + first]  # token 1 leads from 0 to 3 * 0 + 1 + 1
    assert long.logprobs == pytest.approx([np.log(tree.policy[2, first]), np.log(tree.policy[states[1], second])])
    assert len(short.token_ids) == len(short.top.token_ids) == 1
    for position, state in enumerate(states):
        likeliest = np.argsort(-tree.policy[state])[:2]
        assert long.top.token_ids[position].tolist() == likeliest.tolist()
        expected = np.log(tree.policy[state][likeliest])
        assert long.top.logprobs[position].numpy() == pytest.approx(expected, abs=1e-6)


def test_rewards_are_draws_of_the_success_probability():
    tree = Task((0,), success=0.3, depth=2).tree()
    sample = Independent(5).sample(tree, 10_000, 1, np.random.default_rng(0))
    assert set(sample.rewards.tolist()) == {0.0, 1.0}
    assert (sample.rewards.bool() == (sample.ids[:, 0] == 0)).all()  # importance 1: certain either way
    assert sample.rewards.mean() == pytest.approx(0.3, abs=4 * (0.21 / 5000) ** 0.5)


@pytest.mark.parametrize("rollout", ROLLOUTS, ids=str)
def test_no_batch_generates_more_than_its_budget_nor_leaves_room_for_one_more_group(rollout):
    tree, budget = TASK.tree(), 400
    sample = rollout.sample(tree, budget, 5, np.random.default_rng(0))
    assert len(sample.tokens) == 5 and sample.bounds[-1] == len(sample.ids)
    for k in range(5):
        batch, group = sample.batch(k), generated(sample.batch(k), tree.depth)
        assert sum(group) == sample.tokens[k] <= budget
        assert budget - sum(group) < sample.num_generations * tree.depth
        assert len(batch.ids) % sample.num_generations == 0


def generated(batch, depth: int) -> list[int]:
    """Tokens that each group of a batch took, by looking at what came out."""
    if batch.trees is None:
        return [depth] * len(batch.ids)
    return [sum(len(segment.token_ids) for segment in grown.segments) for grown in batch.trees]


@pytest.mark.parametrize("rollout", [Fixed(2, 3), Entropy(8)], ids=str)
def test_rows_are_the_completions_of_the_trees_and_a_repeated_leaf_has_one_reward(rollout):
    task = Task((1,), success=0.5, importance=0.8, depth=6, irrelevant=0.02)
    sample = rollout.sample(task.tree(), 200, 20, np.random.default_rng(0))
    leaves = [(number, leaf) for number, grown in enumerate(sample.trees) for leaf in grown.rows]
    rows = [sample.trees[number].completion_ids(leaf) for number, leaf in leaves]
    assert sample.ids.tolist() == rows
    rewards = {}
    for leaf, reward in zip(leaves, sample.rewards.tolist(), strict=True):
        assert rewards.setdefault(leaf, reward) == reward
    assert len(rewards) < len(leaves) or isinstance(rollout, Fixed)


@pytest.mark.parametrize("rollout", [Independent(4), Fixed(2, 2), Entropy(6)], ids=str)
def test_the_same_seed_gives_the_same_sample_and_another_seed_another(rollout):
    one, same, other = (sampled(TASK.tree(), rollout, 3, seed, budget=300) for seed in (5, 5, 6))
    assert torch.equal(one.ids, same.ids) and torch.equal(one.rewards, same.rewards)
    assert one.ids.shape != other.ids.shape or not torch.equal(one.ids, other.ids)


def test_torch_s_own_generator_is_left_as_it_was():
    before = torch.random.get_rng_state()
    sampled(TASK.tree(), Entropy(6), 1, 0, budget=300)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_budget_without_room_for_a_group_is_refused():
    with pytest.raises(ValueError, match="expected at least the 384 of one group"):
        Independent(64).sample(TASK.tree(), 300, 1, np.random.default_rng(0))
