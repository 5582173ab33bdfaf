"""PPO's critic: its gradient and steps by hand, where it lives, and its resume."""

import copy

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForTokenClassification, Qwen3ForCausalLM, TrainerCallback

from tempo_trl.methods.ppo import PPOConfig

from .recording import assert_same, config, parity, questions, share_of_threes, weights
from .test_ppo import (
    KINDS,
    RecordingPPO,
    both_heads,
    build,
    coin_tosses,
    critic_weights,
    give_the_head_an_opinion,
    run,
    scored,
)

pytestmark = pytest.mark.matrix


def value_loss_by_hand(values, batch):
    """Half the mean square over the tokens of the loss, the critic's of all the rows at once."""
    return 0.5 * ((values - batch["returns"]) ** 2 * batch["value_mask"]).sum() / batch["value_mask"].sum()


def flat(gradients) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize(("accumulation", "steps"), [(1, 1), (4, 1), (1, 2), (2, 2)])
def test_the_critics_mean_gradient_is_that_of_half_the_mean_square(accumulation, steps, tiny_model, tmp_path):
    """Of all the tokens of a generation, however many steps and micro-batches it is cut into."""
    args = config(
        tmp_path,
        PPOConfig,
        per_device_train_batch_size=8 // (accumulation * steps),
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation * steps,
        num_iterations=1,
        max_steps=steps,
        critic_learning_rate=0.0,
    )
    trainer = RecordingPPO(tiny_model, share_of_threes, args, questions())
    give_the_head_an_opinion(trainer)
    twin = copy.deepcopy(trainer.critic.module)
    trainer.train()
    (batch,), recorded = trainer.batches, torch.stack(trainer.gradients).mean(dim=0)
    assert len(trainer.gradients) == steps
    ids, mask = (torch.cat([batch[f"prompt_{k}"], batch[f"completion_{k}"]], dim=1) for k in ("ids", "mask"))
    values = twin(input_ids=ids, attention_mask=mask).logits[..., 0][:, -batch["values"].shape[1] - 1 : -1]
    twin.zero_grad(set_to_none=True)
    value_loss_by_hand(values, batch).backward()
    torch.testing.assert_close(recorded, flat(p.grad for p in twin.parameters()), rtol=1e-4, atol=1e-6)
    assert recorded.abs().max() > 1e-3


@pytest.mark.parametrize("adapters", [False, True])
def test_with_a_shared_trunk_the_value_loss_reaches_head_and_trunk(adapters, tiny_model, tmp_path):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian") if adapters else None
    args = config(tmp_path, PPOConfig, shared_trunk=True, value_coef=0.5, beta=0.0)
    trainer = RecordingPPO(tiny_model, share_of_threes, args, questions(), peft_config=lora)
    give_the_head_an_opinion(trainer)
    batch = scored(trainer)

    def gradients(loss):
        learns = [p for p in trainer.model.parameters() if p.requires_grad]
        return flat(torch.autograd.grad(loss, [*trainer.critic.module.parameters(), *learns], allow_unused=True))

    def gradients_of_ours(coefficient):
        trainer.args.value_coef = coefficient
        return gradients(trainer._compute_loss(trainer.model, batch) + 0.0 * trainer.critic.module.weight.sum())

    trainer.model.train()
    ids, mask = (torch.cat([batch[f"prompt_{k}"], batch[f"completion_{k}"]], dim=1) for k in ("ids", "mask"))
    base = trainer.model.get_base_model() if adapters else trainer.model
    hidden = base.model(input_ids=ids, attention_mask=mask).last_hidden_state
    values = trainer.critic.module(hidden)[..., 0][:, -batch["values"].shape[1] - 1 : -1]
    unused = 0.0 * sum(p.sum() for p in trainer.model.parameters() if p.requires_grad)
    expected = gradients(0.5 * value_loss_by_hand(values, batch) + unused)
    torch.testing.assert_close(gradients_of_ours(0.5) - gradients_of_ours(0.0), expected, rtol=1e-3, atol=1e-6)
    assert expected[17:].abs().max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_loss_falls_on_a_fixed_policy(kind, tiny_model, tmp_path):
    options = KINDS[kind] | {"learning_rate": 0.0, "critic_learning_rate": 1e-1 if kind == "shared" else 1e-2}
    start = weights(build(tiny_model, tmp_path))
    options |= {"reward_funcs": both_heads, "trainer": {"rollout_func": coin_tosses}, "max_steps": 40}
    trainer = run(tiny_model, tmp_path, **options, lr_scheduler_type="constant")
    losses = [entry["ppo/value_loss"] for entry in trainer.state.log_history if "ppo/value_loss" in entry]
    explained = [e["ppo/explained_variance"] for e in trainer.state.log_history if "ppo/explained_variance" in e]
    # Half the variance that no value explains: (3/16 + 1/8) / 2 / 2 for the two tosses.
    assert losses[0] == pytest.approx(0.125)
    assert min(losses[-4:]) == pytest.approx(0.078, abs=0.004)
    assert explained[0] == 0.0
    assert max(explained[-4:]) == pytest.approx(1 / 6, abs=0.04)  # 1/32 of 3/16
    assert all(torch.equal(start[name], value) for name, value in weights(trainer).items())


def test_a_step_clips_the_gradient_and_follows_the_actors_schedule(tiny_model, tmp_path):
    options = {"max_grad_norm": 0.01, "weight_decay": 0.1, "adam_epsilon": 1e-3, "critic_learning_rate": 0.5}
    trainer = build(tiny_model, tmp_path, **options)
    twin = copy.deepcopy(trainer.critic.module)
    named = dict(twin.named_parameters())
    plain = {name for name in named if "norm" in name or "bias" in name}
    groups = [{"params": [p for n, p in named.items() if n not in plain]}]
    groups += [{"params": [named[n] for n in plain], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, 0.5, (0.9, 0.999), 1e-3, 0.1)
    trainer.critic.start(max_steps=2)
    torch.manual_seed(0)
    for ours, theirs in zip(trainer.critic.module.parameters(), twin.parameters(), strict=True):
        ours.grad += torch.randn(ours.shape)
        theirs.grad = ours.grad.clone()
    norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
    assert trainer.critic.step() == pytest.approx(norm.item(), rel=1e-5)
    optimizer.step()
    assert_same(critic_weights(trainer), named, rtol=1e-4, atol=1e-6)
    assert not trainer.critic._gradients.any()
    assert trainer.critic.scheduler.get_last_lr() == [0.25, 0.25]  # linear, like the actor's


def test_the_critics_weights_stay_float32_and_its_dropout_off(tmp_path, tiny_model):
    policy = Qwen3ForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16, attention_dropout=0.5)
    policy.save_pretrained(tmp_path / "model")
    tokenizer = build(tiny_model, tmp_path).processing_class
    args = config(tmp_path, PPOConfig, bf16=True, model_init_kwargs={"dtype": "bfloat16"})
    trainer = RecordingPPO(str(tmp_path / "model"), share_of_threes, args, questions(), processing_class=tokenizer)
    assert next(trainer.model.parameters()).dtype == torch.bfloat16
    module = trainer.critic.module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert module.config.attention_dropout == module.dropout.p == 0.0
    assert module.training


# Where the critic lives


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_that_is_saved_synchronized_and_published_knows_nothing_of_the_critic(kind, tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, **KINDS[kind], save_strategy="steps", save_steps=2, max_steps=2)
    plain = Qwen3ForCausalLM.from_pretrained(tiny_model)
    # vLLM's weights are `self.model.named_parameters()`.
    assert set(weights(trainer)) == {name for name, _ in plain.named_parameters()}
    policy, critic = (
        {p.untyped_storage().data_ptr() for p in m.parameters()} for m in (trainer.model, trainer.critic.module)
    )
    assert not policy & critic
    assert trainer.model.state_dict().keys() == plain.state_dict().keys()
    trainer.save_model()
    assert not [path for path in tmp_path.rglob("*") if "critic" in path.name and "checkpoint-" not in str(path)]
    saved = {path.name for path in (tmp_path / "checkpoint-2/critic").iterdir()}
    assert saved - {"config.json"} == {"model.safetensors", "optimizer.pt", "scheduler.pt"}
    assert {path.name for path in tmp_path.iterdir()} >= {"model.safetensors", "config.json"}
    Qwen3ForCausalLM.from_pretrained(tmp_path / "checkpoint-2")


def test_a_saved_critic_is_a_model_that_another_run_can_start_from(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    folder = str(tmp_path / "checkpoint-2/critic")
    loaded = AutoModelForTokenClassification.from_pretrained(folder)
    again = build(tiny_model, tmp_path, critic_model_name_or_path=folder)
    assert_same(critic_weights(trainer), dict(loaded.named_parameters()))
    assert_same(critic_weights(trainer), critic_weights(again))
    assert again.critic.module.score.weight.any()
    fresh = build(tiny_model, tmp_path)
    assert not fresh.critic.module.score.weight.any()
    assert not fresh.critic.module.score.bias.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_run_that_never_stopped_bit_for_bit(kind, tiny_model, tmp_path):
    schedule = {"save_strategy": "steps", "save_steps": 4, "max_steps": 8, "steps_per_generation": 2}
    args = config(
        tmp_path, PPOConfig, per_device_train_batch_size=4, critic_learning_rate=1e-2, **KINDS[kind], **schedule
    )
    whole, resumed = (RecordingPPO(tiny_model, parity, args, questions()) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert len(resumed.gradients) == 4
    for part in (weights, critic_weights):
        assert_same(part(whole), part(resumed))
    assert torch.equal(whole.batches[-1]["values"], resumed.batches[-1]["values"])
    assert whole.critic.scheduler.state_dict() == resumed.critic.scheduler.state_dict()


def test_a_second_training_goes_on_with_both_optimizers(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, max_steps=2)
    trainer.train()
    for optimizer in (trainer.optimizer, trainer.critic.optimizer):
        assert {int(state["step"]) for state in optimizer.state.values()} == {4}
    assert trainer.args.critic_learning_rate > 0  # where the second schedule began, too; the first one ended at 0
    assert {*trainer.critic.scheduler.base_lrs} == {trainer.args.critic_learning_rate}


class StopWithinAStep(TrainerCallback):
    stops = True

    def on_substep_end(self, args, state, control, **kwargs):
        control.should_training_stop = self.stops


def test_a_run_that_is_stopped_within_a_step_leaves_no_gradient_to_the_next(tiny_model, tmp_path):
    stop = StopWithinAStep()
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_iterations": 1, "max_steps": 1}
    args = config(tmp_path, PPOConfig, **options)
    trainer = RecordingPPO(tiny_model, share_of_threes, args, questions(), callbacks=[stop])
    give_the_head_an_opinion(trainer)
    trainer.train()
    left, start, begun = trainer.critic._gradients.norm().item(), trainer.critic.start, []

    def started(max_steps):
        start(max_steps)
        begun.append(trainer.critic._gradients.norm().item())

    trainer.critic.start, stop.stops = started, False
    trainer.train()
    assert left > 0 and begun == [0.0]
    assert trainer._micro_batches == []


def test_a_checkpoint_without_its_critic_or_with_another_is_refused(tiny_model, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    run(tiny_model, tmp_path, **options, shared_trunk=True)
    checkpoint = tmp_path / "checkpoint-2"
    with pytest.raises(RuntimeError, match="Missing key"):
        build(tiny_model, tmp_path, max_steps=4).train(resume_from_checkpoint=str(checkpoint))
    (checkpoint / "critic/model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-2 has no critic/model\.safetensors, expected the critic"):
        build(tiny_model, tmp_path, max_steps=4, shared_trunk=True).train(resume_from_checkpoint=str(checkpoint))
