"""A world of rooms that an agent walks through with tools: small enough for exact values, advantages and gradient.

A corridor of rooms. In one of them lies a key, at its end is a door. Each turn the agent goes left or right, takes the
key, or tries the door, which ends the episode: 1 with the key at the door, 0 otherwise. After the last turn it is 0.
Its policy is a table of logits by state (room, key), drawn at random, with a lean towards what helps. Rooms come back,
within a trajectory and over trajectories, but tokens do not: an observation holds a word that means nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from tempo_trl import Batch
from tempo_trl.credit.anchors import key_of

LEFT, RIGHT, TAKE, DOOR = range(4)
ACTIONS = 4
END_OF_TURN, FIRST_STATE, FIRST_WORD = 4, 5, 1000


@dataclass(frozen=True)
class Rooms:
    """
    Args:
        rooms (`int`): Rooms of the corridor.
        key (`int`): Room of the key.
        turns (`int`): Most turns of an episode.
        words (`int`): Words that mean nothing, one of which is in each observation.
        words_in_state (`bool`): Whether the state's key holds the word, as it does without an `observation_key_func`.
        lean (`float`): Logit that the action of a shortest path has beside its random one.
        seed (`int`): Of the policy.
    """

    rooms: int = 4
    key: int = 1
    turns: int = 8
    words: int = 4
    words_in_state: bool = False
    lean: float = 1.5
    seed: int = 0

    @property
    def states(self) -> int:
        """Number of (room, key) states."""
        return 2 * self.rooms

    @cached_property
    def policy(self) -> np.ndarray:
        """Probability of each action in each state, `(S, A)`."""
        logits = np.random.default_rng(self.seed).normal(size=(self.states, ACTIONS))
        for state in range(self.states):
            logits[state, self._helps(state)] += self.lean
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    def _helps(self, state: int) -> int:
        room, has_key = state % self.rooms, state >= self.rooms
        if not has_key:
            return TAKE if room == self.key else RIGHT if room < self.key else LEFT
        return DOOR if room == self.rooms - 1 else RIGHT

    @cached_property
    def moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Next state of each action in each state, -1 for the end, and the reward there: `(S, A)` each."""
        following, reward = np.zeros((2, self.states, ACTIONS))
        for state in range(self.states):
            room, has_key = state % self.rooms, state // self.rooms
            following[state, LEFT] = max(room - 1, 0) + self.rooms * has_key
            following[state, RIGHT] = min(room + 1, self.rooms - 1) + self.rooms * has_key
            following[state, TAKE] = room + self.rooms * max(has_key, room == self.key)
            following[state, DOOR] = -1
            reward[state, DOOR] = has_key and room == self.rooms - 1
        return following.astype(int), reward

    @cached_property
    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """V before each turn, `(K + 1, S)`, and Q of each action, `(K, S, A)`."""
        following, reward = self.moves
        values, qualities = np.zeros((self.turns + 1, self.states)), np.zeros((self.turns, self.states, ACTIONS))
        for n in reversed(range(self.turns)):
            qualities[n] = reward + np.where(following < 0, 0.0, values[n + 1][following])
            values[n] = (self.policy * qualities[n]).sum(axis=1)
        return values, qualities

    @cached_property
    def visited(self) -> np.ndarray:
        """Probability of being in each state before each turn, `(K, S)`."""
        following, _ = self.moves
        reach = np.zeros((self.turns, self.states))
        reach[0, 0] = 1.0
        for n in range(1, self.turns):
            onward = following >= 0
            np.add.at(reach[n], following[onward], (reach[n - 1][:, None] * self.policy)[onward])
        return reach

    @cached_property
    def gradient(self) -> np.ndarray:
        """Exact gradient of the expected reward by the logits, `(S, A)`."""
        values, qualities = self.exact
        advantages = qualities - values[:-1, :, None]
        return (self.visited[:, :, None] * self.policy * advantages).sum(axis=0)

    @cached_property
    def decisive(self) -> np.ndarray:
        """`(K, S)`, bool: where the advantages of the actions vary at least half as much as where they do most."""
        values, qualities = self.exact
        spread = np.sqrt((self.policy * np.square(qualities - values[:-1, :, None])).sum(axis=2))
        return (spread >= spread[self.visited > 1e-6].max() / 2) & (self.visited > 0)


@dataclass(frozen=True)
class Episodes:
    """
    A batch of trajectories: what a credit function sees, and what happened.

    Args:
        batch ([`Batch`]): Whole groups.
        states, actions (`np.ndarray` of shape `(R, N)`): Of each turn, -1 after the end.
    """

    batch: Batch
    states: np.ndarray
    actions: np.ndarray


def play(world: Rooms, groups: int, size: int, rng: np.random.Generator) -> Episodes:
    """Sample `groups` groups of `size` trajectories."""
    rows, (following, reward) = groups * size, world.moves
    state, rewards = np.zeros(rows, dtype=int), np.zeros(rows)
    states, actions = np.full((2, rows, world.turns), -1)
    cumulative = world.policy.cumsum(axis=1)
    for n in range(world.turns):
        going = state >= 0
        action = (rng.random(rows)[:, None] > cumulative[state]).sum(axis=1).clip(max=ACTIONS - 1)
        states[going, n], actions[going, n] = state[going], action[going]
        rewards += np.where(going, reward[state, action], 0.0)
        state = np.where(going, following[state, action], -1)
    words = rng.integers(0, world.words, states.shape)
    return Episodes(_batch(world, states, actions, words, rewards, size), states, actions)


def _batch(world: Rooms, states, actions, words, rewards, size: int) -> Batch:
    """Turn n is tokens 4n (the action) and 4n + 1 (its end). 4n + 2 and 4n + 3 are the state and word seen next."""
    rows, turns = states.shape
    count = (states >= 0).sum(axis=1)
    ids = np.zeros((rows, turns, 4), dtype=np.int64)
    ids[:, :, 0], ids[:, :, 1] = np.maximum(actions, 0), END_OF_TURN
    ids[:, :-1, 2], ids[:, :-1, 3] = FIRST_STATE + states[:, 1:], FIRST_WORD + words[:, 1:]
    turn = np.where(np.arange(4) < 2, np.arange(turns)[:, None], -1).reshape(1, -1).repeat(rows, axis=0)
    lengths = 4 * count - 2
    turn[np.arange(4 * turns) >= lengths[:, None]] = -1
    seen = FIRST_STATE + states + FIRST_WORD * (1 + words) * world.words_in_state
    seen[:, 0] = 0
    keys = {value: key_of(0, int(value).to_bytes(8, "little")) for value in np.unique(seen)}
    observations = np.where(states >= 0, np.vectorize(keys.get)(seen), 0)
    rewards = torch.from_numpy(rewards).float()
    groups = rewards.view(-1, size)
    return Batch(
        completion_ids=torch.from_numpy(ids.reshape(rows, -1)),
        lengths=torch.from_numpy(lengths),
        rewards=rewards,
        rewards_per_func=rewards[:, None],
        advantages=(groups - groups.mean(dim=1, keepdim=True)).flatten(),
        num_generations=size,
        prompts=torch.zeros(rows, dtype=torch.long),
        loss_mask=torch.from_numpy(turn >= 0),
        turns=torch.from_numpy(turn),
        steps=torch.from_numpy(turn),
        observations=torch.from_numpy(observations[:, : count.max()]),
        columns={},
        training=True,
        counted=torch.ones(rows, dtype=torch.bool),
    )
