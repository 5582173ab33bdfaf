"""Completions without an advantage are not computed, and nothing that is learned changes."""

from types import SimpleNamespace

import pytest
import torch
from peft import LilyConfig
from transformers import Qwen3Model

from tempo_trl import GRPOLambdaTrainer, PlainGRPOTrainer, PPOConfig, PrefixBaselineTrainer
from tempo_trl.trainers.scored_rows import loss_mask
from tempo_trl.trainers.zero_advantages import on_all_rows, refuse_models_that_see_all_rows, rows_with_credit
from tempo_trl.tree_forward.tree_pass import State

from .recording import assert_same_weights, config, moved, questions, train

OPTIONS = {"optim": "sgd", "learning_rate": 0.1, "per_device_train_batch_size": 16, "max_steps": 2}


def every_other_group(completion_ids, **columns):
    """Rewards that are equal in every other group of four."""
    return [float(sum(ids) % 2) if index % 8 < 4 else 1.0 for index, ids in enumerate(completion_ids)]


def of_no_group(completion_ids, **columns):
    return [1.0] * len(completion_ids)


def both(model, folder, **options):
    """Runs without and with rows left out."""
    options = OPTIONS | {"reward_funcs": every_other_group} | options
    return [train(model, folder / str(skip), skip_zero_advantages=skip, **options) for skip in (False, True)]


def assert_learned_the_same(one, other, model):
    assert moved(one, model)
    assert_same_weights(other, one, rtol=1e-4, atol=1e-6)


def test_rows_have_credit_if_any_token_has_and_one_is_always_kept():
    def rows(advantages: list, mask: list) -> list[bool]:
        return rows_with_credit(torch.tensor(advantages), torch.tensor(mask)).tolist()

    assert rows([[0.0, 0.0], [0.0, -1.0]], [[1, 1], [1, 1]]) == [False, True]
    assert rows([[0.5, 0.0], [0.0, -1.0]], [[0, 1], [0, 1]]) == [False, True]  # 0.5 is not in the loss
    assert rows([0.0, 2.0, 2.0], [[1, 1], [1, 0], [0, 0]]) == [False, True, False]
    assert rows([0.0, 0.0, 0.0], [[0, 0], [1, 0], [1, 1]]) == [False, False, True]


def test_rows_that_are_left_out_have_ratio_one_and_the_mean_entropy_of_the_others():
    logps, entropies = torch.randn(4, 3), torch.rand(4, 3)
    kept, old = torch.tensor([True, False, True, False]), torch.randn(4, 3)
    inputs = {"old_per_token_logps": old, "completion_mask": torch.tensor([[1, 1, 1]] * 2 + [[1, 0, 0]] * 2)}
    inputs["tool_mask"] = torch.tensor([[1, 0, 1]] * 4)

    found, entropy, _ = on_all_rows(kept, logps[kept], entropies[kept], None, inputs)
    assert torch.equal(found[kept], logps[kept])
    assert torch.equal(found[~kept], old[~kept])
    mean = torch.stack([entropies[0, 0], entropies[0, 2], entropies[2, 0]]).mean()
    torch.testing.assert_close(entropy[~kept], mean.expand(2, 3))
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    torch.testing.assert_close((entropy * mask).sum() / mask.sum(), mean)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo", "luspo", "sapo", "cispo", "vespo"])
def test_the_weights_are_those_of_the_whole_pass(loss_type, tiny_model, tmp_path):
    assert_learned_the_same(*both(tiny_model, tmp_path, loss_type=loss_type, num_iterations=2), tiny_model)


@pytest.mark.parametrize(
    "changes",
    [
        {"cls": PrefixBaselineTrainer},
        {"cls": GRPOLambdaTrainer, "beta": 0.0},
        {"cls": GRPOLambdaTrainer, "beta": 0.0, "trace_update": "weight"},
        {"importance_sampling_level": "sequence", "num_iterations": 2},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
    ],
    ids=["prefix baseline", "grpo-lambda", "grpo-lambda, weight", "sequence ratios", "one group a micro-batch"],
)
def test_so_they_are_with_every_kind_of_credit_and_on_the_tree(changes, tiny_model, tmp_path):
    assert_learned_the_same(*both(tiny_model, tmp_path, tree_forward="on", **changes), tiny_model)


@pytest.fixture
def computed(monkeypatch):
    """Rows of each pass with a gradient."""
    rows, forward = [], Qwen3Model.forward

    def counted(self, input_ids=None, **kwargs):
        if torch.is_grad_enabled():
            rows.append(len(input_ids))
        return forward(self, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(Qwen3Model, "forward", counted)
    return rows


def test_only_rows_with_credit_are_computed(tiny_model, tmp_path, computed):
    whole, skipped = both(tiny_model, tmp_path, max_steps=1)
    output = skipped.batches[0].output
    rows = rows_with_credit(output["advantages"], loss_mask(output))
    assert computed == [16, rows.sum()]
    assert 0 < rows.sum() <= 8
    (one,), (other,) = ([e for e in run.state.log_history if "entropy" in e] for run in (whole, skipped))
    assert one["frac_reward_zero_std"] == other["frac_reward_zero_std"] >= 0.5
    assert one["entropy"] != other["entropy"]


def test_evaluation_leaves_no_row_out(tiny_model, tmp_path):
    evaluation = {"eval_strategy": "steps", "eval_steps": 1, "trainer": {"eval_dataset": questions()}}
    runs = both(tiny_model, tmp_path, max_steps=1, learning_rate=0.0, **evaluation)
    (one,), (other,) = ([e["eval_entropy"] for e in run.state.log_history if "eval_entropy" in e] for run in runs)
    assert one == other


def test_a_group_that_differs_by_rounding_alone_is_left_out(tiny_model, tmp_path, computed):
    def nearly_equal(completions, **columns):
        return [0.01] * len(completions)

    options = {"num_generations": 6, "per_device_train_batch_size": 12, "max_steps": 1, "reward_funcs": nearly_equal}
    train(tiny_model, tmp_path, PlainGRPOTrainer, skip_zero_advantages=True, **OPTIONS | options)
    assert torch.full((6,), 0.01).mean() != torch.tensor(0.01), "TRL's advantages are not 0"
    assert computed == [1]


def test_where_no_completion_has_credit_one_is_computed_and_nothing_is_learned(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, skip_zero_advantages=True, **OPTIONS, reward_funcs=of_no_group)
    assert not moved(trainer, tiny_model)


def test_the_tree_is_tried_on_whole_groups(tiny_model, tmp_path):
    """One completion alone shares nothing, and would switch the tree off for the whole run."""
    options = {"per_device_train_batch_size": 4, "tree_forward": "auto", "skip_zero_advantages": True}
    trainer = train(tiny_model, tmp_path, **OPTIONS | options, reward_funcs=of_no_group)
    assert trainer.tree_pass.state is State.IN_USE


@pytest.mark.parametrize(
    ("name", "value"),
    [("beta", 0.1), ("entropy_coef", 0.01), ("use_adaptive_entropy", True), ("top_entropy_quantile", 0.2)],
)
def test_what_gives_every_token_a_gradient_is_refused(name, value, tmp_path):
    with pytest.raises(ValueError, match=rf"`{name}` is {value}: .*skip_zero_advantages=False"):
        config(tmp_path, skip_zero_advantages=True, **{name: value})


def test_ppo_refuses_it(tmp_path):
    with pytest.raises(ValueError, match="the critic learns from all rows"):
        config(tmp_path, PPOConfig, skip_zero_advantages=True, beta=0.0)


@pytest.mark.parametrize(
    ("what_it_has", "message"),
    [
        ({"aux_loss_enabled": True}, "Set router_aux_loss_coef=0"),
        ({"_is_vlm": True}, "Use a model without images"),
        ({"model": SimpleNamespace(peft_config={"default": LilyConfig()})}, "Use another adapter, such as LoRA"),
    ],
    ids=["router", "images", "adapter"],
)
def test_what_sees_all_rows_is_refused(what_it_has, message):
    plain = {"aux_loss_enabled": False, "_is_vlm": False, "model": SimpleNamespace(peft_config={})}
    plain["accelerator"] = SimpleNamespace(unwrap_model=lambda model: model)
    refuse_models_that_see_all_rows(SimpleNamespace(**plain))
    with pytest.raises(ValueError, match=message):
        refuse_models_that_see_all_rows(SimpleNamespace(**plain | what_it_has))
