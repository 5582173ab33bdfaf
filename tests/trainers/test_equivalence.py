"""Where TEMPO must be GRPO, by weights after real steps; and where TRL's loss would lose or bend token credit."""

import pytest
import torch
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from tempo_trl import TEMPOConfig, TEMPOTrainer
from tempo_trl.credit.importance import gspo_token_reference

from .recording import RecordingTrainer, config, picky, questions, share_of_threes, train, weights

OFF_POLICY = {
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "per_device_train_batch_size": 4,
    "max_steps": 6,
    "epsilon": 0.05,
    "learning_rate": 1e-2,
}

STOCK = {
    "on_policy": {},
    "off_policy": OFF_POLICY,
    "sequence_level": OFF_POLICY | {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "luspo": OFF_POLICY | {"importance_sampling_level": "sequence", "loss_type": "luspo"},
    "off_policy_mask": OFF_POLICY | {"off_policy_mask_threshold": 1e-4},
    "beta": OFF_POLICY | {"beta": 0.1},
    "vespo": OFF_POLICY | {"loss_type": "vespo"},
    "top_entropy_quantile": {"top_entropy_quantile": 0.2},
}


def assert_same_weights(a, b, **tolerance):
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **tolerance)


def moved(trainer, model) -> bool:
    start = weights(TEMPOTrainer(model, share_of_threes, config(trainer.args.output_dir), questions()))
    return any(not torch.equal(start[name], value) for name, value in weights(trainer).items())


@pytest.mark.parametrize("name", STOCK)
def test_td_coef_zero_is_stock_grpo_bit_for_bit(name, tiny_model, tmp_path):
    options = {"reward_funcs": [share_of_threes, picky], "epsilon_high": 0.28} | STOCK[name]
    stock = train(tiny_model, tmp_path / "grpo", GRPOTrainer, config_cls=GRPOConfig, **options)
    ours = train(tiny_model, tmp_path / "tempo", TEMPOTrainer, td_coef=0.0, **options)
    assert_same_weights(stock, ours, rtol=0, atol=0)
    assert moved(ours, tiny_model)


def test_td_coef_zero_is_stock_grpo_with_lora(tiny_model, tmp_path):
    def run(cls, config_cls, **options):
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        folder = tmp_path / cls.__name__
        options |= {"epsilon_high": 0.28, "trainer": {"peft_config": lora}}
        return train(tiny_model, folder, cls, config_cls=config_cls, **options)

    assert_same_weights(run(GRPOTrainer, GRPOConfig), run(TEMPOTrainer, TEMPOConfig, td_coef=0.0), rtol=0, atol=0)


def test_td_credit_changes_the_weights(tiny_model, tmp_path):
    grpo = train(tiny_model, tmp_path / "grpo", td_coef=0.0, reward_funcs=share_of_threes)
    tempo = train(tiny_model, tmp_path / "tempo", reward_funcs=share_of_threes)
    with pytest.raises(AssertionError):
        assert_same_weights(grpo, tempo, rtol=0, atol=0)


def lone_tokens(prompts, trainer):
    """Completions that part at their first token, except for those of the second prompt, which are all the same."""
    encoded = trainer.processing_class(text=prompts)["input_ids"]
    same = [prompt == prompts[-1] for prompt in prompts]
    completion_ids = [[30, 31, 32] if dull else [30 + i % 4, 31, 32] for i, dull in enumerate(same)]
    return {"prompt_ids": encoded, "completion_ids": completion_ids, "logprobs": [[-1.0] * 3 for _ in prompts]}


def test_groups_that_do_not_branch_carry_grpos_advantage_exactly(tiny_model, tmp_path):
    def by_place(completions, **columns):
        return [float(i % 2) for i in range(len(completions))]

    trainer = train(tiny_model, tmp_path, reward_funcs=by_place, trainer={"rollout_func": lone_tokens}, max_steps=1)
    output = trainer.batches[0].output
    unbranched = output["advantages"][4:]
    assert torch.equal(unbranched, output["sequence_advantages"][4:, None].expand(4, 3))
    assert torch.equal(output["advantages"][:4, 1:], output["sequence_advantages"][:4, None].expand(4, 2))
    assert not torch.isclose(output["advantages"][:4, 0], output["sequence_advantages"][:4]).any()


class LossProbe(RecordingTrainer):
    """Computes the loss and gradient of a batch of its own making."""

    def gradient(self, advantages, outcome, old_logps, **extra):
        inputs = {
            "prompt_ids": torch.tensor([[5, 6], [7, 8]]),
            "prompt_mask": torch.ones(2, 2, dtype=torch.long),
            "completion_ids": torch.tensor([[40, 41, 42, 43], [50, 51, 52, 0]]),
            "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
            "advantages": advantages,
            "sequence_advantages": outcome,
            "old_per_token_logps": old_logps,
            "num_items_in_batch": torch.tensor(7),
        } | extra
        self.model.train()
        self.model.zero_grad()
        self.current_gradient_accumulation_steps = 1
        self._compute_loss(self.model, inputs).backward()
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}, inputs

    def logps(self):
        ids = torch.tensor([[5, 6, 40, 41, 42, 43], [7, 8, 50, 51, 52, 0]])
        mask = torch.tensor([[1] * 6, [1] * 5 + [0]])
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, 4)[0]


def probe(model, folder, **options):
    return LossProbe(model, share_of_threes, config(folder, loss_type="grpo", **options), questions())


MASK = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
TOKEN_CREDIT = torch.tensor([[1.0, -2.0, 0.5, 3.0], [-1.0, 0.25, -0.5, 0.0]])
OUTCOME = torch.tensor([1.0, -1.0])


def assert_same_gradients(a, b):
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("shift", [0.0, 0.02, -0.5, 0.5])
def test_sequence_level_importance_is_gspo_token(shift, tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, importance_sampling_level="sequence")
    old = trainer.logps().detach() + shift * torch.tensor([[1.0, 0.5, -0.25, 1.0], [0.5, 1.0, 0.5, 9.0]])
    computed, inputs = trainer.gradient(TOKEN_CREDIT, OUTCOME, old)
    assert inputs["old_per_token_logps"] is old  # the buffered micro-batch is left alone
    assert trainer.importance_sampling_level == "sequence"

    trainer.model.zero_grad()
    logps = trainer.logps()
    log_ratio = ((logps.detach() - old) * MASK).sum(1, keepdim=True) / MASK.sum(1, keepdim=True)
    ratio = torch.exp(log_ratio + logps - logps.detach())
    clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
    objective = torch.min(ratio * TOKEN_CREDIT, clipped * TOKEN_CREDIT) * MASK
    (-(objective.sum(1) / MASK.sum(1)).mean()).backward()
    assert_same_gradients(computed, {name: p.grad for name, p in trainer.model.named_parameters()})


def test_gspo_token_with_one_advantage_a_sequence_is_gspo(tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, importance_sampling_level="sequence")
    old = trainer.logps().detach() + torch.tensor([[0.1, 0.05, -0.02, 0.1], [0.05, -0.1, 0.05, 9.0]])
    tokens, _ = trainer.gradient(OUTCOME[:, None].expand(2, 4) * MASK, OUTCOME, old)
    stock, _ = trainer.gradient(OUTCOME, OUTCOME, old)
    assert_same_gradients(tokens, stock)


def test_gspo_token_has_the_value_of_the_sequence_ratio_on_every_token():
    logps, old = torch.randn(2, 4), torch.randn(2, 4)
    ratio = torch.exp(logps - gspo_token_reference(logps, old, MASK))
    mean = ((logps - old) * MASK).sum(1) / MASK.sum(1)
    torch.testing.assert_close(ratio, mean.exp()[:, None].expand(2, 4))


def test_the_off_policy_mask_looks_at_the_outcome_not_at_the_tokens_sign(tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, off_policy_mask_threshold=0.1)
    old = trainer.logps().detach() + 0.15  # both sequences are off policy by more than the threshold
    computed, _ = trainer.gradient(TOKEN_CREDIT, OUTCOME, old)
    # The failed completion is dropped whole, its token of positive credit too; the right one is kept whole.
    unmasked = probe(tiny_model, tmp_path)
    expected, _ = unmasked.gradient(TOKEN_CREDIT * torch.tensor([[1.0], [0.0]]), OUTCOME, old)
    assert_same_gradients(computed, expected)


def test_vespo_and_sapo_look_at_each_tokens_own_sign(tiny_model, tmp_path):
    """Their temperature or weight is chosen by the sign of the advantage they scale: with token credit, a token's."""
    for loss_type in ("vespo", "sapo"):
        options = {"loss_type": loss_type} | ({"sapo_temperature_neg": 2.0} if loss_type == "sapo" else {})
        trainer = LossProbe(tiny_model, share_of_threes, config(tmp_path, **options), questions())
        old = trainer.logps().detach() + 0.2
        whole, _ = trainer.gradient(TOKEN_CREDIT, OUTCOME, old)
        parts = [trainer.gradient(TOKEN_CREDIT.clamp(*bounds), OUTCOME, old)[0] for bounds in ((0, None), (None, 0))]
        assert_same_gradients(whole, {name: parts[0][name] + parts[1][name] for name in whole})
