"""TRL's loss on a batch made by hand, and its gradient beside that of an objective written out in a test."""

import torch


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def gradient_of_loss(trainer, inputs: dict) -> dict[str, torch.Tensor]:
    """Gradient of the loss of one micro-batch, which is left as it was."""
    before = dict(inputs)
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_loss(trainer.model, inputs).backward()
    assert inputs.keys() == before.keys()
    assert all(inputs[key] is before[key] for key in inputs)
    return gradients(trainer.model)


def assert_same_gradients(a: dict, b: dict) -> None:
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-7)


class LossProbe:
    """Mixin: a batch of two rows, the second of which is padded. Its loss is averaged as loss_type "grpo" does."""

    inputs = {
        "prompt_ids": torch.tensor([[5, 6], [7, 8]]),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[40, 41, 42, 43], [50, 51, 52, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "num_items_in_batch": torch.tensor(7),
    }

    def logps(self) -> torch.Tensor:
        ids, mask = (
            torch.cat([self.inputs[f"prompt_{kind}"], self.inputs[f"completion_{kind}"]], dim=1)
            for kind in ("ids", "mask")
        )
        return self._get_per_token_logps_and_entropies(self.model, ids, mask, 4)[0]

    def gradient(self, **extra) -> dict[str, torch.Tensor]:
        return gradient_of_loss(self, self.inputs | extra)

    def gradient_of(self, objective) -> dict[str, torch.Tensor]:
        """Gradient of minus an objective of the `(2, 4)` log-probabilities."""
        mask = self.inputs["completion_mask"] * self.inputs.get("tool_mask", 1)
        self.model.zero_grad()
        (-((objective(self.logps()) * mask).sum(1) / mask.sum(1)).mean()).backward()
        return gradients(self.model)
