"""The stage `truth`: what perfect credit would be worth on a policy, from re-rollouts of its own completions."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks.language_model import gradients, values
from benchmarks.language_model.rollouts import GROUP, PLACES, Rolled, roll, taught
from benchmarks.language_model.values import Prefixes, Samples, at_places, leave_one_out, samples_of
from tempo_trl.credit import prefix_values, td_errors

TAUGHT = 128  # prompts that the estimates with a memory have learned from
MEAN = "mean of the others"
ROLLOUT_COUNTS = (1, 4)

Prompts = Sequence[Rolled]
Estimate = Callable[[Prompts], np.ndarray]  # the value before each token, `(R, T)`


def measure(policy: str, prompts: int, each_token: int, folder: Path) -> dict:
    """
    All numbers of a policy.

    Args:
        policy (`str`): Folder or Hub id.
        prompts, each_token (`int`): See [`~benchmarks.language_model.rollouts.roll`].
        folder (`Path`): Where samples are kept; a repeated call goes on with them.
    """
    lessons = taught(policy, TAUGHT, folder / "taught.json")
    rolled = list(roll(policy, prompts, each_token, folder))
    # The weights that sampled, but products in float32.
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.bfloat16).float().eval()
    model.requires_grad_(False)
    known = estimates(lessons)
    errors = {name: values.squared_errors(rolled, at_places(rolled, of(rolled))) for name, of in known.items()}
    errors |= {f"{k} rollouts": values.rollout_errors(rolled, k) for k in ROLLOUT_COUNTS}
    return {
        "prompts": len(rolled),
        "reward": float(np.mean([own.rewards for own in rolled])),
        "mean_length": float(np.mean([len(ids) for own in rolled for ids in own.completion_ids])),
        "decided_by": values.decided_by(rolled),
        "errors": values.compared(errors, MEAN),
        "td_errors": values.concentration(rolled),
        **gradient_noise(model, rolled, known),
    }


def estimates(lessons: Prompts) -> dict[str, Estimate]:
    """The estimates of values, those with a memory after all lessons."""
    batch = samples_of(lessons)
    mixed = np.flatnonzero(np.ptp(batch.rewards, axis=1) > 0)
    prefixes = Prefixes()
    for part in batch.batches(mixed):
        prefixes(part, learn=True)

    def at_the_mean(prompts: Prompts) -> np.ndarray:
        found = prefixes(samples_of(prompts), learn=False)
        return means(prompts) + found - found[:, :1]

    return {
        MEAN: means,
        "TEMPO": tempo_values,
        "prefix baseline": lambda prompts: prefixes(samples_of(prompts), learn=False),
        "prefix baseline from the mean": at_the_mean,
    }


def means(prompts: Prompts) -> np.ndarray:
    """The mean of the others of the group, at each token."""
    samples = samples_of(prompts)
    return np.repeat(leave_one_out(samples.rewards).reshape(-1, 1), samples.ids.shape[1], axis=1)


def tempo_values(prompts: Prompts) -> np.ndarray:
    """TEMPO's V: the mean of the completions that share the prefix, the own one among them."""
    return _prefix_values(samples_of(prompts))[:, :-1].numpy()


def _prefix_values(samples: Samples) -> torch.Tensor:
    ids, lengths = torch.from_numpy(samples.ids), torch.from_numpy(samples.lengths)
    return prefix_values(ids, lengths, torch.from_numpy(samples.rewards.ravel()).float(), samples.size)


def gradient_noise(model, prompts: Prompts, known: dict[str, Estimate]) -> dict[str, dict]:
    """Noise to signal and bias of each credit's gradient over RLOO's, and the sources of RLOO's noise."""
    found: dict[str, list[gradients.Moments]] = {}
    functions = {name: partial(_over, of) for name, of in known.items()}
    functions |= {"TEMPO": _tempo}
    means = []
    for rolled in prompts:
        moments, mean = _moments(model, rolled, functions)
        means.append(mean)
        for name, own in moments.items():
            found.setdefault(name, []).append(own)
    return {
        "gradient": {name: gradients.over_rloo(own, found[MEAN]) for name, own in found.items()},
        "sources": gradients.sources(found[MEAN], torch.stack(means)),
    }


def _moments(
    model, rolled: Rolled, functions: dict[str, Callable[[Rolled], np.ndarray]]
) -> tuple[dict[str, gradients.Moments], torch.Tensor]:
    """Moments of each credit's gradients of a prompt's groups, and the mean of RLOO's."""
    groups = [_group(rolled, first) for first in range(0, len(rolled.rewards), GROUP)]
    tokens = [gradients.tokens_of(model, group) for group in groups]
    by_group = [
        {name: of_group.gradient(credit(group)) for name, credit in functions.items()}
        for group, of_group in zip(groups, tokens, strict=True)
    ]
    by_credit = {name: [own[name] for own in by_group] for name in functions}
    found = {name: gradients.moments(own, by_credit[MEAN]) for name, own in by_credit.items()}
    for name, credit in (("true values as baseline", _true_baseline), ("true TD errors", _true_td)):
        twins = [tokens[0].gradient(credit(rolled, of_half)) for of_half in values.true_values(rolled)]
        found[name] = gradients.moments_of_truth(*twins, by_credit[MEAN])
    return found, torch.stack(by_credit[MEAN]).mean(dim=0)


def _group(rolled: Rolled, first: int) -> Rolled:
    """Completions of a prompt as a group of its own."""
    part = slice(first, first + GROUP)
    return Rolled(rolled.kind, rolled.prompt_ids, rolled.completion_ids[part], rolled.rewards[part], [], [])


def _over(estimate: Estimate, group: Rolled) -> np.ndarray:
    """Rewards less a baseline, `(G, T)`, 0 for padding."""
    samples = samples_of([group])
    inside = np.arange(samples.ids.shape[1]) < samples.lengths[:, None]
    return (samples.rewards.reshape(-1, 1) - estimate([group])) * inside


def _tempo(group: Rolled) -> np.ndarray:
    samples = samples_of([group])
    td = td_errors(_prefix_values(samples), torch.from_numpy(samples.lengths)).numpy()
    inside = np.arange(td.shape[1]) < samples.lengths[:, None]
    return (samples.rewards.reshape(-1, 1) - samples.rewards.mean() + td) * inside


def _last_place(rolled: Rolled) -> np.ndarray:
    """Index of the last place before each token, the start is 0: `(G, T)`; -1 for padding."""
    lengths = np.array([len(ids) for ids in rolled.completion_ids[:GROUP]])
    columns = np.arange(lengths.max())
    return np.where(columns < lengths[:, None], np.searchsorted([0, *PLACES], columns, side="right") - 1, -1)


def _true_baseline(rolled: Rolled, true: np.ndarray) -> np.ndarray:
    """Rewards less the true value of the last place before a token."""
    at, rewards = _last_place(rolled), np.array(rolled.rewards[:GROUP])[:, None]
    return np.where(at >= 0, rewards - np.take_along_axis(true, at.clip(0), axis=1), 0.0)


def _true_td(rolled: Rolled, true: np.ndarray) -> np.ndarray:
    """The change of the true value from the last place before a token to the next place. Unbiased, as Q - V is."""
    at, rewards = _last_place(rolled), np.array(rolled.rewards[:GROUP])[:, None]
    changes = np.diff(np.concatenate([true, rewards], axis=1), axis=1)
    return np.where(at >= 0, np.take_along_axis(changes, at.clip(0), axis=1), 0.0)
