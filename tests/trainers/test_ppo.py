"""PPO: advantages from true and learned values, and the policy's loss against objectives written out here."""

import pytest
import torch

from tempo_trl.credit.gae import gae, mean_and_variance, moments, whiten
from tempo_trl.methods.ppo import PPOConfig, PPOTrainer
from tempo_trl.trainers.whole_groups import weighted_rewards

from . import probing
from .probing import assert_same_gradients
from .rank_matrix import reward_of, scripted
from .recording import config, parity, questions, rolled_out, share_of_threes, train

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

    def _assign_credit(self, rows, *rest):
        self.rewards.append(weighted_rewards(self, rows.rewards_per_func))  # of one rank
        super()._assign_credit(rows, *rest)
        self.batches.append({name: value.clone() for name, value in rows.output.items() if torch.is_tensor(value)})


def run(model, folder, **options):
    defaults = {"reward_funcs": share_of_threes, "critic_learning_rate": 1e-3, "cls": RecordingPPO}
    return train(model, folder, **(defaults | options))


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
    return rolled_out(prompts, trainer, ids)


def both_heads(completions, completion_ids, **columns):
    return [float(ids == [31, 31]) for ids in completion_ids]


def true_values(input_ids, attention_mask):
    """1/4 before the first of two tosses; then 1/2 after heads, 0 after tails."""
    values = torch.full(input_ids.shape, 0.25)
    values[:, -2] = (input_ids[:, -2] == 31) / 2
    return values


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
    torch.testing.assert_close(output["outcome"], expected.mean(dim=1))


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


class LossProbe(probing.LossProbe, PPOTrainer):
    inputs = probing.LossProbe.inputs | {
        "advantages": torch.tensor([[1.5, -0.8, 0.4, 1.0], [-1.0, 0.3, -0.6, 9.0]]),
        "outcome": torch.tensor([0.5, -0.4]),
    }
    drift = torch.tensor([[0.3, -0.05, -0.7, 0.1], [-0.4, 0.5, 0.3, 0.0]])


def test_the_policys_gradient_is_that_of_the_clipped_objective_token_by_token(tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, LossProbe, beta=0.0, loss_type="grpo")
    old, advantages = trainer.logps().detach() - LossProbe.drift, LossProbe.inputs["advantages"]

    def clipped(logps):
        ratio = (logps - old).exp()
        return torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)

    assert_same_gradients(trainer.gradient(old_per_token_logps=old), trainer.gradient_of(clipped))
