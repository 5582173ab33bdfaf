"""The estimate of PPO's critic against the bytes of a real one, and when they are needed."""

from argparse import Namespace

import pytest
import torch
from transformers import AutoModelForTokenClassification

from tempo_trl.launch.check import memory_rows
from tempo_trl.launch.memory import ALWAYS, CRITIC, SAMPLING, UPDATING, Model, Row, critic_of, estimate, needs
from tempo_trl.launch.model_shape import model_shape
from tempo_trl.launch.plan import ALL, Engine, LaunchPlan
from tempo_trl.methods.critic import Critic

from ..tiny import tiny_model_config
from .test_memory import CONFIGS, HAND, arguments, given, model

ZERO_2 = LaunchPlan(2, 1, Engine("DeepSpeed ZeRO-2", "DeepSpeed", ALL[1:], 2), "bf16")


PLAIN = Namespace(bf16=False, gradient_checkpointing=True)
STATE = ("critic's weights", "critic's gradients", "critic's optimizer state")


def rows_of_a_run(tmp_path, tiny_model, flags: str) -> dict[str, Row]:
    return {row.name: row for row in memory_rows(ZERO_2, given(tmp_path, tiny_model, f"--method ppo {flags}"))[1]}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_critic_has_the_parameters_of_a_real_token_classifier(name):
    config = CONFIGS[name]()
    critic = critic_of(model_shape(config), PLAIN)
    config.num_labels = 1
    real = AutoModelForTokenClassification.from_config(config)
    assert critic.shape.total == critic.shape.trained == sum(p.numel() for p in real.parameters())
    assert critic.shape.ends == real.get_input_embeddings().weight.numel()


def test_a_critic_s_state_is_as_large_as_a_real_one_after_a_step():
    config = tiny_model_config(300)
    shape = model_shape(config)
    config.num_labels = 1
    critic = real_critic(AutoModelForTokenClassification.from_config(config))
    critic.module(torch.arange(6)[None]).logits.sum().backward()
    critic.start(max_steps=1)
    critic.step()
    tensors = [*critic.module.parameters(), critic._gradients]
    tensors += [t for state in critic.optimizer.state.values() for name, t in state.items() if name != "step"]
    rows = critic_rows(critic_of(shape, PLAIN))
    assert sum(rows[name].size for name in STATE) == sum(tensor.nbytes for tensor in tensors)


def critic_rows(critic: Model) -> dict[str, Row]:
    """Rows of `critic` beside a policy that is split."""
    policy = model(Engine("", "DeepSpeed", ALL[1:], 2))
    return {row.name: row for row in estimate(policy, critic, 3, arguments()) if row.name.startswith("critic's")}


def real_critic(module: torch.nn.Module) -> Critic:
    args = {"weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0}
    args |= {"critic_learning_rate": 1e-5, "lr_scheduler_type": "constant", "lr_scheduler_kwargs": None}
    trainer = Namespace(args=Namespace(**args, get_warmup_steps=lambda steps: 0), accelerator=Namespace(device="cpu"))
    trainer.get_decay_parameter_names = lambda model: []
    return Critic(module, trainer)


def test_the_hand_worked_critic():
    # HAND has 1,000 parameters, 400 of its ends: the head is tied to an embedding of 50 x 8, and the value head is 9.
    rows = critic_rows(critic_of(HAND, Namespace(bf16=True, gradient_checkpointing=False)))
    assert [(row.name, row.size, row.when) for row in rows.values()] == [
        ("critic's weights", 4 * 1009, ALWAYS),
        ("critic's gradients", 4 * 1009, ALWAYS),
        ("critic's optimizer state", 8 * 1009, ALWAYS),
        # as test_the_hand_worked_batch has it under autocast, of two layers and 8 rows of 8 tokens
        ("critic's activations", 2 * (128 + 80 + 64 + 128) * 64, CRITIC),
        ("critic's buffers", 2 * (600 + 9), CRITIC),
    ]
    assert all(row.where == "whole on each" for row in rows.values())
    untied = critic_of(HAND._replace(ends=400, head=200), PLAIN).shape
    assert (untied.total, untied.ends) == (1000 - 200 + 9, 200)
    assert list(critic_rows(critic_of(HAND, PLAIN))) == [*STATE, "critic's activations"]


def test_the_critic_starts_from_the_model_that_is_named_and_has_no_adapters(tmp_path, tiny_model):
    larger = tiny_model_config(300, hidden_size=32)
    larger.save_pretrained(tmp_path / "larger")
    flags = ("--use_peft true", "--bf16 true", f"--critic_model_name_or_path {tmp_path / 'larger'}")
    adapted, own, named = (rows_of_a_run(tmp_path, tiny_model, each)["critic's weights"].size for each in flags)
    assert adapted == own
    assert named == 4 * critic_of(model_shape(larger), PLAIN).shape.total > own


@pytest.mark.parametrize("flags", ["--shared_trunk true", "--method grpo"])
def test_a_value_head_on_the_policy_is_too_small_for_a_row_and_other_methods_have_no_critic(
    flags, tmp_path, tiny_model
):
    assert not any("critic" in name or "value" in name for name in rows_of_a_run(tmp_path, tiny_model, flags))


def test_updates_need_what_the_larger_of_policy_and_critic_does_since_they_take_turns():
    sizes = {ALWAYS: 10, UPDATING: 5, CRITIC: 7, SAMPLING: 3}
    rows = [Row(when, size, "", "", when) for when, size in sizes.items()]
    assert needs(rows, Namespace()) == (17, 13)
    assert needs([*rows, Row("more of the policy's", 4, "", "", UPDATING)], Namespace()) == (19, 13)
