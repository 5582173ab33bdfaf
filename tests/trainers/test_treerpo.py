"""Both TreeRPOs on real trees: what reaches TRL's loss is the credit of the tree, each token as often as it should."""

from functools import cache

import pytest
import torch

from tempo_trl import TreeRPOConfig, TreeRPOTrainer
from tempo_trl.credit.grown_tree import branches
from tempo_trl.credit.siblings import sibling_advantages

from .every_method import trainer_of
from .probing import assert_same_gradients, gradient_of_loss, gradients
from .recording import config, parity, questions, share_of_threes

pytestmark = pytest.mark.matrix

BOTH = ("treerpo", "treerpo_entropy")


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The trainer of a run of one step, once for each method and options."""

    @cache
    def trained(method, **options):
        folder = tmp_path_factory.mktemp(method)
        trainer = trainer_of(method, tiny_model, folder, reward=share_of_threes, max_steps=1, **options)
        trainer.train()
        return trainer

    return trained


@pytest.mark.parametrize("method", BOTH)
def test_once_each_token_of_a_tree_is_in_the_loss_once(method, trained):
    batch = trained(method).batches[0]
    grown = branches(batch.trees, batch.output["advantages"].shape[1])
    counted = grown.segment[batch.output["tool_mask"].bool()].bincount()
    assert counted.tolist() == [len(segment.token_ids) for tree in batch.trees for segment in tree.segments]
    assert batch.output["num_items_in_batch"] == sum(tree.num_tokens() for tree in batch.trees)


@pytest.mark.parametrize("method", BOTH)
def test_per_leaf_a_token_counts_for_each_completion_through_it(method, trained):
    batch = trained(method, count_shared_tokens="per_leaf").batches[0]
    assert "tool_mask" not in batch.output
    assert batch.output["num_items_in_batch"] == sum(map(len, batch.completion_ids))


@pytest.mark.parametrize("count_shared_tokens", ["once", "per_leaf"])
def test_the_gradient_is_the_sum_over_segments_of_the_tree(count_shared_tokens, trained):
    """TRL's real loss against the objective written out segment by segment, each with its own forward pass."""
    trainer = trained("treerpo", count_shared_tokens=count_shared_tokens, learning_rate=0.0)
    (batch,) = trainer.batches
    output, rewards = batch.output, batch.rewards_per_func[:, 0]
    ours = gradient_of_loss(trainer, output)

    trainer.model.zero_grad()
    objective, tokens, row = 0.0, 0, 0
    for tree in batch.trees:
        prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()]
        grown, own = branches([tree], 12), rewards[row : row + len(tree.rows)]
        each = torch.arange(len(tree.segments))[:, None]
        advantages = sibling_advantages(each, grown.parent, grown.leaf, own, scale="std")[:, 0]
        for index, segment in enumerate(tree.segments):
            ids = torch.cat([prompt, torch.tensor(tree.completion_ids(index))])  # up to the segment's end
            logps = trainer.model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            times = 1 if count_shared_tokens == "once" else sum(index in tree.path(leaf) for leaf in tree.rows)
            objective = objective + times * advantages[index] * logps[-len(segment.token_ids) :].sum()
            tokens += times * len(segment.token_ids)
        row += len(tree.rows)
    (-objective / tokens).backward()
    assert_same_gradients(ours, gradients(trainer.model))


@pytest.mark.parametrize("forced_tokens", ["keep", "reweight", "mask"])
def test_forced_tokens_are_kept_reweighted_or_left_out(forced_tokens, trained):
    kept = trained("treerpo_entropy").batches[0]
    batch = trained("treerpo_entropy", forced_tokens=forced_tokens).batches[0]
    assert batch.completion_ids == kept.completion_ids
    output, plain = batch.output, kept.output
    grown = branches(batch.trees, output["advantages"].shape[1])
    forced = grown.forced_ratio != 1
    assert forced.any()
    ratio = grown.forced_ratio if forced_tokens == "reweight" else 1.0
    torch.testing.assert_close(output["advantages"], plain["advantages"] * ratio)
    once = plain["tool_mask"] * ~forced if forced_tokens == "mask" else plain["tool_mask"]
    assert torch.equal(output["tool_mask"], once)
    assert output["num_items_in_batch"] == once.sum()


def test_the_share_of_tokens_without_credit_is_logged(trained):
    trainer = trained("treerpo")
    (batch,), entry = trainer.batches, trainer.state.log_history[0]
    silent = (batch.output["advantages"] == 0) & batch.output["tool_mask"].bool()
    assert entry["treerpo/silent_tokens"] == pytest.approx(silent.sum() / batch.output["tool_mask"].sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree_depth": 3}, r"`num_generations` must be tree_children \*\* tree_depth = 2 \*\* 3 = 8, got 4"),
        ({"advantage_scale": "max"}, "`advantage_scale` must be one of"),
        ({"count_shared_tokens": "twice"}, "`count_shared_tokens` must be one of"),
        ({"scale_rewards": "batch"}, "`scale_rewards` is 'batch': siblings are compared"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "siblings are compared by the weighted sum"),
    ],
)
def test_a_configuration_that_is_no_tree_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        config(tmp_path, TreeRPOConfig, **({"tree_depth": 2} | options))


@pytest.mark.parametrize(
    "options",
    [
        {"use_vllm": True, "vllm_importance_sampling_mode": "sequence_mask"},
        {"importance_sampling_level": "sequence"},
        {"off_policy_mask_threshold": 0.5},
        {"loss_type": "grpo"},
        {"loss_type": "sapo"},
        {"loss_type": "vespo"},
    ],
)
def test_a_weight_of_a_whole_completion_is_refused_where_a_token_stands_in_one_of_many(options, tmp_path):
    with pytest.raises(ValueError, match="it weights whole completions"):
        config(tmp_path, TreeRPOConfig, tree_depth=2, **options)
    config(tmp_path, TreeRPOConfig, tree_depth=2, count_shared_tokens="per_leaf", **options)


def test_what_vllm_samples_is_corrected_by_token_unless_told_otherwise(tmp_path):
    args = config(tmp_path, TreeRPOConfig, tree_depth=2, use_vllm=True)
    assert (args.vllm_importance_sampling_correction, args.vllm_importance_sampling_mode) == (True, "token_truncate")


def test_another_rollout_is_refused_at_construction(tiny_model, tmp_path):
    args = config(tmp_path, TreeRPOConfig, tree_depth=2)
    with pytest.raises(ValueError, match="`rollout_func` must be None"):
        TreeRPOTrainer(tiny_model, parity, args, questions(), rollout_func=print)


@pytest.mark.parametrize("scale", ["none", "bernoulli"])
def test_the_scale_of_the_configuration_is_that_of_the_credit(scale, trained):
    (batch,) = trained("treerpo", advantage_scale=scale).batches
    grown = branches(batch.trees, batch.output["advantages"].shape[1])
    rewards = batch.rewards_per_func[:, 0]
    expected = sibling_advantages(grown.segment, grown.parent, grown.leaf, rewards, scale=scale)
    assert expected.any()
    torch.testing.assert_close(batch.output["advantages"], expected, rtol=1e-4, atol=1e-5)
