"""Whole runs on the tree against stock runs, and what they log."""

import pytest
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

from tempo_trl import GRPOLambdaConfig, PlainGRPOTrainer, TEMPOTrainer
from tempo_trl.tree_forward.tree_pass import State

from ..trainers.every_method import EVERY_METHOD
from ..trainers.every_method import trainer_of as trainer_of_method
from ..trainers.recording import assert_same_weights, config, weights
from .running import ACCUMULATED, run

pytestmark = pytest.mark.matrix
both_stacks = pytest.mark.both_stacks

ON_BOTH_STACKS = ("tempo", "ppo", "tempo on entropy trees")  # TRL's loss, one of our own with a critic, grown trees
METHODS = [pytest.param(method, marks=[both_stacks] * (method in ON_BOTH_STACKS)) for method in EVERY_METHOD]
RUNS = {
    "one micro-batch": {"per_device_train_batch_size": 16},
    "two micro-batches of two groups each": ACCUMULATED,
    "half a group a micro-batch": {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4},
    "two iterations with a KL term": ACCUMULATED | {"num_iterations": 2, "beta": 0.1},
    "an entropy bonus": ACCUMULATED | {"entropy_coef": 0.01},
    "sequence-level importance": ACCUMULATED
    | {"num_iterations": 2, "importance_sampling_level": "sequence", "loss_type": "grpo"},
    "truncated completions masked": ACCUMULATED | {"mask_truncated_completions": True},
    "tokens of the environment": ACCUMULATED | {"style": "environment"},
    "evaluation": ACCUMULATED | {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4},
}


@both_stacks
@pytest.mark.parametrize("case", RUNS)
def test_a_run_on_the_tree_has_the_weights_of_the_stock_trainer(case, tiny_model, tmp_path):
    stock = run(GRPOTrainer, tiny_model, tmp_path / "stock", **RUNS[case])
    ours = run(PlainGRPOTrainer, tiny_model, tmp_path / "tree", tree_forward="on", **RUNS[case])
    assert ours.tree_pass.state is State.IN_USE
    assert_same_weights(ours, stock, rtol=1e-5, atol=1e-6)
    for key in ("loss", "entropy", "kl", "grad_norm", "eval_loss", "eval_entropy"):
        theirs = [entry[key] for entry in stock.state.log_history if key in entry]
        # A mean over micro-batches of means over their tokens, in TRL: other rows make other micro-batches.
        assert [entry[key] for entry in ours.state.log_history if key in entry] == pytest.approx(theirs, 5e-3, 1e-5)
    before = dict(AutoModelForCausalLM.from_pretrained(tiny_model).named_parameters())
    assert all((value - before[name]).abs().max() > 1e-5 for name, value in weights(ours).items() if "embed" in name)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_the_same_on_the_tree(method, tiny_model, tmp_path):
    def trained(folder, **options):
        options |= {"optim": "sgd", "learning_rate": 0.1, "beta": 0.05, "num_iterations": 2, "max_steps": 4}
        trainer = trainer_of_method(method, tiny_model, tmp_path / folder, **options)
        trainer.train()
        return trainer

    plain, ours = trained("plain"), trained("tree", tree_forward="on")
    assert ours.tree_pass.state is State.IN_USE
    assert_same_weights(ours, plain, rtol=1e-4, atol=1e-5)


@both_stacks
def test_an_evaluation_before_training_decides_nothing(tiny_model, tmp_path):
    """Its prompts have one completion each here: no tree could pay."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True, "num_generations_eval": 1}
    trainer = run(TEMPOTrainer, tiny_model, tmp_path, tree_forward="on", **ACCUMULATED, **options)
    assert trainer.tree_pass.state is State.IN_USE


@both_stacks
@pytest.mark.parametrize(("given", "kept"), [(False, "off"), (True, "on"), ("auto", "auto")])
def test_yamls_off_and_on_are_read_as_such(given, kept, tmp_path):
    assert config(tmp_path, GRPOLambdaConfig, tree_forward=given).tree_forward == kept


@both_stacks
def test_the_packing_ratio_is_tokens_over_packed_tokens_in_training_and_evaluation(tiny_model, tmp_path):
    options = ACCUMULATED | {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4}
    trainer = run(PlainGRPOTrainer, tiny_model, tmp_path, tree_forward="on", **options)
    history = trainer.state.log_history
    ratios = [entry["tempo/packing_ratio"] for entry in history if "tempo/packing_ratio" in entry]
    assert len(ratios) == 4
    assert all(2 < ratio < 8 for ratio in ratios)  # eights share their prompt, fours a stem
    evaluated = [entry["eval_tempo/packing_ratio"] for entry in history if "eval_loss" in entry]
    assert len(evaluated) == 2
    assert all(1.5 < ratio < 4 for ratio in evaluated)
