"""What a run leaves behind: its trees on disk are those that trained, and a disk that refuses them stops nothing."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig

from tempo_trl.credit import prefix_values, td_errors
from tempo_trl.report import read_trees
from tempo_trl.report.callback import TreeCallback
from tempo_trl.report.collect import read_inside
from tempo_trl.report.group import padded
from tempo_trl.report.page import page_data
from tempo_trl.runs.curves import mean_rewards, read_curve
from tempo_trl.runs.log import training_log
from tempo_trl.runs.messages import prompt_text
from tempo_trl.runs.run import read_runs
from tempo_trl.runs.token_text import readable
from tempo_trl.runs.trees import SCHEMA, recorded_modes, recorded_steps, trees_path, write_trees
from tests.trainers.launching import run_ranks, torchrun
from tests.trainers.recording import Batch, parity, picky, questions, share_of_threes, train, weights

pytestmark = pytest.mark.matrix

EVERY_STEP = {"log_trees_steps": 1, "reward_funcs": share_of_threes}


def test_a_record_holds_the_batch_that_trained(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, **EVERY_STEP)
    batches = [batch for batch in trainer.batches if batch.training]
    assert recorded_steps(tmp_path) == [0, 1, 2]
    for step, batch in enumerate(batches):
        trees = read_trees(tmp_path, [step])
        assert [row.tolist() for row in trees["completion_ids"]] == batch.completion_ids
        assert trees["prompt"].tolist() == batch.prompts
        assert trees["group"].tolist() == [0] * 4 + [1] * 4
        lengths = torch.tensor([len(ids) for ids in batch.completion_ids])
        rewards = batch.rewards_per_func[:, 0]
        values = prefix_values(padded(batch.completion_ids, torch.long), lengths, rewards, 4)
        scale = batch.output["outcome"] / (rewards - rewards.view(-1, 4).mean(1).repeat_interleave(4))
        for i, row in trees.iterrows():
            width = int(lengths[i])
            np.testing.assert_allclose(row["values"], values[i, : width + 1], rtol=1e-6)
            advantages = batch.output["advantages"][i, :width]
            np.testing.assert_array_equal(row["advantages"], advantages)
            np.testing.assert_allclose(row["outcome"] + row["td_errors"], advantages, atol=1e-5)
            if torch.isfinite(scale[i]):
                td = td_errors(values, lengths)[i, :width] * scale[i]
                np.testing.assert_allclose(row["td_errors"], td, atol=1e-4)
            assert row["reward"] == pytest.approx(rewards[i].item())
            assert json.loads(row["rewards"]) == {"share_of_threes": pytest.approx(rewards[i].item())}
            assert row["loss_mask"].all()
            text = trainer.processing_class.decode(batch.completion_ids[i])
            if "\ufffd" not in text:
                assert "".join(readable(row["tokens"])) == text


def test_recording_changes_no_weight(tiny_model, tmp_path):
    """Also where the entropies are asked for in a forward pass of TRL's own."""
    options = {"steps_per_generation": 2, "num_iterations": 2, "reward_funcs": parity, "max_steps": 4}
    off = train(tiny_model, tmp_path / "off", log_trees_steps=0, **options)
    on = train(tiny_model, tmp_path / "on", log_trees_steps=1, **options)
    assert not (tmp_path / "off" / "tempo").exists()
    assert recorded_steps(tmp_path / "on") == [0]
    assert all(torch.equal(w, weights(on)[name]) for name, w in weights(off).items())


def test_entropies_are_there_where_trl_computes_log_probabilities_of_the_sampling_policy(tiny_model, tmp_path):
    """With LoRA the reference is the same model with its adapter off: its entropies are not the policy's."""
    lora = {"peft_config": LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")}
    train(tiny_model, tmp_path / "reference", beta=0.1, log_trees_steps=1, trainer=lora)
    train(tiny_model, tmp_path / "without", **EVERY_STEP, max_steps=1)
    assert all(read_trees(tmp_path / name)["entropies"].isna().all() for name in ("reference", "without"))
    model = train(tiny_model, tmp_path / "with", **EVERY_STEP, max_steps=1, steps_per_generation=2).model
    trees = read_trees(tmp_path / "with")
    assert [len(row) for row in trees["entropies"]] == [len(row) for row in trees["completion_ids"]]
    assert all(((row > 0) & (row <= np.log(model.config.vocab_size))).all() for row in trees["entropies"])


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 2, 4, 6]), (3, [0, 4, 6]), (4, [0, 4]), (100, [0]), (0, [])])
def test_the_first_batch_after_each_multiple_of_log_trees_steps_is_recorded(every, expected, tiny_model, tmp_path):
    train(tiny_model, tmp_path, log_trees_steps=every, steps_per_generation=2, max_steps=8)
    assert recorded_steps(tmp_path) == expected


def test_at_most_log_trees_prompts_groups_are_recorded_of_a_step_also_of_several_batches(tiny_model, tmp_path):
    evaluation = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    options = {"max_steps": 1, "log_trees_prompts": 3, "trainer": {"eval_dataset": questions(5)}}
    trainer = train(tiny_model, tmp_path, **EVERY_STEP, **options, **evaluation, gradient_accumulation_steps=4)
    trees, evaluated = read_trees(tmp_path), read_trees(tmp_path, mode="eval")
    assert trees["group"].tolist() == evaluated["group"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert evaluated["step"].unique().tolist() == [1]
    ids = [row for batch in trainer.batches if not batch.training for row in batch.completion_ids]
    assert [row.tolist() for row in evaluated["completion_ids"]] == ids[:12]


def test_each_of_several_evaluation_datasets_has_its_own_record_and_curve(tiny_model, tmp_path):
    """TRL logs `eval_reward` for each of them. Of two evaluations of a step the last one is kept."""
    both = questions(5)
    datasets = {"a/b": both.select(range(2)), "c_reward": both.select(range(2, 5))}
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 1, "trainer": {"eval_dataset": datasets}}
    trainer = train(tiny_model, tmp_path, **EVERY_STEP, **options, per_device_eval_batch_size=4)
    trainer.evaluate()
    trainer.save_state()
    for name, dataset in datasets.items():
        trees = read_trees(tmp_path, mode=f"eval_{name}")
        assert sorted(trees["prompt"].unique()) == sorted(dataset["prompt"])
        rewards = trees["reward"].mean()
        assert read_curve(training_log(tmp_path), f"eval_{name}_reward").value.tolist() == [pytest.approx(rewards)]
    assert mean_rewards([training_log(tmp_path)]) == ["reward", "eval_a/b_reward", "eval_c_reward_reward"]
    assert list(recorded_modes(tmp_path)) == ["train", "eval_a/b", "eval_c_reward"]
    sources = page_data([read_inside(run, "run", "tempo") for run in read_runs([tmp_path])], "")["sources"]
    kinds = ["training", "evaluation of a/b", "evaluation of c_reward"]
    assert [source["label"] for source in sources] == [f"run, {kind}" for kind in kinds]
    with pytest.raises(ValueError, match="'eval_a/b'"):
        read_trees(tmp_path, mode="evaluation")


def test_a_resumed_run_adds_to_what_the_first_part_left(tiny_model, tmp_path):
    options = EVERY_STEP | {"save_strategy": "steps", "save_steps": 2}
    train(tiny_model, tmp_path, **options, max_steps=2)
    first = trees_path(tmp_path, "train", 0).read_bytes()
    train(tiny_model, tmp_path, **EVERY_STEP, max_steps=4, resume=str(tmp_path / "checkpoint-2"))
    assert recorded_steps(tmp_path) == [0, 1, 2, 3]
    assert trees_path(tmp_path, "train", 0).read_bytes() == first


def test_training_again_records_again(tiny_model, tmp_path, monkeypatch):
    """Also for the trackers: the callback logs each record of both runs."""
    logged = []
    monkeypatch.setattr("tempo_trl.report.callback.recorded_groups", lambda folder, step: logged.append(step))
    trainer = train(tiny_model, tmp_path, **EVERY_STEP, trainer={"callbacks": [TreeCallback()]})
    for step in recorded_steps(tmp_path):
        trees_path(tmp_path, "train", step).unlink()
    trainer.train()
    assert recorded_steps(tmp_path) == [0, 1, 2]
    trainer.train()
    assert logged == [0, 1, 2] * 3


def test_unscorable_completions_are_recorded_as_such(tiny_model, tmp_path):
    train(tiny_model, tmp_path, log_trees_steps=1, reward_funcs=picky)
    trees = read_trees(tmp_path)
    unscorable = trees["reward"].isna()
    assert 0 < unscorable.sum() < len(trees)
    assert [json.loads(row)["picky"] is None for row in trees["rewards"]] == unscorable.tolist()
    assert all((row == 0).all() for row in trees["advantages"][unscorable])


def test_a_disk_that_refuses_the_trees_costs_one_warning_and_no_step(tiny_model, tmp_path, said_once):
    (tmp_path / "tempo").write_text("a file where the folder should be")
    trainer = train(tiny_model, tmp_path, **EVERY_STEP)
    told = said_once("Could not write the prefix trees")
    assert len(told) == 1
    assert "log_trees_steps=0" in told[0]
    assert trainer.state.global_step == 3


def test_the_documented_columns_are_the_schema_s():
    import re

    from tempo_trl.runs import trees as tree_files

    documented = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", tree_files.__doc__, re.MULTILINE)))
    assert documented == SCHEMA.names


def test_reading_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_trees(tmp_path / "none")
    write_trees(trees_path(tmp_path, "train", 5), [], {})
    with pytest.raises(ValueError, match=r"no trees of step 3 .* It has those of 5"):
        read_trees(tmp_path, [3])
    with pytest.raises(ValueError, match="`mode` must be one of"):
        read_trees(tmp_path, mode="test")


def test_messages_are_written_as_lines():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": None},
    ]
    assert prompt_text(messages) == "system: Be brief.\nuser: [image] What is it?\nassistant: "
    assert prompt_text("1+1?") == "1+1?"


def test_two_ranks_record_the_first_groups_of_both_once(tiny_model, tmp_path):
    """Six rows a rank in groups of four: the second group lies on both ranks, and the limit cuts the third off."""
    options = ("per_device_train_batch_size=6", "num_generations=4", "max_steps=2", "log_trees_steps=1")
    options += ("log_trees_prompts=2", "eval_strategy='steps'", "eval_steps=2", "per_device_eval_batch_size=6")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.rank", tiny_model, tmp_path, *options, "num_generations_eval=3")
    steps = [[Batch(*b) for b in batches] for batches in zip(*[rank["batches"] for rank in ranks], strict=True)]
    for step, batches in enumerate(batches for batches in steps if batches[0].training):
        trees = read_trees(tmp_path, [step])
        together = [ids for batch in batches for ids in batch.completion_ids][:8]
        advantages = [row for batch in batches for row in batch.output["advantages"]][:8]
        assert [row.tolist() for row in trees["completion_ids"]] == together
        assert trees["group"].tolist() == [0] * 4 + [1] * 4
        assert trees["prompt"].tolist() == [p for batch in batches for p in batch.prompts][:8]
        for own, trained in zip(trees["advantages"], advantages, strict=True):
            np.testing.assert_array_equal(own, trained[: len(own)])
    assert [len(read_trees(tmp_path, [2], "eval"))] == [2 * 3]


def test_values_of_a_grown_tree_are_those_that_its_credit_used(tiny_model, tmp_path):
    """TD errors, in units of the advantages, are proportional to the steps of the recorded values, group by group."""
    train(tiny_model, tmp_path, **EVERY_STEP, max_steps=1, rollout="fixed", tree_depth=2)
    trees = read_trees(tmp_path)
    for _, group in trees.groupby("group"):
        steps = np.concatenate([np.diff(row) for row in group["values"]])
        td = np.concatenate(group["td_errors"].tolist())
        assert (td != 0).any()
        scale = td @ steps / (steps @ steps)
        np.testing.assert_allclose(td, scale * steps, atol=1e-4)
