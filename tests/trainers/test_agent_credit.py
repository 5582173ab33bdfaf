"""Credit of the methods for agents on batches by hand: rewards per turn, scales, ties, and rows without a turn."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch

from tempo_trl import Batch
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.credit.anchors import observation_keys, relative_returns, state_labels
from tempo_trl.credit.returns import TurnRewards
from tempo_trl.methods.gigpo import gigpo_credit
from tempo_trl.methods.hgpo import hgpo_credit
from tempo_trl.report.group import padded

from ..credit.groups import as_tensors
from ..credit.rollouts import Rollouts
from ..credit.test_returns import scale_by_definition
from .credit_functions import door_rewards
from .launching import run_ranks, torchrun

SCALES = pytest.mark.parametrize("scale", ["group", "batch", "none"])


CREDITS = {
    "gigpo": lambda batch, scale: gigpo_credit(batch, scale=scale),
    "hgpo": lambda batch, scale: hgpo_credit(batch, scale=scale),
}
METHODS = pytest.mark.parametrize("credit", CREDITS.values(), ids=CREDITS)


def batch_of(rollouts: Rollouts, steps: torch.Tensor | None = None, scale: str = "group") -> Batch:
    rewards, none = rollouts.rewards, torch.zeros(len(rollouts.rewards), dtype=torch.bool)
    outcome = outcome_advantages(rewards, rollouts.size, scale).float()
    return Batch(
        completion_ids=rollouts.ids,
        lengths=rollouts.lengths,
        rewards=rewards,
        rewards_per_func=rewards[:, None],
        advantages=outcome,
        outcome=outcome,
        num_generations=rollouts.size,
        prompts=rollouts.prompts,
        loss_mask=rollouts.turns >= 0,
        turns=rollouts.turns,
        steps=rollouts.turns,
        observations=rollouts.observations,
        counted=~none,
        step_rewards=steps,
    )


def by_turn(advantages: torch.Tensor, batch: Batch) -> dict[tuple[int, int], float]:
    """The advantage of each turn, which all of its tokens have."""
    found = {}
    for row, column in (batch.turns >= 0).nonzero().tolist():
        value = found.setdefault((row, int(batch.turns[row, column])), float(advantages[row, column]))
        assert value == float(advantages[row, column])
    return found


def random_batch(seed: int, scale: str) -> tuple[Rollouts, Batch]:
    rollouts, rng = Rollouts(seed, groups=3, size=4), np.random.default_rng(seed)
    return rollouts, batch_of(rollouts, torch.from_numpy(rng.normal(size=rollouts.starts.shape)).float(), scale)


def test_the_cut_of_an_earlier_turn_changes_no_history_of_hgpo():
    whole, cut = [0, 0, -1, 1, 1], [0, 1, -1, 2, 2]
    turns, rewards = torch.tensor([whole] * 4), torch.tensor([0.0, 1.0, 0.0, 3.0])
    seen = torch.tensor([[7, 9, 0], [7, 9, 0], [7, 1, 9], [7, 2, 9]])
    batch = Batch(
        completion_ids=turns,
        lengths=torch.tensor([5] * 4),
        rewards=rewards,
        rewards_per_func=rewards[:, None],
        advantages=rewards,
        outcome=rewards,
        num_generations=4,
        prompts=torch.zeros(4, dtype=torch.long),
        loss_mask=turns >= 0,
        turns=turns,
        steps=torch.tensor([whole, whole, cut, cut]),
        observations=seen,
        counted=torch.ones(4, dtype=torch.bool),
    )
    assert hgpo_credit(batch, 2, gamma=1.0, scale="none").advantages[:, -1].tolist() == pytest.approx([-1, 0, -1, 2])


@SCALES
@pytest.mark.parametrize("rewarded", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_gigpo_and_hgpo_are_their_definitions(seed, alpha, rewarded, scale):
    rollouts, batch = random_batch(seed, scale)
    batch = batch if rewarded else replace(batch, step_rewards=None)
    histories = [rollouts.histories(row) for row in range(12)]
    returns, whole = batch.turn_rewards.returns(0.9), batch.turn_rewards.whole_returns()
    outcomes = outcome_advantages(whole, 4, scale)
    over_batch = scale_by_definition(batch.turn_rewards, 0.9)

    def relative(row: int, n: int, back: int) -> float | None:
        visits = [
            returns[other, m].item()
            for other in rollouts.group(row)
            for m, seen in enumerate(histories[other])
            if m >= back and seen[-back - 1 :] == histories[row][n][-back - 1 :]
        ]
        if n < back or len(visits) == 1:
            return None
        unit = {"group": np.std(visits, ddof=1) + 1e-6, "batch": over_batch, "none": 1.0}[scale]
        return (returns[row, n].item() - np.mean(visits)) / unit

    gigpo = by_turn(gigpo_credit(batch, 0.5, 0.9, scale=scale).advantages, batch)
    hgpo = by_turn(hgpo_credit(batch, 2, alpha, 0.9, scale).advantages, batch)
    for row, n in gigpo:
        parts = [((k + 1) ** alpha, relative(row, n, k)) for k in range(3)]
        known = [(weight, part) for weight, part in parts if part is not None]
        expected = outcomes[row].item() + 0.5 * (parts[0][1] or 0.0)
        assert gigpo[row, n] == pytest.approx(expected, rel=1e-4, abs=1e-4)
        weighted = sum(w * part for w, part in known) / max(sum(w for w, _ in known), 1)
        assert hgpo[row, n] == pytest.approx(weighted, rel=1e-4, abs=1e-4)


def test_of_a_turn_that_k_of_a_group_reach_gigpo_keeps_the_gradient_times_k_minus_1_over_k():
    """A completion stops at once and earns 0.2, or goes on, and is right with chance 0.3. All pairs, with chances."""
    goes_on, right = 0.6, 0.3
    ends = {"stop": (1 - goes_on, 0.2), "wrong": (goes_on * (1 - right), 0.0), "right": (goes_on * right, 1.0)}
    tokens = {"stop": [0], "wrong": [1, 7, 2], "right": [1, 7, 3]}  # 7 is what the environment answers
    rows = [end for pair in product(ends, repeat=2) for end in pair]
    chances = torch.tensor([ends[one][0] * ends[other][0] for one, other in product(ends, repeat=2)])
    ids, lengths, rewards = as_tensors([tokens[end] for end in rows], [ends[end][1] for end in rows])
    turns = padded([[0, -1, 1][: len(tokens[end])] for end in rows], torch.long, -1)
    prompts = torch.zeros(len(rows), dtype=torch.long)
    outcome = outcome_advantages(rewards, 2, "none").float()
    batch = Batch(
        *(ids, lengths, rewards, rewards[:, None], outcome, outcome, 2, prompts, turns >= 0, turns, turns),
        counted=prompts == 0,
        observations=observation_keys(ids, turns, prompts),
    )
    both, grpo = (gigpo_credit(batch, weight, 1.0, scale="none").advantages for weight in (1.0, 0.0))
    states = (both - grpo.expand_as(both)) * chances.repeat_interleave(2)[:, None] / 2  # A^S, weighed and averaged
    scores = torch.stack([ids[:, 0] - goes_on, (ids[:, 2] == 3).float() - right], dim=1)
    found = (states[:, [0, 2]] * scores * (turns[:, [0, 2]] >= 0)).sum(dim=0)
    true = torch.tensor([goes_on * (1 - goes_on) * (right - 0.2), goes_on * right * (1 - right)])
    # Both completions reach turn 1. Where one goes on, the other does with chance 0.6, and else has nobody beside it.
    torch.testing.assert_close(found, true * torch.tensor([1 / 2, goes_on / 2]))


@METHODS
@pytest.mark.parametrize(("scale", "rewarded"), [("group", True), ("batch", True), ("batch", False)])
def test_equal_outcomes_have_advantages_of_order_1_also_with_a_discount(credit, scale, rewarded):
    for seed in range(12):
        rollouts, rng = Rollouts(seed, size=4), np.random.default_rng(seed)
        rollouts.rewards.fill_(0.5)
        steps = torch.from_numpy(rng.integers(0, 2, rollouts.starts.shape)).float()
        assert credit(batch_of(rollouts, steps if rewarded else None, scale), scale).advantages.abs().max() < 10


@METHODS
@SCALES
@pytest.mark.parametrize("rewarded", [True, False])
def test_a_rank_with_a_part_of_the_groups_gives_the_credit_of_all_of_them(credit, scale, rewarded):
    for seed in range(4):
        _, batch = random_batch(seed, scale)
        if not rewarded:
            batch = replace(batch, step_rewards=None)
        compact = torch.where(batch.observations != 0, torch.arange(batch.observations.shape[1]), -1)
        all_rewards = TurnRewards(batch.rewards, compact, batch.step_rewards)
        whole = credit(batch, scale).advantages
        for rows in (slice(0, 4), slice(4, 12)):
            cut = {f.name: getattr(batch, f.name) for f in fields(batch)}
            cut = {name: value[rows] if torch.is_tensor(value) else value for name, value in cut.items()}
            most = int(cut["steps"].max()) + 1
            cut["observations"] = cut["observations"][:, :most]
            own = credit(Batch(**cut | {"all_rewards": all_rewards}), scale).advantages
            torch.testing.assert_close(own, whole[rows], rtol=1e-6, atol=1e-6)


@pytest.mark.matrix
@pytest.mark.parametrize("steps", [[], [door_rewards.__name__]])
def test_two_ranks_know_the_rewards_of_all_rows(steps, tiny_model, tmp_path):
    """With which a rank gives the credit of all: see the test above."""
    options = ("rooms='Rooms'", "max_completion_length=400", "max_steps=1", "scale_rewards='batch'", f"steps={steps}")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    assert [rank["error"] for rank in ranks] == [None, None]
    seen = [rank["batches"][0] for rank in ranks]
    parts = [Batch(**{f.name: batch[f.name] for f in fields(Batch)}) for batch in seen]
    for part in parts:
        rewards = torch.cat([part.rewards for part in parts])
        torch.testing.assert_close(part.all_rewards.reward, rewards, rtol=0, atol=0, equal_nan=True)
        for gamma in (1.0, 0.9):
            together, *own = (r.returns(gamma) for r in (part.all_rewards, *(p.turn_rewards for p in parts)))
            expected = torch.cat([returns[returns.isfinite()] for returns in own])
            torch.testing.assert_close(together[together.isfinite()], expected)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_equal_rewards_in_another_order_leave_no_rounding_error_for_the_scale_to_blow_up(scale):
    for seed in range(40):
        rollouts, rng = Rollouts(0, groups=1, size=2), np.random.default_rng(seed)
        rollouts.turns = torch.arange(12).expand(2, -1)
        rollouts.ids, rollouts.lengths = torch.zeros(2, 12, dtype=torch.long), torch.full((2,), 12)
        rollouts.observations = torch.arange(1, 25).view(2, 12)  # no state comes back
        rollouts.prompts, rollouts.rewards = torch.zeros(2, dtype=torch.long), torch.full((2,), 0.3)
        steps = 10 * rng.random((1, 12), dtype=np.float32)
        steps = torch.from_numpy(np.concatenate([steps, rng.permuted(steps, axis=1)]))
        assert (gigpo_credit(batch_of(rollouts, steps), scale=scale).advantages == 0).all()


# Rows without a turn: completions of a `rollout_func` whose tokens are all an environment's.


def without_turns(rollouts: Rollouts, rows: list[int]) -> Rollouts:
    rollouts.turns[rows], rollouts.observations[rows] = -1, 0
    most = int(rollouts.turns.max()) + 1
    rollouts.observations, rollouts.starts = rollouts.observations[:, :most], rollouts.starts[:, :most]
    return rollouts


@METHODS
@pytest.mark.parametrize("rewarded", [True, False])
def test_where_no_row_has_a_turn_there_is_no_error(credit, rewarded):
    rollouts = without_turns(Rollouts(3), list(range(6)))
    batch = batch_of(rollouts, torch.zeros(6, 0) if rewarded else None)
    assert credit(batch, "group").advantages.isfinite().all()  # none of them is of a token of the loss


@METHODS
@SCALES
def test_rewards_of_0_are_as_none_and_a_row_without_a_turn_counts_in_its_group(credit, scale):
    """So it counts in the group's mean and as one of the others, with its outcome."""
    for seed in range(8):
        rollouts = without_turns(Rollouts(seed, size=4), [1])
        batch = batch_of(rollouts, scale=scale)
        zeros = replace(batch, step_rewards=torch.zeros(batch.observations.shape))
        plain, zeroed = (credit(b, scale).advantages * batch.loss_mask for b in (batch, zeros))
        torch.testing.assert_close(zeroed, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("history", [1, 2])
def test_gigpo_compares_states_with_their_history(history):
    rollouts, batch = random_batch(0, "none")
    found, last = (gigpo_credit(batch, 1.0, 0.9, k, "none").added for k in (history, 0))
    returns, labels = batch.turn_rewards.returns(0.9), state_labels(rollouts.observations, rollouts.size, history)
    expected = relative_returns(returns, labels[history], normalize=False)
    assert not torch.equal(found, last)
    for (row, n), value in by_turn(found, batch).items():
        assert value == pytest.approx(float(expected[row, n]), abs=1e-5)


def test_hgpo_does_not_count_visits_of_unscorable_completions():
    """A history that only an unscorable row shares has no weight: the credit is that of a group without the row."""
    _, batch = random_batch(0, "none")
    rewards = batch.rewards.clone()
    rewards[[0, 4, 8]] = torch.nan
    batch = replace(batch, rewards=rewards, step_rewards=None)
    apart = batch.observations.clone()
    for row in (0, 4, 8):  # in states of its own
        apart[row] = torch.where(apart[row] != 0, 1000 + row * 50 + torch.arange(apart.shape[1]), 0)
    ours, alone = (hgpo_credit(each, 2, 1.0, 0.9, "none") for each in (batch, replace(batch, observations=apart)))
    torch.testing.assert_close(ours.advantages, alone.advantages)
