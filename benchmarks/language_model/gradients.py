"""How noisy the policy gradient of the last MLP's down projection is under each credit, relative to RLOO's.

After the last MLP no token sees another. So the gradient of a token's log-probability is an outer product: of the
gradient of its output and of its input. The gradient of a group is the sum of these over tokens, times advantages.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.language_model.rollouts import TEMPERATURE, Rolled
from benchmarks.language_model.values import RESAMPLES, SEED


class Tokens(NamedTuple):
    """
    Both factors of the gradient of each token of some completions.

    Args:
        outputs (`torch.Tensor` of shape `(R, T, H)`): Gradients of the log-probability in the MLP's output.
        inputs (`torch.Tensor` of shape `(R, T, I)`): Inputs of the down projection.
    """

    outputs: torch.Tensor
    inputs: torch.Tensor

    def gradient(self, advantages: np.ndarray) -> torch.Tensor:
        """The gradient of some rows with `(R, T)` advantages, 0 for padding: `(H, I)`."""
        weighted = self.outputs * torch.from_numpy(advantages).float()[:, :, None]
        return weighted.flatten(0, 1).T @ self.inputs.flatten(0, 1)


def tokens_of(model, rolled: Rolled) -> Tokens:
    """Run the policy over the completions of a prompt."""
    ids = [rolled.prompt_ids + row for row in rolled.completion_ids]
    begin, width = len(rolled.prompt_ids), max(map(len, ids))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    kept = {}

    def keep(module, inputs, output):
        kept.update(inputs=inputs[0].detach(), output=output.detach().requires_grad_())
        return kept["output"]  # the graph begins here

    handle = model.model.layers[-1].mlp.down_proj.register_forward_hook(keep)
    try:
        logits = model(input_ids=padded).logits[:, begin - 1 : -1].float() / TEMPERATURE
    finally:
        handle.remove()
    logps = logits.log_softmax(dim=-1).gather(2, padded[:, begin:, None])[..., 0]
    inside = torch.arange(width - begin) < torch.tensor([len(row) - begin for row in ids])[:, None]
    (logps * inside).sum().backward()
    part = slice(begin - 1, -1)
    return Tokens(kept["output"].grad[:, part].float(), kept["inputs"][:, part].float())


class Moments(NamedTuple):
    """
    Products of the gradients of one prompt's groups.

    Args:
        square (`float`): Mean squared norm of a group's gradient.
        own (`float`): Mean product of two groups' gradients: the squared norm of its expectation.
        with_rloo (`float`): Mean product with another group's RLOO gradient.
    """

    square: float
    own: float
    with_rloo: float


def moments(gradients: Sequence[torch.Tensor], rloo: Sequence[torch.Tensor]) -> Moments:
    """Moments of a credit's gradients of a prompt's groups. Only for the square is a group multiplied with itself."""
    square = torch.stack([(own * own).sum() for own in gradients])
    pairs = list(permutations(range(len(rloo)), 2))
    own = torch.stack([(gradients[a] * gradients[b]).sum() for a, b in pairs])
    return Moments(*(float(x.mean()) for x in (square, own, _across(gradients, rloo, pairs))))


def moments_of_truth(one: torch.Tensor, other: torch.Tensor, rloo: Sequence[torch.Tensor]) -> Moments:
    """
    The same for an unbiased credit from true values, which only the first group has.

    The two gradients come from independent estimates of these values, so the errors of the estimates do not add to
    their product.
    """
    across = _across([(one + other) / 2], rloo, [(0, b) for b in range(1, len(rloo))])
    return Moments(float((one * other).sum()), float(across.mean()), float(across.mean()))


def _across(gradients: Sequence[torch.Tensor], rloo: Sequence[torch.Tensor], pairs: Sequence) -> torch.Tensor:
    return torch.stack([(gradients[a] * rloo[b]).sum() for a, b in pairs])


def sources(prompts: Sequence[Moments], means: torch.Tensor) -> dict[str, list[float]]:
    """
    Where the squared norm of one group's gradient comes from: shares of the completions' chance, which better credit
    can lower, of the choice of the prompt, and of the mean over prompts, the signal. Each with the ends of its 95%
    bootstrap interval over prompts.

    Args:
        prompts: Moments of each prompt.
        means (`torch.Tensor` of shape `(P, ...)`): Mean gradient of the groups of each prompt.
    """
    square, own = np.array([[of.square, of.own] for of in prompts]).T
    products = (means.flatten(1) @ means.flatten(1).T).double().numpy()

    def shares(index: np.ndarray) -> tuple[float, float, float]:
        whole, alike = square[index].mean(), own[index].mean()
        across = products[np.ix_(index, index)][index[:, None] != index]  # of two different prompts
        signal = across.mean() if len(across) else np.nan
        return (whole - alike) / whole, (alike - signal) / whole, signal / whole

    return dict(zip(("completions", "prompts", "signal"), _with_intervals(shares, len(prompts)), strict=True))


def over_rloo(prompts: Sequence[Moments], rloo: Sequence[Moments]) -> dict[str, list[float]]:
    """
    A credit's noise-to-signal over RLOO's, and the cosine of its mean gradient with the true one, which is 1 without
    bias. Each with the ends of its 95% bootstrap interval over prompts.
    """
    both = np.array([prompts, rloo])

    def numbers(index: np.ndarray) -> tuple[float, float]:
        ours, theirs = both[:, index].mean(axis=1)
        own, base = ((m[0] - m[1]) / m[2] ** 2 for m in (ours, theirs))
        cosine = ours[2] / np.sqrt(max(ours[1], 1e-30) * max(theirs[1], 1e-30))
        return own / base, cosine

    return dict(zip(("noise_to_signal", "cosine"), _with_intervals(numbers, len(prompts)), strict=True))


def _with_intervals(numbers: Callable[[np.ndarray], tuple[float, ...]], prompts: int) -> list[list[float]]:
    """
    Each number of all prompts with the ends of its 95% bootstrap interval. `numbers` takes indices of prompts;
    resamples for which it has NaN are left out.
    """
    rng, everyone = np.random.default_rng(SEED), np.arange(prompts)
    draws = np.array([numbers(rng.choice(everyone, prompts)) for _ in range(RESAMPLES)])
    low, high = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    return np.stack([numbers(everyone), low, high], axis=1).tolist()
