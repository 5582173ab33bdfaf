"""States that come back: completions of a group that differ in their tokens but reach the same state.

An agent's state before a turn is known by what it has just seen: its last observation, or its last k + 1 observations.
Completions that visit the same state tell how good it is, although they share no prefix. Indices: column n of an
`(R, N)` tensor is the state before turn n, and the return from it. The rows of a group are adjacent.
"""

import hashlib

import numpy as np
import torch

from tempo_trl.credit.advantages import are_equal
from tempo_trl.credit.turns import turn_ends, turn_starts

STATE_EPSILON = 1e-6  # added to the standard deviation of a state's returns


def observation_keys(completion_ids: torch.Tensor, steps: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    """
    A number for what the policy has just seen before each turn: equal observations have equal numbers, on every rank.

    Only tokens before the turn are read, so a key does not depend on the turn's action. Where nothing was observed,
    because a step follows another within a turn, it is a number for all tokens so far.

    Args:
        completion_ids (`torch.Tensor` of shape `(R, T)`, integer):
            Token ids.
        steps (`torch.Tensor` of shape `(R, T)`, int64):
            Turn, or step within a turn, of each token; -1 for tokens of tools and environments and for padding.
        prompts (`torch.Tensor` of shape `(R,)`, int64):
            Numbers that are equal for equal prompts.

    Returns:
        `torch.Tensor` of shape `(R, N)`, int64: 64 bits of a hash of the prompt and of the tokens between the previous
        turn and this one; 0 where a row has no such turn.
    """
    ids = np.ascontiguousarray(completion_ids.cpu().numpy(), dtype=np.int64)
    starts, ends = turn_starts(steps.cpu()).tolist(), turn_ends(steps.cpu()).tolist()
    keys = torch.zeros(len(starts), len(starts[0]) if starts else 0, dtype=torch.int64)
    for row, prompt in enumerate(prompts.tolist()):
        so_far, read = hashlib.blake2b(), 0
        for step, start in enumerate(starts[row]):
            if start < 0:
                continue
            begin = ends[row][step - 1] + 1 if step else 0
            so_far.update(ids[row, read:start].tobytes())
            read, is_inner = start, step > 0 and begin == start  # nothing was observed between two steps
            seen = b"so far: " + so_far.digest() if is_inner else b"seen: " + ids[row, begin:start].tobytes()
            keys[row, step] = key_of(prompt, seen)
    return keys


def key_of(prompt: int, seen: bytes) -> int:
    """64 bits of a hash of what was observed after a prompt."""
    digest = hashlib.blake2b(prompt.to_bytes(8, "little", signed=True) + seen, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def state_labels(
    observations: torch.Tensor, num_generations: int, history: int = 0, first: torch.Tensor | None = None
) -> np.ndarray:
    """
    Labels of states: equal where completions of a group have seen the same last 1, 2, ..., `history` + 1 observations.

    Args:
        observations (`torch.Tensor` of shape `(R, N)`, int64):
            Keys of what was seen before each turn; 0 where a row has no such turn.
        num_generations (`int`):
            Completions in a group.
        history (`int`, *optional*, defaults to `0`):
            Observations before the last one to compare, too.
        first (`torch.Tensor` of shape `(R, M)`, int64, *optional*):
            Where N counts steps within turns: the first step of each turn, -1 where a row has no such turn. The
            observations before the last one are then those before earlier turns. By default each step is a turn.

    Returns:
        `np.ndarray` of shape `(history + 1, R, N)`, int64; -1 where a row has no such turn. Before the first
        observation all histories are the same.
    """
    keys = observations.cpu().numpy()
    group = np.broadcast_to((np.arange(len(keys)) // num_generations)[:, None], keys.shape)
    begin = np.broadcast_to(np.arange(keys.shape[1]), keys.shape) if first is None else first.cpu().numpy()
    return np.where(keys == 0, -1, np.stack(_labels_by_history(_labels(group, keys), begin, history)))


def turn_of_steps(first: np.ndarray, steps: int) -> np.ndarray:
    """The turn of each step, `(R, steps)`, by the first step of each turn, `(R, N)`, -1 where a row has none."""
    has_begun = (first[:, :, None] >= 0) & (first[:, :, None] <= np.arange(steps))
    return has_begun.sum(axis=1) - 1


def _labels_by_history(last: np.ndarray, begin: np.ndarray, history: int) -> list[np.ndarray]:
    """Labels by the last 1, 2, ... observations, of which `last` are the first; `begin` has each turn's first step."""
    turn = turn_of_steps(begin, last.shape[1]) + 1  # from 1
    before = np.where(begin < 0, -1, np.take_along_axis(last, begin.clip(min=0), axis=1))
    before = np.pad(before, ((0, 0), (1, 0)), constant_values=-1)  # of turn 0, before the first one
    found = [last]
    for back in range(1, history + 1):
        earlier = np.take_along_axis(before, (turn - back).clip(min=0), axis=1)
        found.append(_labels(found[-1], earlier))
    return found


def _labels(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Numbers for pairs: equal where both members are."""
    pairs = np.stack([first.ravel(), second.ravel()])
    return np.unique(pairs, axis=1, return_inverse=True)[1].reshape(first.shape)


def visits(labels: np.ndarray) -> np.ndarray:
    """Number of visits of the state before each turn, its own among them; 0 where a row has no such turn."""
    _, state, count = np.unique(labels, return_inverse=True, return_counts=True)
    return np.where(labels >= 0, count[state.reshape(labels.shape)], 0)


def state_sums(
    observations: torch.Tensor, num_generations: int, counted: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """
    Numerator and denominator of the metrics of states, over the counted rows.

    `turns`: turns of a completion, mean. `shared_states`: states after an observation that at least two completions of
    a group visit, per group. `state_visits`: other completions of the group that visit the state before a turn, mean
    over turns after an observation.

    Args:
        observations (`torch.Tensor` of shape `(R, N)`, int64):
            Keys of what was seen before each turn; 0 where a row has no such turn.
        num_generations (`int`):
            Completions in a group.
        counted (`torch.Tensor` of shape `(R,)`, bool):
            Rows to sum over: whole groups.
    """
    labels = state_labels(observations, num_generations)[0][counted.numpy()]
    row, later = np.nonzero(labels[:, 1:] >= 0)
    state = labels[row, later + 1]
    visitors = np.unique(np.stack([state, row]), axis=1)[0]
    seen, count = np.unique(visitors, return_counts=True)
    return {
        "turns": (float((labels >= 0).sum()), float(len(labels))),
        "shared_states": (float((count > 1).sum()), len(labels) / num_generations),
        "state_visits": (float((count[np.searchsorted(seen, state)] - 1).sum()), float(len(state))),
    }


def relative_returns(
    returns: torch.Tensor, labels: np.ndarray, normalize: bool, sizes: torch.Tensor | None = None
) -> torch.Tensor:
    r"""
    Returns relative to those of all visits of the same state (equation 6 of https://huggingface.co/papers/2505.10978).

    $$A_n = \frac{G_n - \mathrm{mean}(G)}{F}$$

    over all visits of the state before turn n in the group, its own among them. F is their standard deviation (ddof 1)
    plus 1e-6, or 1. A state that is visited once has 0.

    Args:
        returns (`torch.Tensor` of shape `(R, N)`):
            Return from each turn on; NaN where unscorable.
        labels (`np.ndarray` of shape `(R, N)`, int64):
            Equal for visits of the same state, -1 where a row has no such turn ([`state_labels`]).
        normalize (`bool`):
            Whether F is the standard deviation.
        sizes (`torch.Tensor` of shape `(R, N)`, *optional*):
            Size of the sum that each return is. Defaults to that of the return.

    Returns:
        `torch.Tensor` of shape `(R, N)`, float64; 0 where there is no return, and exactly 0 where those of all visits
        are equal ([`~tempo_trl.credit.advantages.are_equal`]).
    """
    values = returns.double().cpu().numpy()
    used = (labels >= 0) & ~np.isnan(values)
    _, first, state, count = np.unique(labels[used], return_index=True, return_inverse=True, return_counts=True)
    low, high, size = np.full(len(count), np.inf), np.full(len(count), -np.inf), np.zeros(len(count))
    np.minimum.at(low, state, values[used])
    np.maximum.at(high, state, values[used])
    np.maximum.at(size, state, (returns.abs() if sizes is None else sizes).double().cpu().numpy()[used])
    given = values[used] - values[used][first][state]
    relative = given - (np.bincount(state, given) / count)[state]
    if normalize:
        variance = np.bincount(state, np.square(relative)) / np.maximum(count - 1, 1)
        relative = relative / (np.sqrt(variance)[state] + STATE_EPSILON)
    found = np.zeros(values.shape)
    found[used] = np.where(are_equal(low, high, size)[state], 0.0, relative)
    return torch.from_numpy(found)
