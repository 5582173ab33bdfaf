"""PPO: advantages from true and learned values, the critic's step by hand, and where it lives."""

import copy

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForTokenClassification, Qwen3ForCausalLM

from tempo_trl.credit.gae import gae, mean_and_variance, moments, whiten
from tempo_trl.trainers.ppo_config import PPOConfig
from tempo_trl.trainers.ppo_trainer import PPOTrainer

from .rank_matrix import reward_of, scripted
from .recording import config, parity, picky, questions, share_of_threes, train, weights
from .test_equivalence import assert_same_gradients, assert_same_weights

KINDS = {"separate": {}, "shared": {"shared_trunk": True, "value_coef": 0.5}}
# Adam is nearly linear in the gradient where its epsilon is large: rounding stays rounding.
LINEAR = {"optim": "sgd", "learning_rate": 0.1, "adam_epsilon": 1.0, "critic_learning_rate": 0.1, "max_grad_norm": 0.0}


class RecordingPPO(PPOTrainer):
    def __init__(self, *args, **kwargs):
        self.batches, self.rewards, self.gradients = [], [], []
        super().__init__(*args, **kwargs)
        step = self.critic.step

        def recorded_step():
            self.gradients.append(self.critic._gradients.clone())
            return step()

        self.critic.step = recorded_step

    def _credit(self, output):
        self.rewards.append(self._own_rewards())
        super()._credit(output)
        self.batches.append({name: value.clone() for name, value in output.items() if torch.is_tensor(value)})


def run(model, folder, **options):
    defaults = {"reward_funcs": share_of_threes, "critic_learning_rate": 1e-3, "cls": RecordingPPO}
    return train(model, folder, config_cls=PPOConfig, **(defaults | options))


def build(model, folder, cls=RecordingPPO, reward_funcs=share_of_threes, **options):
    return cls(model, reward_funcs, config(folder, PPOConfig, **options), questions())


def critic_weights(trainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.critic.module.named_parameters()}


def give_the_head_an_opinion(trainer) -> None:
    head = getattr(trainer.critic.module, "score", trainer.critic.module)
    torch.nn.init.normal_(head.weight, std=0.5, generator=torch.Generator().manual_seed(1))


def scored(trainer) -> dict:
    """A batch as it leaves generation, with credit."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions([{"prompt": f"What is {a} + {a + 1}?"} for a in (0, 0, 0, 0)] * 2)


# The credit


def coin_tosses(prompts, trainer):
    """Two tosses of a fair coin (tokens 30 and 31), all four outcomes for each prompt."""
    ids = [[30 + i % 4 // 2, 30 + i % 2] for i in range(len(prompts))]
    encoded = trainer.processing_class(text=prompts)["input_ids"]
    return {"prompt_ids": encoded, "completion_ids": ids, "logprobs": [[-0.69, -0.69] for _ in ids]}


def both_heads(completions, completion_ids, **columns):
    return [float(ids == [31, 31]) for ids in completion_ids]


def true_values(inputs):
    """1/4 before the first toss; then 1/2 after heads, 0 after tails."""
    return torch.stack([torch.full((len(inputs["completion_ids"]),), 0.25), heads(inputs, 0) / 2], dim=1)


def heads(inputs, toss: int) -> torch.Tensor:
    return (inputs["completion_ids"][:, toss] == 31).float()


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_with_true_values_the_advantages_are_the_true_ones(lam, tiny_model, tmp_path):
    class Oracle(RecordingPPO):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.critic.values = true_values

    options = {"rollout_func": coin_tosses}
    args = config(tmp_path, PPOConfig, gae_lambda=lam, whiten_advantages=False)
    trainer = Oracle(tiny_model, both_heads, args, questions(), **options)
    output = scored(trainer)
    first, second = heads(output, 0), heads(output, 1)
    last = first * second - first / 2  # both tosses known, minus the value between them
    expected = torch.stack([first / 2 - 0.25 if lam == 0.0 else first * second - 0.25, last], dim=1)
    torch.testing.assert_close(output["advantages"], expected)
    torch.testing.assert_close(output["outcome_advantages"], expected.mean(dim=1))


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_text_before_each_token_read_alone(kind, tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, **KINDS[kind], per_device_train_batch_size=4, gradient_accumulation_steps=2)
    give_the_head_an_opinion(trainer)
    output = scored(trainer)
    for row in range(8):
        prompt = output["prompt_ids"][row][output["prompt_mask"][row] == 1]
        completion = output["completion_ids"][row][output["completion_mask"][row] == 1]
        for t in range(len(completion)):
            text = torch.cat([prompt, completion[:t]]).unsqueeze(0)
            with torch.no_grad():
                if kind == "separate":
                    expected = trainer.critic.module(input_ids=text).logits[0, -1, 0]
                else:
                    expected = trainer.critic.module(trainer.model.model(text).last_hidden_state[0, -1])[0]
            torch.testing.assert_close(output["values"][row, t], expected, rtol=1e-4, atol=1e-5)
    assert output["values"].std() > 0.01


def test_advantages_are_gae_whitened_over_the_batch_and_returns_are_not(tiny_model, tmp_path):
    options = {"reward_weights": [0.7, 2.0], "gae_gamma": 0.9, "gae_lambda": 0.8, "beta": 0.0}
    trainer = build(tiny_model, tmp_path, reward_funcs=[share_of_threes, parity], **options)
    give_the_head_an_opinion(trainer)
    output = scored(trainer)
    mask, last = output["completion_mask"], output["completion_mask"].sum(dim=1) - 1
    ids = [row[: n + 1].tolist() for row, n in zip(output["completion_ids"], last, strict=True)]
    total = 0.7 * torch.tensor(share_of_threes(ids, ids)) + 2.0 * torch.tensor(parity(ids, ids))
    rewards = torch.zeros(mask.shape)
    rewards[range(8), last] = total
    advantages, returns = gae(rewards, output["values"], mask, 0.9, 0.8)
    torch.testing.assert_close(output["returns"], returns)
    expected = whiten(advantages, mask, *mean_and_variance(moments(advantages, mask)))
    torch.testing.assert_close(output["advantages"], expected)


def test_tokens_of_the_environment_are_passed_over(tiny_model, tmp_path):
    args = config(tmp_path, PPOConfig, gae_lambda=0.0, whiten_advantages=False, max_completion_length=48)
    trainer = RecordingPPO(tiny_model, reward_of("plain"), args, questions(), rollout_func=scripted("environment"))
    give_the_head_an_opinion(trainer)
    output = scored(trainer)
    outside = (output["completion_mask"] * output["tool_mask"]) == 0
    assert outside[output["completion_mask"] == 1].any()
    assert not output["advantages"][outside].any()
    values, row = output["values"], int(output["completion_mask"].sum(dim=1).argmax())
    assert output["tool_mask"][row, :3].tolist() == [1, 0, 1]
    torch.testing.assert_close(output["advantages"][row, 0], values[row, 2] - values[row, 0])


def test_what_no_function_scores_trains_neither_policy_nor_critic(tiny_model, tmp_path):
    scripts = {"reward_funcs": reward_of("unscorable"), "trainer": {"rollout_func": scripted("unscorable")}}
    trainer = run(tiny_model, tmp_path, **scripts, max_completion_length=48, max_steps=4, num_iterations=1, beta=0.0)
    assert any(rewards.isnan().any() and not rewards.isnan().all() for rewards in trainer.rewards)
    for batch, rewards in zip(trainer.batches, trainer.rewards, strict=True):
        assert torch.equal(batch["value_mask"], batch["completion_mask"] * ~rewards.isnan()[:, None])
        assert batch["num_value_tokens"] == batch["value_mask"].sum()
        assert not batch["advantages"][batch["value_mask"] == 0].any()

    def nothing(completions, **columns):
        return [None] * len(completions)

    start = critic_weights(build(tiny_model, tmp_path))
    trainer = run(tiny_model, tmp_path, reward_funcs=nothing, max_steps=2, beta=0.0)
    assert all(torch.equal(start[name], value) for name, value in critic_weights(trainer).items())


def test_truncated_completions_that_are_masked_train_nothing(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, mask_truncated_completions=True, max_completion_length=3)
    rows = [row for b in trainer.batches for row in b["advantages"][b["completion_mask"].sum(dim=1) == 0]]
    assert rows
    assert not any(row.any() for row in rows)


# The policy's loss


class LossProbe(PPOTrainer):
    """Computes the policy's loss and gradient of a batch of its own making."""

    inputs = {
        "prompt_ids": torch.tensor([[5, 6], [7, 8]]),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[40, 41, 42, 43], [50, 51, 52, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "advantages": torch.tensor([[1.5, -0.8, 0.4, 1.0], [-1.0, 0.3, -0.6, 9.0]]),
        "outcome_advantages": torch.tensor([0.5, -0.4]),
        "num_items_in_batch": torch.tensor(7),
    }
    drift = torch.tensor([[0.3, -0.05, -0.7, 0.1], [-0.4, 0.5, 0.3, 0.0]])

    def logps(self):
        ids = torch.cat([self.inputs["prompt_ids"], self.inputs["completion_ids"]], dim=1)
        mask = torch.cat([self.inputs["prompt_mask"], self.inputs["completion_mask"]], dim=1)
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, 4)[0]

    def gradient(self, **extra):
        self.model.train()
        self.model.zero_grad()
        self.current_gradient_accumulation_steps = 1
        self._compute_loss(self.model, self.inputs | extra).backward()
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}

    def gradient_of(self, objective):
        """Gradient of minus the mean over tokens of an objective of the `(2, 4)` log-probabilities."""
        self.model.zero_grad()
        (-(objective(self.logps()) * self.inputs["completion_mask"]).sum() / 7).backward()
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}


def test_the_policys_gradient_is_that_of_the_clipped_objective_token_by_token(tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, LossProbe, beta=0.0)
    old, advantages = trainer.logps().detach() - LossProbe.drift, LossProbe.inputs["advantages"]

    def clipped(logps):
        ratio = (logps - old).exp()
        return torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)

    assert_same_gradients(trainer.gradient(old_per_token_logps=old), trainer.gradient_of(clipped))


def test_the_kl_penalty_is_in_the_loss_or_in_the_reward_and_not_in_both(tiny_model, tmp_path):
    settings = {"beta": 0.3, "use_bias_correction_kl": False}
    in_loss, in_reward = (
        build(tiny_model, tmp_path, LossProbe, kl_in=place, **settings) for place in ("loss", "reward")
    )
    old = in_loss.logps().detach() - LossProbe.drift
    batch = {"old_per_token_logps": old, "ref_per_token_logps": (reference := old - 0.2)}
    without = build(tiny_model, tmp_path, LossProbe, beta=0.0).gradient(**batch)
    assert_same_gradients(in_reward.gradient(**batch), without)
    assert in_reward.beta == 0.3

    def minus_k3(logps):
        return -0.3 * ((reference - logps).exp() - (reference - logps) - 1)

    kl = in_loss.gradient_of(minus_k3)
    assert_same_gradients(in_loss.gradient(**batch), {name: without[name] + kl[name] for name in kl})


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_in_the_reward_the_penalty_is_k1_of_each_token_and_moves_the_returns(num_iterations, tiny_model, tmp_path):
    options = {"beta": 0.3, "kl_in": "reward", "critic_learning_rate": 0.0, "whiten_advantages": False}
    trainer = run(tiny_model, tmp_path, **options, num_iterations=num_iterations, max_steps=3, learning_rate=3e-2)
    batch, rewards, mask = trainer.batches[-1], trainer.rewards[-1], trainer.batches[-1]["completion_mask"]
    assert ("old_per_token_logps" in batch) == (num_iterations == 2)
    if num_iterations == 2:
        k1 = (batch["old_per_token_logps"] - batch["ref_per_token_logps"]) * mask
        to_come = k1.flip(1).cumsum(dim=1).flip(1)
        assert to_come.abs().max() > 0.1
        torch.testing.assert_close(batch["returns"], (rewards[:, None] - 0.3 * to_come) * mask)
        logged = [entry["ppo/kl"] for entry in trainer.state.log_history if "ppo/kl" in entry]
        assert logged[-1] == pytest.approx((k1.sum() / mask.sum()).item(), rel=1e-4)
    assert not batch["values"].any()
    assert ((batch["returns"] - rewards[:, None]) * mask).abs().max() > 0.01


# The critic's loss


def value_loss_by_hand(values, batch):
    """Half the mean square over the tokens of the loss, the critic's of all the rows at once."""
    return 0.5 * ((values - batch["returns"]) ** 2 * batch["value_mask"]).sum() / batch["value_mask"].sum()


def flat(gradients) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_critics_gradient_is_that_of_half_the_mean_square(accumulation, tiny_model, tmp_path):
    args = config(
        tmp_path,
        PPOConfig,
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        critic_learning_rate=0.0,
    )
    trainer = RecordingPPO(tiny_model, share_of_threes, args, questions())
    give_the_head_an_opinion(trainer)
    twin = copy.deepcopy(trainer.critic.module)
    trainer.train()
    batch, (recorded,) = trainer.batches[0], trainer.gradients
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


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_accumulation_does_not_change_the_steps(kind, tiny_model, tmp_path):
    def accumulated(times):
        geometry = {"per_device_train_batch_size": 8 // times, "gradient_accumulation_steps": times}
        options = KINDS[kind] | LINEAR | geometry | {"reward_funcs": reward_of("plain"), "max_completion_length": 48}
        return run(tiny_model, tmp_path, **options, trainer={"rollout_func": scripted("plain")}, max_steps=4)

    once, often = accumulated(1), accumulated(4)
    assert len(often.gradients) == 4
    assert_same_weights(once, often, rtol=1e-4, atol=1e-5)
    start = critic_weights(build(tiny_model, tmp_path, **KINDS[kind]))
    for name, value in critic_weights(once).items():
        torch.testing.assert_close(critic_weights(often)[name], value, rtol=1e-4, atol=1e-5)
    assert any(not torch.allclose(start[name], value, atol=1e-3) for name, value in critic_weights(once).items())


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
    for name, value in critic_weights(trainer).items():
        torch.testing.assert_close(value, named[name], rtol=1e-4, atol=1e-6)
    assert not trainer.critic._gradients.any()
    assert trainer.critic.scheduler.get_last_lr() == [0.25, 0.25]  # linear, like the actor's


def test_two_inner_epochs_step_twice_on_the_values_of_the_sampling(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, max_steps=6)
    assert len(trainer.batches) == 3
    assert len(trainer.gradients) == 6
    assert all("old_per_token_logps" in batch for batch in trainer.batches)
    steps = {int(state["step"]) for state in trainer.critic.optimizer.state.values()}
    assert steps == {6}
    assert trainer.critic.scheduler.last_epoch == trainer.lr_scheduler.last_epoch == 6


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


# What it goes with

TRAINS = {
    "bf16": {"bf16": True},
    "bf16_shared": {"bf16": True, "shared_trunk": True},
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "gradient_checkpointing_shared": {"gradient_checkpointing": True, "shared_trunk": True},
    "sequence_level_importance": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "vespo": {"loss_type": "vespo"},
    "off_policy_mask": {"off_policy_mask_threshold": 1e-4},
    "top_entropy_quantile": {"top_entropy_quantile": 0.2},
    "value_clip_range": {"value_clip_range": 0.2},
    "two_updates_a_generation": {"per_device_train_batch_size": 4, "steps_per_generation": 2},
    "gamma_and_lambda": {"gae_gamma": 0.99, "gae_lambda": 0.95},
    "kl_in_reward_shared": {"kl_in": "reward", "shared_trunk": True, "beta": 0.1},
    "warmup": {"warmup_steps": 1, "lr_scheduler_type": "cosine"},
}


@pytest.mark.parametrize("name", TRAINS)
def test_what_ppo_can_go_with_trains(name, tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, max_steps=4, **TRAINS[name])
    assert trainer.state.global_step == 4
    start = critic_weights(build(tiny_model, tmp_path, shared_trunk=trainer.args.shared_trunk))
    trained = critic_weights(trainer)
    assert all(value.isfinite().all() for value in (weights(trainer) | trained).values())
    assert all(not torch.equal(value, start[name]) for name, value in trained.items() if "embed" not in name)


def test_gradient_checkpointing_changes_no_weight(tiny_model, tmp_path):
    plain, checkpointed = (run(tiny_model, tmp_path, gradient_checkpointing=on, **LINEAR) for on in (False, True))
    assert checkpointed.critic.module.is_gradient_checkpointing
    assert_same_weights(plain, checkpointed)
    for name, value in critic_weights(plain).items():
        torch.testing.assert_close(critic_weights(checkpointed)[name], value)


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
    assert trainer.state.log_history[2]["ppo/kl"] != 0


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

    evaluating = run(
        tiny_model,
        tmp_path,
        **KINDS[kind],
        eval_strategy="steps",
        eval_steps=1,
        trainer={"eval_dataset": questions(4)},
    )
    plain = run(tiny_model, tmp_path, **KINDS[kind])
    assert len(evaluating.gradients) == len(plain.gradients) == 3


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
    for name, value in critic_weights(trainer).items():
        assert torch.equal(dict(loaded.named_parameters())[name], value)
        assert torch.equal(critic_weights(again)[name], value)
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
        for name, value in part(whole).items():
            assert torch.equal(value, part(resumed)[name]), name
    assert torch.equal(whole.batches[-1]["values"], resumed.batches[-1]["values"])
    assert whole.critic.scheduler.state_dict() == resumed.critic.scheduler.state_dict()


def test_a_checkpoint_without_its_critic_or_with_another_is_refused(tiny_model, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    run(tiny_model, tmp_path, **options, shared_trunk=True)
    checkpoint = tmp_path / "checkpoint-2"
    with pytest.raises(ValueError, match=r"is another one than this run's: are `shared_trunk`"):
        build(tiny_model, tmp_path, max_steps=4).train(resume_from_checkpoint=str(checkpoint))
    (checkpoint / "critic/model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"The checkpoint has no critic.*Take another checkpoint"):
        build(tiny_model, tmp_path, max_steps=4, shared_trunk=True).train(resume_from_checkpoint=str(checkpoint))
