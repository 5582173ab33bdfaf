"""TEMPO on grown trees, and over prefix baselines: the trainer carries what `credit/` computes."""

import numpy as np
import pytest
import torch

from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.grown_tree import branches, repeated_rows
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tempo_trl.report import read_trees
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.runs.trees import read_metadata, trees_path

from ..credit.groups import as_tensors, prefix_baseline_advantages
from .every_method import trainer_of
from .recording import (
    RecordingBaseline,
    RecordingTrainer,
    questions,
    share_of_threes,
    train,
)
from .test_every_method import spread, tempo_on_trees

pytestmark = pytest.mark.matrix

ROLLOUTS = ("tempo on fixed trees", "tempo on entropy trees")


def run(method, model, folder, **options):
    trainer = trainer_of(method, model, folder, reward=share_of_threes, **options)
    trainer.train()
    return trainer


def inputs_of(batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    return *as_tensors(batch.completion_ids, batch.rewards_per_func[:, 0].tolist()), 4


@pytest.mark.parametrize("method", [*ROLLOUTS, "baseline on entropy trees"])
def test_the_off_policy_mask_reads_the_outcome_around_the_weighted_mean(method, tiny_model, tmp_path):
    for batch in run(method, tiny_model, tmp_path).batches:
        _, _, rewards, size = inputs_of(batch)
        weights = torch.cat([tree.leaf_weights() for tree in batch.trees])
        mean = (weights * rewards).view(-1, size).sum(dim=1).repeat_interleave(size)
        read, around = batch.output["outcome"].double(), rewards - mean
        clear = around.abs() > 1e-4
        assert clear.any()
        assert torch.equal(read[clear].sign(), around[clear].sign())


@pytest.mark.parametrize("rollout", ["iid", "fixed"])
def test_end_tokens_of_generation_kwargs_end_completions_as_the_models_own_do(rollout, tiny_model, tmp_path):
    added = list(range(21, 200, 4))
    ends = {"generation_kwargs": {"eos_token_id": [2, *added]}, "mask_truncated_completions": True, "top_k": 0}
    tree = {"tree_children": 2, "tree_depth": 2} if rollout == "fixed" else {}
    trainer = train(tiny_model, tmp_path, rollout=rollout, **tree, **ends)
    seen = [row for b in trainer.batches for row in zip(b.completion_ids, b.output["completion_mask"], strict=True)]
    assert not any({*added} & {*ids[:-1]} for ids, _ in seen), "something was trained behind an end"
    assert any(ids[-1] in added for ids, _ in seen)
    assert all(int(mask.sum()) == len(ids) for ids, mask in seen if ids[-1] in added), "it counts as truncated"


@pytest.mark.parametrize("method", [*ROLLOUTS, "baseline on entropy trees", "tempo", "prefix_baseline"])
def test_the_recorded_outcome_and_what_was_added_make_up_what_trained(method, tiny_model, tmp_path):
    run(method, tiny_model, tmp_path, max_steps=2, log_trees_steps=1)
    rows = read_trees(tmp_path)
    assert any(any(row) for row in rows["td_errors"])
    for row in rows.itertuples():
        made_up = (row.outcome + np.array(row.td_errors)) * np.array(row.loss_mask)
        np.testing.assert_allclose(made_up, np.array(row.advantages) * np.array(row.loss_mask), atol=1e-5)


@pytest.mark.parametrize(("method", "grown"), [("tempo on fixed trees", True), ("treerpo", True), ("tempo", False)])
def test_a_record_says_whether_its_trees_were_grown(method, grown, tiny_model, tmp_path):
    run(method, tiny_model, tmp_path, max_steps=1)
    assert read_metadata(trees_path(tmp_path, "train", 0))["grown"] == str(grown)


@pytest.mark.parametrize("cls", [RecordingTrainer, RecordingBaseline])
def test_a_tree_rollout_of_the_user_s_is_read_as_the_tree_it_is(cls, tiny_model, tmp_path):
    options = {"cls": cls, "max_steps": 1, "reward_funcs": share_of_threes}
    ours = train(tiny_model, tmp_path, rollout="fixed", tree_depth=2, **options)
    theirs = train(tiny_model, tmp_path, trainer={"rollout_func": TreeRollout(FixedTree(2, 2, 6))}, **options)
    (ours,), (theirs,) = ours.batches, theirs.batches
    assert ours.completion_ids == theirs.completion_ids
    assert ours.output["advantages"].equal(theirs.output["advantages"])


def test_without_the_td_term_a_tree_s_weights_and_forced_tokens_are_heeded_all_the_same(tiny_model, tmp_path):
    batch = run(ROLLOUTS[1], tiny_model, tmp_path, max_steps=1, td_coef=0.0, forced_tokens="reweight").batches[0]
    expected = tempo_on_trees(batch.trees, inputs_of(batch), td_coef=0.0)
    expected = expected * branches(batch.trees, expected.shape[1]).forced_ratio
    torch.testing.assert_close(spread(batch.output, expected.shape[1]), expected, rtol=1e-4, atol=1e-5)


def test_a_baseline_on_grown_trees_leaves_the_whole_branch_out(tiny_model, tmp_path):
    covariance = PrefixCovariance()
    for batch in run("baseline on entropy trees", tiny_model, tmp_path, max_steps=3).batches:
        ids, lengths, rewards, size = inputs_of(batch)
        segment = branches(batch.trees, ids.shape[1]).segment
        expected = prefix_baseline_advantages(ids, lengths, rewards, size, covariance, branches=segment)
        weights = torch.cat([tree.leaf_weights() for tree in batch.trees])
        expected = expected * (size * weights.float())[:, None]
        torch.testing.assert_close(spread(batch.output, ids.shape[1]), expected, rtol=1e-4, atol=1e-5)
        outcome = outcome_advantages(rewards, size).masked_fill(repeated_rows(batch.trees), torch.nan)
        covariance.update([pair_statistics(prefix_tree(ids, lengths, size), outcome)])


def test_an_evaluation_teaches_the_covariance_nothing(tiny_model, tmp_path):
    trainer = run("prefix_baseline", tiny_model, tmp_path)
    before = trainer.learned.state_dict()
    trainer.evaluate(questions(4))
    assert trainer.learned.state_dict() == before


@pytest.mark.parametrize("forced_tokens", ["reweight", "mask"])
def test_a_baseline_heeds_forced_tokens(forced_tokens, tiny_model, tmp_path):
    kept, treated = (
        run("baseline on entropy trees", tiny_model, tmp_path / each, max_steps=1, forced_tokens=each)
        for each in ("keep", forced_tokens)
    )
    plain, output = kept.batches[0].output, treated.batches[0].output
    ratio = branches(kept.batches[0].trees, plain["advantages"].shape[1]).forced_ratio
    assert (plain["advantages"] * (ratio != 1)).any()
    expected = plain["advantages"] * (ratio if forced_tokens == "reweight" else 1)
    torch.testing.assert_close(output["advantages"], expected)
    mask = plain["completion_mask"] * (ratio == 1) if forced_tokens == "mask" else plain["completion_mask"]
    assert torch.equal(output["completion_mask"] * output.get("tool_mask", 1), mask)
