"""What people write below a trainer: advantages that they weigh."""

import pytest
import torch

from tempo_trl import TEMPOTrainer

from .recording import assert_same_weights, share_of_threes, train


def weighing(weigh):
    """A subclass that changes the advantages of a scored batch, as scripts with a length penalty do."""

    class Weighing(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            self.assigned = output["advantages"].clone()
            output["advantages"] = weigh(output["advantages"])
            self.output = output
            return output

    return Weighing


def run(weigh, model, folder, tokens=8, **options):
    """A step on 8 completions of exactly `tokens` tokens."""
    length = {"max_completion_length": tokens, "generation_kwargs": {"min_new_tokens": tokens}}
    cls = weighing(weigh)
    return train(model, folder, cls=cls, reward_funcs=share_of_threes, max_steps=1, **length, **options)


PER_ROW = torch.linspace(0.5, 1.5, 8)


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
        lambda a: a,
        lambda a: 2 * a,
        lambda a: a * PER_ROW[:, None],
        lambda a: a + 0.5,
        lambda a: a * torch.rand(8, 8, generator=torch.Generator().manual_seed(0)),
    ],
)
def test_other_changes_of_advantages_train_as_they_are(change, tiny_model, tmp_path):
    trainer = run(change, tiny_model, tmp_path)
    assert torch.equal(trainer.output["advantages"], change(trainer.assigned))
