"""Credit for agents against the exact gradient: rooms that come back, words that mean nothing."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.estimators.drawing import BLUE, GREY, gains, named, sheet, spans
from benchmarks.estimators.evidence import Effort
from benchmarks.estimators.measure import SEED, WARM_UP
from benchmarks.estimators.metrics import bias, error, gain, variance, with_error
from benchmarks.estimators.rooms import ACTIONS, Episodes, Rooms, play
from tempo_trl.credit.turns import turn_starts
from tempo_trl.methods.anchor_baseline import AnchorBaselineCredit
from tempo_trl.methods.gigpo import gigpo_credit
from tempo_trl.methods.hgpo import hgpo_credit
from tempo_trl.methods.prefix_baseline import PrefixBaselineCredit
from tempo_trl.methods.tempo import tempo_credit

TITLE = "Credit for agents in rooms that come back: GRPO's error / this one's, at equal turns"
BATCHES, GROUPS = 400, 8
WORLDS = {
    "rooms, G = 8": (Rooms(), 8),
    "rooms, G = 16": (Rooms(), 16),
    "a word in the key, G = 8": (Rooms(words_in_state=True), 8),
    "more rooms and turns, G = 8": (Rooms(rooms=6, key=2, turns=14, lean=2.0), 8),
    "a good policy, G = 8": (Rooms(lean=3.0), 8),
    "a poor policy, G = 8": (Rooms(lean=0.5), 8),
}


Credit = Callable[[Episodes], np.ndarray]  # the credit of each turn, `(R, N)`


def grpo(episodes: Episodes) -> np.ndarray:
    """GRPO's advantage."""
    return episodes.batch.advantages.double().numpy()[:, None].repeat(episodes.states.shape[1], axis=1)


def rloo(episodes: Episodes) -> np.ndarray:
    """RLOO's, which is larger by G / (G - 1)."""
    size = episodes.batch.num_generations
    return size / (size - 1) * grpo(episodes)


def method(function: Callable) -> Credit:
    """Credit of a function of a batch on the first token of each turn, the action; a memory learns from each batch."""

    def of_turns(episodes: Episodes) -> np.ndarray:
        credit = function(episodes.batch)
        starts = turn_starts(episodes.batch.turns)
        advantages = credit.advantages.gather(1, starts.clamp(min=0)).double().numpy()
        if hasattr(function, "update"):
            function.update([credit.statistics])
        width = episodes.states.shape[1]
        return np.pad(advantages, ((0, 0), (0, width - advantages.shape[1])))

    return of_turns


def reward_over_exact_values(episodes: Episodes, world: Rooms) -> np.ndarray:
    """The reward less the exact value: what a baseline can win."""
    turn = np.arange(episodes.states.shape[1])
    return episodes.batch.rewards.double().numpy()[:, None] - world.exact[0][turn, episodes.states]


def exact_advantages(episodes: Episodes, world: Rooms) -> np.ndarray:
    """Q - V: what is to be won."""
    (values, qualities), turn = world.exact, np.arange(episodes.states.shape[1])
    return qualities[turn, episodes.states, episodes.actions] - values[turn, episodes.states]


def arms(world: Rooms) -> dict[str, Credit]:
    """Fresh credit functions by name. Returns are not discounted and not normalized, as the exact gradient's."""
    unscaled = {"gamma": 1.0, "scale": "none"}
    return {
        "GRPO": grpo,
        "RLOO": rloo,
        "TEMPO, tree": method(tempo_credit),
        "TEMPO, graph": method(partial(tempo_credit, merge_states=True)),
        "prefix baseline": method(PrefixBaselineCredit("auto")),
        "GiGPO": method(partial(gigpo_credit, **unscaled)),
        "GiGPO, gamma 0.95": method(partial(gigpo_credit, gamma=0.95, scale="none")),
        "HGPO": method(partial(hgpo_credit, **unscaled)),
        **{
            f"anchor baseline{name}": method(AnchorBaselineCredit(2, trace_lambda, "none"))
            for name, trace_lambda in {"": 1.0, ", lambda 0.95": 0.95, ", lambda 0.8": 0.8}.items()
        },
        "exact values": partial(reward_over_exact_values, world=world),
        "exact advantages": partial(exact_advantages, world=world),
    }


def measure_records(effort: Effort) -> list[dict]:
    worlds = dict(list(WORLDS.items())[:1]) if effort.quick else WORLDS
    return [record for name, (world, size) in worlds.items() for record in _records(name, world, size, effort)]


def _records(name: str, world: Rooms, size: int, effort: Effort) -> list[dict]:
    functions, rng = arms(world), np.random.default_rng(SEED)
    estimates, shares = ({arm: [] for arm in functions} for _ in range(2))
    for _ in range(effort.batches + WARM_UP):
        episodes = play(world, GROUPS, size, rng)
        for arm, function in functions.items():
            advantages = np.where(episodes.states >= 0, function(episodes), 0.0)
            estimates[arm].append(_gradient(world, episodes, advantages))
            shares[arm].append(_decisive_share(world, episodes, advantages))
    found = {arm: SimpleNamespace(estimates=np.array(rows[WARM_UP:])) for arm, rows in estimates.items()}
    return [
        {
            "world": name,
            "arm": arm,
            "success": float(world.exact[0][0, 0]),
            "gain": gain(m, found["GRPO"], world.gradient),
            **{
                statistic.__name__: with_error(partial(statistic, true=world.gradient), m.estimates)
                for statistic in (error, bias, variance)
            },
            "decisive": float(np.mean(shares[arm][WARM_UP:])),
        }
        for arm, m in found.items()
    ]


def _gradient(world: Rooms, episodes: Episodes, advantages: np.ndarray) -> np.ndarray:
    """Estimated gradient by the logits, `(S, A)`: mean over completions of the sum of advantage times score."""
    there = episodes.states >= 0
    state, action, advantage = episodes.states[there], episodes.actions[there], advantages[there]
    found = np.zeros((world.states, ACTIONS))
    np.add.at(found, (state, action), advantage)
    total = np.bincount(state, advantage, world.states)
    return (found - total[:, None] * world.policy) / len(episodes.states)


def _decisive_share(world: Rooms, episodes: Episodes, advantages: np.ndarray) -> float:
    """Share of all credit that lies on decisive turns."""
    turn = np.arange(episodes.states.shape[1])
    decisive = world.decisive[turn, episodes.states] & (episodes.states >= 0)
    return float(np.abs(advantages[decisive]).sum() / max(np.abs(advantages).sum(), 1e-12))


def table(records: list[dict]) -> Table:
    table = Table(title=TITLE, caption="± two standard errors")
    for column in ("world", "success", "credit", "gain", "error", "squared bias", "on decisive turns"):
        table.add_column(column, justify="left" if column in ("world", "credit") else "right")
    for r in records:
        pairs = [f"{r[name][0]:.2f} ± {2 * r[name][1]:.2f}" for name in ("gain", "error", "bias")]
        table.add_row(r["world"], f"{r['success']:.2f}", r["arm"], *pairs, f"{r['decisive']:.0%}")
    return table


def draw(records: list[dict]) -> Figure:
    worlds = list(dict.fromkeys(r["world"] for r in records))
    figure, panels = sheet(TITLE, worlds[:3], size=(11, 4.6), sharey=True)
    for axes, world in zip(panels, worlds, strict=False):
        rows = [r for r in records if r["world"] == world and r["arm"] != "GRPO"]
        values, lengths = spans([r["gain"] for r in rows])
        colours = [GREY if r["arm"].startswith("exact") else BLUE for r in rows]
        for place, (value, length, colour) in enumerate(zip(values, lengths.T, colours, strict=True)):
            axes.errorbar(value, place, xerr=length[:, None], marker="o", color=colour, capsize=2)
        axes.set_yticks(range(len(rows)), [r["arm"] for r in rows])
        gains(axes, (0.25, 0.5, 1, 2, 4, 8, 16), along="x")
        named(axes, "gain")
    figure.subplots_adjust(left=0.14)
    return figure
