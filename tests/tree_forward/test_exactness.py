"""In float32 the tree gives TRL's own log-probabilities, entropies and gradients, architecture by architecture."""

import pytest
import torch
from peft import LoraConfig
from trl import GRPOTrainer

from tempo_trl.tree_forward.tree_pass import State

from .batches import random_tree_batch
from .models import ARCHITECTURES, model_of, trainer_of

LORA = LoraConfig(r=4, target_modules="all-linear", init_lora_weights="gaussian")
TRAINING = {
    "lora": {"peft_config": LORA},
    "checkpointing": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "reentrant checkpointing": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "lora and checkpointing": {"gradient_checkpointing": True, "peft_config": LORA},
}


@pytest.fixture(scope="module")
def batch():
    """Two groups of five with different prompts, branches, a duplicate in each, and padding on both sides."""
    return random_tree_batch(prompts=2, group=5, prompt_tokens=24, completion_tokens=20, vocabulary=260)


def computed(trainer, logps_of, batch, batch_size=None) -> dict[str, torch.Tensor]:
    """Log-probabilities, entropies, and the gradient of a random weighting of both, by name."""
    ids, mask, width = batch
    trainer.model.train()
    trainer.model.zero_grad()
    logps, entropies, _ = logps_of(trainer.model, ids, mask, width, batch_size, compute_entropy=True)
    weights = torch.randn(2, *logps.shape, generator=torch.Generator().manual_seed(1)) * mask[:, -width:]
    (weights[0] * logps + weights[1] * entropies).sum().backward()
    gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    return gradients | {"logps": logps.detach(), "entropies": entropies.detach()}


def both_ways(trainer, batch, **options) -> tuple[dict, dict]:
    """(on the tree, TRL's own), after the first batch has been measured."""
    computed(trainer, trainer._get_per_token_logps_and_entropies, batch)
    assert trainer.tree_pass.state is State.IN_USE
    calls = []
    handle = (
        trainer.accelerator.unwrap_model(trainer.model)
        .get_input_embeddings()
        .register_forward_hook(lambda module, args, output: calls.append(args[0].shape))
    )
    tree = computed(trainer, trainer._get_per_token_logps_and_entropies, batch, **options)
    handle.remove()
    assert all(shape[0] == 1 for shape in calls), "it was not computed on the tree"
    stock = computed(trainer, lambda *a, **k: GRPOTrainer._get_per_token_logps_and_entropies(trainer, *a, **k), batch)
    return tree, stock


def assert_same(tree: dict, stock: dict):
    assert tree.keys() == stock.keys()
    for name, expected in stock.items():
        if name in ("logps", "entropies"):
            torch.testing.assert_close(tree[name], expected, rtol=0, atol=1e-5)
        else:
            error = (tree[name] - expected).norm() / expected.norm().clamp(min=1e-12)
            assert error < 1e-5, (name, error)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_log_probabilities_entropies_and_gradients_are_trls(architecture, batch, tmp_path):
    assert_same(*both_ways(trainer_of(model_of(architecture), tmp_path), batch))


@pytest.mark.parametrize("architecture", ["qwen3", "mistral"])
@pytest.mark.parametrize("how", TRAINING)
def test_so_they_are_with_adapters_and_with_layers_computed_again(how, architecture, batch, tmp_path):
    tree, stock = both_ways(trainer_of(model_of(architecture), tmp_path, **TRAINING[how]), batch)
    assert ("lora" in how) == any("lora_" in name for name in stock)
    assert_same(tree, stock)


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_so_they_are_in_chunks_of_rows(rows, batch, tmp_path):
    assert_same(*both_ways(trainer_of(model_of("qwen3"), tmp_path), batch, batch_size=rows))


def test_so_they_are_at_another_temperature_and_with_scaled_positions(batch, tmp_path):
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = model_of("llama", rope_parameters=rope | {"original_max_position_embeddings": 16})
    assert_same(*both_ways(trainer_of(model, tmp_path, temperature=0.7), batch))


def test_so_they_are_with_a_router_that_tells_of_itself(batch, tmp_path):
    trainer = trainer_of(model_of("qwen3_moe", output_router_logits=True), tmp_path, router_aux_loss_coef=0.0)
    assert_same(*both_ways(trainer, batch))
