"""What people write below a trainer: advantages that they weigh."""

import pytest
import torch

from tempo_trl import TEMPOTrainer, TokenCreditTrainer
from tempo_trl.methods.tempo import tempo_credit

from .recording import assert_same_weights, share_of_threes, train


def test_advantages_per_completion_may_be_made_into_ones_per_token(tiny_model, tmp_path):
    """GRPO as TEMPO has one per completion. TRL's loss takes tokens, too."""

    class Spread(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            if output["advantages"].ndim == 1:
                output["advantages"] = output["advantages"][:, None].expand(output["completion_ids"].shape).clone()
            return output

    options = {"reward_funcs": share_of_threes, "max_steps": 2, "td_coef": 0.0}
    ours = train(tiny_model, tmp_path / "tokens", cls=Spread, **options)
    theirs = train(tiny_model, tmp_path / "completions", cls=TEMPOTrainer, **options)
    assert_same_weights(ours, theirs, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda advantages: advantages * torch.linspace(0.5, 1.5, 8)[:, None],  # as scripts with a length penalty do
        lambda advantages: advantages * torch.rand(8, 8, generator=torch.Generator().manual_seed(0)),
    ],
    ids=["per completion", "per token"],
)
def test_advantages_that_a_subclass_changes_train_as_credit_that_has_them(change, tiny_model, tmp_path):
    class Changing(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            return output | {"advantages": change(output["advantages"])}

    options = {"reward_funcs": share_of_threes, "max_steps": 1, "epsilon_high": None}
    options |= {"max_completion_length": 8, "generation_kwargs": {"min_new_tokens": 8}}
    credit = {"credit_func": lambda batch: change(tempo_credit(batch).advantages)}
    ours = train(tiny_model, tmp_path / "ours", cls=Changing, **options)
    theirs = train(tiny_model, tmp_path / "theirs", cls=TokenCreditTrainer, trainer=credit, **options)
    assert_same_weights(ours, theirs)
