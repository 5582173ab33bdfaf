"""PPO with the features of GRPOTrainer: what trains, what is refused with what to do, and the configuration."""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM, TrainerCallback

from tempo_trl.methods.critic import refuse_engines_without_a_critic
from tempo_trl.methods.ppo import PPOConfig, PPOTrainer

from .recording import assert_refused, assert_same, assert_same_weights, config, questions, share_of_threes, weights
from .test_ppo import KINDS, LINEAR, build, critic_weights, run

pytestmark = pytest.mark.matrix

TRAINS = {
    "bf16_shared": {"bf16": True, "shared_trunk": True},
    "gradient_checkpointing_shared": {"gradient_checkpointing": True, "shared_trunk": True},
    "sequence_level_importance": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "vespo": {"loss_type": "vespo"},
    "off_policy_mask": {"off_policy_mask_threshold": 1e-4},
    "top_entropy_quantile": {"top_entropy_quantile": 0.2},
    "two_updates_a_generation": {"per_device_train_batch_size": 4, "steps_per_generation": 2},
}


@pytest.mark.parametrize("name", TRAINS)
def test_what_ppo_can_go_with_trains(name, tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, max_steps=2, **TRAINS[name])
    assert trainer.state.global_step == 2
    start = critic_weights(build(tiny_model, tmp_path, shared_trunk=trainer.args.shared_trunk))
    trained = critic_weights(trainer)
    assert all(value.isfinite().all() for value in (weights(trainer) | trained).values())
    assert all(not torch.equal(value, start[name]) for name, value in trained.items() if "embed" not in name)


class Rates(TrainerCallback):
    """Learning rates of actor and critic after each step, as shares of their first."""

    def __init__(self, trainer):
        self.trainer, self.seen = trainer, []

    def on_step_end(self, args, state, control, **kwargs):
        schedules = self.trainer.lr_scheduler, self.trainer.critic.scheduler
        self.seen.append([schedule.get_last_lr()[0] / schedule.base_lrs[0] for schedule in schedules])


def test_the_critic_warms_up_and_decays_with_the_actor(tiny_model, tmp_path):
    options = {"max_steps": 5, "warmup_steps": 3, "lr_scheduler_type": "cosine_with_min_lr"}
    trainer = build(tiny_model, tmp_path, **options, lr_scheduler_kwargs={"min_lr_rate": 0.2})
    trainer.add_callback(rates := Rates(trainer))
    trainer.train()
    actor, critic = zip(*rates.seen, strict=True)
    assert len({*actor}) == 5
    assert critic == pytest.approx(actor)


def test_gradient_checkpointing_changes_no_weight(tiny_model, tmp_path):
    plain, checkpointed = (run(tiny_model, tmp_path, gradient_checkpointing=on, **LINEAR) for on in (False, True))
    assert checkpointed.critic.module.is_gradient_checkpointing
    assert_same_weights(plain, checkpointed, rtol=1.3e-6, atol=1e-5)
    assert_same(critic_weights(plain), critic_weights(checkpointed), rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_with_adapters_the_policys_own_weights_stay_and_the_critic_learns(kind, tiny_model, tmp_path):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = run(tiny_model, tmp_path, **KINDS[kind], beta=0.1, max_steps=4, trainer={"peft_config": lora})
    start = Qwen3ForCausalLM.from_pretrained(tiny_model).state_dict()
    for name, value in trainer.model.get_base_model().state_dict().items():
        if "lora" not in name:
            assert torch.equal(value, start[name.replace(".base_layer", "")])
    assert any(value.any() for name, value in weights(trainer).items() if "lora_B" in name)
    fresh = critic_weights(build(tiny_model, tmp_path, **KINDS[kind]))
    assert all(not torch.equal(v, fresh[n]) for n, v in critic_weights(trainer).items() if "embed" not in n)
    assert trainer.state.log_history[2]["kl"] != 0


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_trains_nothing_and_keeps_trls_advantages(kind, tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, **KINDS[kind])
    trainer.eval_dataset = questions(4)
    start = weights(trainer) | critic_weights(trainer)
    metrics = trainer.evaluate()
    assert metrics["eval_reward"] > 0
    assert not any("ppo/" in name for name in metrics)
    assert all(torch.equal(start[name], value) for name, value in (weights(trainer) | critic_weights(trainer)).items())
    assert not trainer.critic._gradients.any()
    assert all(batch["advantages"].dim() == 1 for batch in trainer.batches)


REFUSED = [
    ({"gae_gamma": 1.1}, "`gae_gamma` must be between 0 and 1, got 1.1"),
    ({"gae_lambda": float("nan")}, "`gae_lambda` (must be|is) .*nan"),
    ({"critic_learning_rate": -1e-5}, "`critic_learning_rate` must be a finite number of at least 0"),
    ({"value_coef": float("inf")}, "`value_coef` must be a finite number of at least 0, got inf"),
    ({"shared_trunk": True, "critic_model_name_or_path": "x"}, "`shared_trunk` reads no other model. Unset one"),
    ({"shared_trunk": True, "torch_compile": True}, "`torch_compile` is True.*Unset it or `shared_trunk`"),
    ({"scale_rewards": "batch"}, "`scale_rewards` is 'batch'.*`whiten_advantages` is its scaling"),
    ({"multi_objective_aggregation": "normalize_then_sum"}, "normalizes rewards within groups.*Leave it unset"),
    ({"lr_scheduler_type": "greedy", "eval_strategy": "epoch"}, "greedy.*the critic has no metric"),
    ({"fp16": True}, "`fp16` is True.*Use `bf16=True`, or full precision"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_no_ppo_is_refused_with_what_to_do(options, message, tmp_path, tiny_model):
    assert_refused(PPOTrainer, options, message, tiny_model, tmp_path)


SCHEDULED = SimpleNamespace(zero_stage=2, deepspeed_config={"scheduler": {"type": "WarmupLR"}})


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("is_fsdp_enabled", True, "does not support FSDP.*Use DDP or DeepSpeed ZeRO-2"),
        ("_is_vlm", True, "Use a text model"),
        (
            "accelerator",
            SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=SCHEDULED)),
            "DeepSpeed has a `scheduler`, .* the critic follows the arguments",
        ),
    ],
)
def test_fsdp_images_and_a_schedule_of_deepspeeds_own_are_refused(attribute, value, message, tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path)
    refuse_engines_without_a_critic(trainer)
    setattr(trainer, attribute, value)
    with pytest.raises(ValueError, match=message):
        refuse_engines_without_a_critic(trainer)


@pytest.mark.parametrize("given", ["optimizer", "schedule"])
def test_what_replaces_the_arguments_that_the_critic_follows_is_refused(given, tiny_model, tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    optimizers = (optimizer, None) if given == "optimizer" else (None, schedule)
    with pytest.raises(ValueError, match=r"`optimizers` is given, .* follows the arguments. Remove it, and set them"):
        run(tiny_model, tmp_path, trainer={"optimizers": optimizers})


def as_it_is(policy):
    return policy


def with_more_tokens(policy):
    policy.resize_token_embeddings(300)
    return policy


def with_adapters(policy):
    return get_peft_model(policy, LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))


@pytest.mark.parametrize("change", [as_it_is, with_more_tokens, with_adapters])
def test_the_critic_starts_from_the_policy_in_memory_whatever_its_files_say(change, tiny_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    policy = change(Qwen3ForCausalLM(AutoConfig.from_pretrained(tiny_model)))
    policy.config._name_or_path = ""
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    args = config(tmp_path, PPOConfig, beta=0.0)
    critic = PPOTrainer(policy, share_of_threes, args, questions(), processing_class=tokenizer).critic.module
    assert_same(policy.state_dict(), before)
    merged = policy.merge_and_unload() if change is with_adapters else policy
    assert_same(dict(critic.model.named_parameters()), dict(merged.model.named_parameters()))
    assert not {p.data_ptr() for p in critic.parameters()} & {p.data_ptr() for p in policy.parameters()}


def test_a_critic_that_cannot_read_what_the_policy_writes_is_refused(tiny_model, tmp_path):
    small = Qwen3ForCausalLM.from_pretrained(tiny_model)
    small.resize_token_embeddings(100)
    small.save_pretrained(tmp_path / "small")
    with pytest.raises(ValueError, match=r"has 100 token embeddings, expected at least the policy's 2"):
        build(tiny_model, tmp_path, critic_model_name_or_path=str(tmp_path / "small"))


def test_a_quantized_critic_a_half_one_and_one_without_a_classifier_are_refused(tiny_model, tmp_path):
    policy = AutoModelForCausalLM.from_pretrained(tiny_model)
    quantized = AutoConfig.from_pretrained(tiny_model)
    quantized.quantization_config = {"quant_method": "gptq", "bits": 4}
    quantized.save_pretrained(tmp_path / "quantized")
    half = {name: value for name, value in policy.state_dict().items() if "layers.1" not in name}
    policy.save_pretrained(tmp_path / "half", state_dict=half)
    without = AutoConfig.for_model("cohere", num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
    without.save_pretrained(tmp_path / "without")
    messages = {
        "quantized": "is quantized.*Set `critic_model_name_or_path` to the model before quantization",
        "half": "lacks weights that the critic needs: model.layers.1",
        "without": "Unrecognized configuration class .*AutoModelForTokenClassification",
    }
    for name, message in messages.items():
        with pytest.raises(ValueError, match=message):
            build(tiny_model, tmp_path, critic_model_name_or_path=str(tmp_path / name))
