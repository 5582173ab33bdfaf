"""What `auto` leaves with one warning and `on` refuses: before the run, and on the first batch."""

from contextlib import nullcontext

import pytest
import torch
from accelerate.utils import DynamoBackend
from peft import LilyConfig, LoraConfig, PromptTuningConfig, ShadowConfig
from trl import GRPOTrainer

from tempo_trl import PlainGRPOTrainer, PPOConfig, PPOTrainer
from tempo_trl.tree_forward.obstacles import first_obstacle
from tempo_trl.tree_forward.tree_pass import State

from ..trainers.rank_matrix import reward_of
from ..trainers.recording import assert_same_weights, config, questions, train
from .models import model_of, trainer_of
from .running import ACCUMULATED, run

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
DROPS = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)
VIRTUAL = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
INVOKED = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", alora_invocation_tokens=[5])
MIXED = LilyConfig(task_type="CAUSAL_LM", target_modules=["q_proj"])
OBSTACLES = [  # architecture, what the model has, what the trainer has, what is said
    ("qwen3", {"layer_types": ["chunked_attention"] * 2}, {}, "without plain attention"),
    ("qwen3_next", {}, {}, "layers without plain attention: linear_attention"),
    ("qwen3", {"attn_implementation": "eager"}, {}, "attention implementation is 'eager'"),
    ("qwen3", {"attn_logit_softcapping": 30.0}, {}, "soft-caps its attention scores"),
    ("qwen3", {"attention_dropout": 0.1}, {}, "share its noise .set attention_dropout=0 in"),
    ("gpt2", {"n_embd": 32, "n_layer": 2}, {}, "does not use rotary position"),
    ("llama", {"rope_parameters": DYNAMIC}, {}, "depend on the length of the batch: dynamic"),
    ("mixtral", {"router_jitter_noise": 0.1}, {}, "routers draw noise .set router_jitter_noise=0"),
    ("qwen3_moe", {}, {"router_aux_loss_coef": 0.1}, "router's auxiliary loss"),
    ("qwen3", {}, {"neftune_noise_alpha": 5.0}, "NEFTune draws noise .unset neftune_noise_alpha"),
    ("qwen3", {}, {"peft_config": DROPS}, "share its noise .set disable_dropout=True"),
    *(("qwen3", {}, {"peft_config": adapter}, "the adapter depends on more") for adapter in (VIRTUAL, INVOKED, MIXED)),
]


@pytest.mark.parametrize(("architecture", "model", "options", "reason"), OBSTACLES)
def test_what_the_tree_does_not_compute_is_left_with_one_warning_or_refused(
    architecture, model, options, reason, tmp_path
):
    with pytest.warns(UserWarning, match=f"tree_forward='auto' is off for this run: .*{reason}") as told:
        trainer = trainer_of(model_of(architecture, **model), tmp_path, tree_forward="auto", **options)
    assert sum("tree_forward" in str(warning.message) for warning in told) == 1
    assert trainer.tree_pass.state is State.OFF
    with pytest.raises(ValueError, match=f"tree_forward='on' is not supported here: .*{reason}"):
        trainer_of(model_of(architecture, **model), tmp_path, tree_forward="on", **options)


def test_what_accelerate_compiles_is_left_too(tmp_path, monkeypatch):
    trainer = trainer_of(model_of("qwen3"), tmp_path, tree_forward="auto")
    assert first_obstacle(trainer) is None
    monkeypatch.setattr(trainer.accelerator.state.dynamo_plugin, "backend", DynamoBackend.EAGER)
    assert "dynamo_backend" in first_obstacle(trainer)


def test_a_critic_on_the_policys_hidden_states_is_refused(tiny_model, tmp_path):
    args = config(tmp_path, PPOConfig, shared_trunk=True, tree_forward="on")
    with pytest.raises(ValueError, match="the critic needs the policy's hidden states"):
        PPOTrainer(tiny_model, reward_of("plain"), args, questions())


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_model_that_is_wrong_on_the_tree_is_found_on_the_first_batch(mode, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempo_trl.tree_forward.tree_attention._mask", lambda *sizes: None)
    options = ACCUMULATED | {"tree_forward": mode}
    if mode == "on":
        with pytest.raises(
            ValueError, match=r"'on' is not supported here: the first batch differs from TRL's by .* nats"
        ):
            run(PlainGRPOTrainer, tiny_model, tmp_path, **options)
        return
    with pytest.warns(UserWarning, match="'auto' is off for this run: the first batch differs") as told:
        ours = run(PlainGRPOTrainer, tiny_model, tmp_path / "tree", **options)
    assert sum("tree_forward" in str(warning.message) for warning in told) == 1
    stock = run(GRPOTrainer, tiny_model, tmp_path / "stock", **ACCUMULATED)
    assert_same_weights(ours, stock, rtol=1e-5, atol=1e-6)


def test_a_window_that_does_not_reach_the_attention_is_found_though_the_first_batch_is_shorter(tmp_path, monkeypatch):
    from transformers.models.mistral import modeling_mistral

    model = model_of("mistral", sliding_window=4096)
    plain = modeling_mistral.ALL_ATTENTION_FUNCTIONS["sdpa"]

    class Silent:
        def get_interface(self, *names):
            return lambda *args, sliding_window=None, **kwargs: plain(*args, **kwargs)

    trainer = trainer_of(model, tmp_path, tree_forward="auto")
    plain = modeling_mistral.ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setattr(modeling_mistral, "ALL_ATTENTION_FUNCTIONS", Silent())
    ids = torch.randint(3, 200, (1, 12)).repeat(4, 1)
    with pytest.warns(UserWarning, match="window of 4096 tokens was not passed to the attention"):
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 4)


def test_a_mask_that_the_model_makes_is_found_though_it_begins_without_an_effect(tmp_path):
    model = model_of("doge")
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.A)
    trainer = trainer_of(model, tmp_path, tree_forward="auto")
    ids = torch.randint(3, 200, (1, 12)).repeat(4, 1)
    with pytest.warns(UserWarning, match="adds a mask of its own to its attention"):
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 4)


def first_batch_of(trainer):
    ids = torch.randint(3, 200, (1, 12)).repeat(4, 1)
    trainer.model.train()
    trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 4)


def test_layers_beside_the_model_are_found_though_they_begin_without_an_effect(tmp_path):
    """Shadow's layers read the whole stream: they get the tree's mask and not the tree."""
    adapter = ShadowConfig(r=4, shadow_dropout=0.0, task_type="CAUSAL_LM")
    trainer = trainer_of(model_of("qwen3"), tmp_path, tree_forward="auto", peft_config=adapter)
    with pytest.warns(UserWarning, match="an adapter with layers of its own, attends without the tree"):
        first_batch_of(trainer)


NOISY = {"residual_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.0, "sliding_window": None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_noise_of_any_kind_is_found_also_where_trls_own_rounding_contains_it(dtype, tmp_path):
    told, states = "draws random numbers", []
    outcomes = {"on": pytest.raises(ValueError, match=told), "auto": pytest.warns(match=told), "off": nullcontext()}
    for mode, outcome in outcomes.items():
        trainer = trainer_of(model_of("starcoder2", **NOISY).to(dtype), tmp_path, tree_forward=mode)
        torch.manual_seed(0)
        with outcome:
            first_batch_of(trainer)
        states.append(torch.get_rng_state())
    assert torch.equal(*states[1:])  # a run that leaves the tree has the random numbers of one without


# 8 rows of 7 tokens: 56; on the tree 8 paths that share the prompt alone, each repeating it: 56.
TOO_LITTLE = "the tree of the first batch has 56 of 56 tokens, a ratio of 1.00"


def apart(prompts, trainer):
    """One-token prompts and completions that part at once: nothing to share but a token."""
    ids = [[30 + i % 8, 31, 32, 33, 34, 35] for i in range(len(prompts))]
    return {"prompt_ids": [[9]] * len(prompts), "completion_ids": ids, "logprobs": [[-1.0] * 6 for _ in ids]}


def test_a_batch_that_shares_too_little_is_left_unless_the_tree_was_asked_for(tiny_model, tmp_path):
    keywords = {"rollout_func": apart}
    with pytest.warns(UserWarning, match=f"tree_forward='auto' is off for this run: {TOO_LITTLE}"):
        train(tiny_model, tmp_path / "auto", PlainGRPOTrainer, trainer=keywords, tree_forward="auto")
    asked = train(tiny_model, tmp_path / "on", PlainGRPOTrainer, trainer=keywords, tree_forward="on")
    assert asked.tree_pass.state is State.IN_USE
