"""Where TEMPO must be GRPO, by weights after real steps; and where TRL's loss would lose or bend token credit."""

import pytest
import torch
from peft import LoraConfig
from trl import GRPOTrainer

from tempo_trl import HEPOTrainer, PlainGRPOTrainer, TEMPOTrainer

from . import probing
from .probing import assert_same_gradients
from .recording import assert_same_weights, config, moved, picky, questions, share_of_threes, train

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


@pytest.mark.parametrize("name", STOCK)
def test_td_coef_zero_and_plain_grpo_are_stock_grpo_bit_for_bit(name, tiny_model, tmp_path):
    options = {"reward_funcs": [share_of_threes, picky], "epsilon_high": 0.28} | STOCK[name]
    stock = train(tiny_model, tmp_path / "grpo", GRPOTrainer, **options)
    ours = train(tiny_model, tmp_path / "tempo", TEMPOTrainer, td_coef=0.0, **options)
    assert_same_weights(stock, ours)
    assert_same_weights(stock, train(tiny_model, tmp_path / "plain", PlainGRPOTrainer, **options))
    assert moved(ours, tiny_model)


def test_hepo_is_stock_grpo_on_the_fifth_of_the_tokens_with_the_highest_entropy(tiny_model, tmp_path):
    stock = train(tiny_model, tmp_path / "grpo", GRPOTrainer, top_entropy_quantile=0.2)
    assert_same_weights(stock, train(tiny_model, tmp_path / "hepo", HEPOTrainer))


def test_td_coef_zero_is_stock_grpo_with_lora(tiny_model, tmp_path):
    def run(cls, **options):
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        options |= {"epsilon_high": 0.28, "trainer": {"peft_config": lora}}
        return train(tiny_model, tmp_path / cls.__name__, cls, **options)

    assert_same_weights(run(GRPOTrainer), run(TEMPOTrainer, td_coef=0.0))


class LossProbe(probing.LossProbe, TEMPOTrainer):
    pass


def probe(model, folder, **options):
    return LossProbe(model, share_of_threes, config(folder, **({"loss_type": "grpo"} | options)), questions())


def batch(advantages, old_logps) -> dict:
    return {"advantages": advantages, "outcome": OUTCOME, "old_per_token_logps": old_logps}


MASK = LossProbe.inputs["completion_mask"]
TOKEN_CREDIT = torch.tensor([[1.0, -2.0, 0.5, 3.0], [-1.0, 0.25, -0.5, 0.0]])
OUTCOME = torch.tensor([1.0, -1.0])


@pytest.mark.parametrize("shift", [0.0, 0.02, -0.5, 0.5])
def test_sequence_level_importance_is_gspo_token(shift, tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, importance_sampling_level="sequence")
    old = trainer.logps().detach() + shift * torch.tensor([[1.0, 0.5, -0.25, 1.0], [0.5, 1.0, 0.5, 9.0]])
    computed = trainer.gradient(**batch(TOKEN_CREDIT, old))
    assert trainer.importance_sampling_level == "sequence"

    def objective(logps):
        log_ratio = ((logps.detach() - old) * MASK).sum(1, keepdim=True) / MASK.sum(1, keepdim=True)
        ratio = torch.exp(log_ratio + logps - logps.detach())
        return torch.min(ratio * TOKEN_CREDIT, ratio.clamp(1 - 0.2, 1 + 0.28) * TOKEN_CREDIT)

    assert_same_gradients(computed, trainer.gradient_of(objective))


def test_the_off_policy_mask_looks_at_the_outcome_not_at_the_tokens_sign(tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, off_policy_mask_threshold=0.1)
    old = trainer.logps().detach() + 0.15  # both sequences are off policy by more than the threshold
    computed = trainer.gradient(**batch(TOKEN_CREDIT, old))
    # The failed completion is dropped whole, its token of positive credit too; the right one is kept whole.
    kept = TOKEN_CREDIT * torch.tensor([[1.0], [0.0]])
    assert_same_gradients(computed, probe(tiny_model, tmp_path).gradient(**batch(kept, old)))


def test_vespo_and_sapo_look_at_each_tokens_own_sign(tiny_model, tmp_path):
    """Their temperature or weight is chosen by the sign of the advantage they scale: with token credit, a token's."""
    for loss_type in ("vespo", "sapo"):
        options = {"loss_type": loss_type} | ({"sapo_temperature_neg": 2.0} if loss_type == "sapo" else {})
        trainer = probe(tiny_model, tmp_path, **options)
        old = trainer.logps().detach() + 0.2
        whole = trainer.gradient(**batch(TOKEN_CREDIT, old))
        signs = (TOKEN_CREDIT.clamp(*bounds) for bounds in ((0, None), (None, 0)))
        parts = [trainer.gradient(**batch(of_sign, old)) for of_sign in signs]
        assert_same_gradients(whole, {name: parts[0][name] + parts[1][name] for name in whole})
