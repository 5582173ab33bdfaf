"""How noisy the policy gradient of the last MLP's down projection is under each credit.

After the last MLP no token sees another. So the gradient of a token's log-probability is an outer product: of the
gradient of its output and of its input. The gradient of a group is the sum of these over tokens, times advantages.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch

from tempo_trl.report.group import padded

RESAMPLES, SEED = 2000, 0


class Tokens(NamedTuple):
    """
    Both factors of the gradient of each token of some completions.

    Args:
        outputs (`torch.Tensor` of shape `(R, T, H)`): Gradients of the log-probability in the MLP's output.
        inputs (`torch.Tensor` of shape `(R, T, I)`): Inputs of the down projection.
    """

    outputs: torch.Tensor
    inputs: torch.Tensor

    def gradient(self, advantages: torch.Tensor) -> torch.Tensor:
        """The gradient of all rows with `(R, T)` advantages, 0 for padding: `(H, I)`."""
        weighted = self.outputs * advantages.float()[:, :, None]
        return weighted.flatten(0, 1).T @ self.inputs.flatten(0, 1)


def tokens_of(model, prompt_ids: list[int], completion_ids: Sequence[list[int]], temperature: float) -> Tokens:
    """Run the policy over completions of a prompt, which is read once."""
    ids = padded(completion_ids, torch.long)
    before = ids.new_full((len(ids), 1), prompt_ids[-1])  # reads the state of the first token
    cache = model(input_ids=torch.tensor([prompt_ids[:-1]]), use_cache=True, logits_to_keep=1).past_key_values
    cache.batch_select_indices(torch.zeros(len(ids), dtype=torch.long))
    kept = {}

    def keep(module, inputs, output):
        kept.update(inputs=inputs[0].detach(), output=output.detach().requires_grad_())
        return kept["output"]  # the graph begins here

    handle = model.model.layers[-1].mlp.down_proj.register_forward_hook(keep)
    try:
        read = torch.cat([before, ids[:, :-1]], dim=1)
        logits = model(input_ids=read, past_key_values=cache).logits.float() / temperature
    finally:
        handle.remove()
    logps = logits.log_softmax(dim=-1).gather(2, ids[:, :, None])[..., 0]
    inside = torch.arange(ids.shape[1]) < torch.tensor(list(map(len, completion_ids)))[:, None]
    (logps * inside).sum().backward()
    return Tokens(kept["output"].grad.float(), kept["inputs"].float())


class Moments(NamedTuple):
    """
    Products of the gradients of one prompt's groups.

    Args:
        square (`float`): Mean squared norm of a group's gradient.
        own (`float`): Mean product of two groups' gradients: the squared norm of its expectation.
        with_base (`float`): Mean product with another group's gradient under the credit compared with.
    """

    square: float
    own: float
    with_base: float


def moments(gradients: Sequence[torch.Tensor], base: Sequence[torch.Tensor]) -> Moments:
    """Moments of a credit's gradients of a prompt's groups. Only for the square is a group multiplied with itself."""
    pairs = list(permutations(range(len(gradients)), 2))
    products = (
        [(own * own).sum() for own in gradients],
        [(gradients[a] * gradients[b]).sum() for a, b in pairs],
        [(gradients[a] * base[b]).sum() for a, b in pairs],
    )
    return Moments(*(float(torch.stack(some).mean()) for some in products))


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


def over_base(prompts: Sequence[Moments], base: Sequence[Moments]) -> dict[str, list[float]]:
    """
    A credit's noise-to-signal over that of the credit compared with, and the cosine of their mean gradients. Signal is
    the part in the direction of the other credit's mean. Each with the ends of its 95% interval over prompts. The
    cosine is NaN where the prompts are too few to tell a mean from 0.
    """
    both = np.array([prompts, base])

    def numbers(index: np.ndarray) -> tuple[float, float]:
        ours, theirs = both[:, index].mean(axis=1)
        own, other = ((m[0] - m[1]) / m[2] ** 2 for m in (ours, theirs))
        lengths = min(ours[1], theirs[1]) > 0 and np.sqrt(ours[1] * theirs[1])
        return own / other, ours[2] / lengths if lengths else np.nan

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
