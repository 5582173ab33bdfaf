"""What sampling computes anyway, kept for credit: hidden states, and sketches of each token's gradient.

The sketch of a token stands for the gradient of its log-probability with respect to a linear map before the language
model's head ([`~tempo_trl.credit.gradient_signal.group_sketches`]).
"""

import time

import torch
from transformers import PreTrainedModel

from benchmarks.language_model.rollouts import TEMPERATURE
from tempo_trl.credit.gradient_signal import WIDTH, random_signs


class Recorded:
    """
    The last batch that was sampled, in its order.

    Args:
        sketched (`bool`): Whether sketches are kept, at about a tenth of the time of sampling.

    Attributes:
        states (`torch.Tensor` of shape `(R, T, 4 D)`, float32):
            Features of the state before each token: the middle and the last layer, each followed by its running mean
            over the completion; 0 for padding.
        sketches (`torch.Tensor` of shape `(R, T, K)`, float32):
            Of the gradient of each token's log-probability; 0 for padding.
        lengths (`torch.Tensor` of shape `(R,)`):
            Tokens of each completion.
        seconds (`float`):
            That recording took.
    """

    size = WIDTH

    def __init__(self, sketched: bool = False):
        self.sketched = sketched

    def begin(self, model: PreTrainedModel, rows: int) -> None:
        self._head, self._steps = model.get_output_embeddings().weight, []
        self.lengths = torch.zeros(rows, dtype=torch.long)
        self._signs, self.seconds = random_signs(self._head.shape[1]), 0.0

    def keep(self, place: torch.Tensor, length: int, output, tokens: torch.Tensor) -> None:
        begun = time.perf_counter()
        layers = output.hidden_states
        middle, last = layers[len(layers) // 2][:, -1].float(), layers[-1][:, -1].float()
        self._steps.append((place, torch.stack([middle, last], dim=1), self._sketch(output, last, tokens)))
        self.lengths[place] = length + 1
        self.seconds += time.perf_counter() - begun

    def _sketch(self, output, last: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        if not self.sketched:
            return torch.zeros(len(tokens), 0)
        chances = (output.logits[:, -1].float() / TEMPERATURE).softmax(dim=-1)
        gradient = (self._head[tokens] - chances @ self._head).float() / TEMPERATURE
        return (gradient @ self._signs[0]) * (last @ self._signs[1])

    @property
    def states(self) -> torch.Tensor:
        own = self._together([states for _, states, _ in self._steps])  # (R, T, 2, D)
        counts = torch.arange(1, len(self._steps) + 1)[:, None, None]
        both = torch.stack([own, own.cumsum(dim=1) / counts], dim=3).flatten(2)
        return both * (torch.arange(len(self._steps)) < self.lengths[:, None])[:, :, None]

    @property
    def last_layer(self) -> torch.Tensor:
        """The last layer before each token, `(R, T, D)`."""
        return self._together([states[:, 1] for _, states, _ in self._steps])

    @property
    def sketches(self) -> torch.Tensor:
        return self._together([sketch for _, _, sketch in self._steps])

    def _together(self, steps: list[torch.Tensor]) -> torch.Tensor:
        """Numbers of the steps, in place, `(R, T, ...)`."""
        found = torch.zeros(len(self.lengths), len(steps), *steps[0].shape[1:])
        for t, ((place, *_), own) in enumerate(zip(self._steps, steps, strict=True)):
            found[place, t] = own
        return found
