"""TEMPO on the graph of states: the definition in loops, and today's tree where no state comes back."""

import numpy as np
import pytest
import torch

from tempo_trl.credit import build_prefix_tree, prefix_tree
from tempo_trl.credit.advantages import credit_tokens, outcome_advantages
from tempo_trl.credit.anchors import state_labels
from tempo_trl.credit.state_graph import graph_td_errors

from .rollouts import Rollouts

SEEDS = pytest.mark.parametrize("seed", range(12))


def td_of(rollouts: Rollouts, outcome: torch.Tensor) -> torch.Tensor:
    labels = state_labels(rollouts.observations, rollouts.size)[0]
    return graph_td_errors(rollouts.ids, rollouts.lengths, rollouts.turns, labels, outcome, rollouts.size)


def td_on_the_tree(rollouts: Rollouts, outcome: torch.Tensor) -> torch.Tensor:
    tree = build_prefix_tree(rollouts.ids.numpy(), rollouts.lengths.numpy(), rollouts.size, rollouts.prompts.numpy())
    return credit_tokens(tree, outcome, rollouts.ids.shape[1], 1.0)[1].masked_fill(rollouts.turns < 0, 0.0)


@SEEDS
def test_it_is_the_tree_bit_for_bit_where_no_state_comes_back(seed):
    rollouts = Rollouts(seed, size=8, states=0)
    # Rows that repeat another's first turn still share its tokens, as they do in the tree.
    outcome = outcome_advantages(torch.randn(16, generator=torch.Generator().manual_seed(seed)), 8).float()
    assert torch.equal(td_of(rollouts, outcome), td_on_the_tree(rollouts, outcome))


def test_segments_are_compared_no_further_than_they_are_equal_and_a_long_one_costs_no_more(monkeypatch):
    """Two rows begin their first turn with 100 equal tokens; one of 400 segments has 20,000."""
    length, rows, turns = 20_000, 8, 50
    ids, of_turn = torch.zeros(rows, 2 * turns + length, dtype=torch.long), torch.full((rows, 2 * turns + length), -1)
    ids[:, : 2 * turns] = torch.arange(2 * turns * rows).view(rows, -1)
    of_turn[:, : 2 * turns] = torch.where(torch.arange(2 * turns) % 2 == 0, torch.arange(2 * turns) // 2, -1)
    ids[:2, :100], of_turn[:2, :] = 7, -1
    of_turn[:2, :101], ids[0, 100], ids[1, 100] = 0, 1, 2
    lengths = torch.tensor([101, 101, *[2 * turns] * 5, 2 * turns + length])
    labels = np.where(np.arange(turns) == 0, 0, np.arange(1, rows * turns + 1).reshape(rows, turns))
    labels[:2, 1:] = -1
    outcome = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    compared, sort_rows = [], prefix_tree.sort_rows

    def watched(completion_ids, *args):
        compared.append(completion_ids.size)
        return sort_rows(completion_ids, *args)

    monkeypatch.setattr(prefix_tree, "sort_rows", watched)
    td = graph_td_errors(ids, lengths, of_turn, labels, outcome, rows)
    assert sum(compared) < 302 * length / 4  # a quarter of all segments at the length of the longest
    assert td[:2].nonzero().tolist() == [[0, 100], [1, 100]] and td[0, 100] == 0.5 and td[1, 100] == -0.5


@SEEDS
def test_td_errors_are_those_of_the_definition(seed):
    """A turn ends with its tokens: the state after its last one is left to the observation that follows."""
    rollouts = Rollouts(seed, size=4, prompts=1 + seed % 2)
    outcome = outcome_advantages(rollouts.rewards, 4).float()
    segments = {}  # (row, turn): state, tokens up to the next turn
    for row, text in enumerate(rollouts.texts):
        for turn in range(1 + max(turn for _, turn in text)):
            begin = int(rollouts.starts[row, turn])
            following = rollouts.starts[row, turn + 1] if turn + 1 < rollouts.starts.shape[1] else -1
            end = int(following) if following >= 0 else len(text)
            state = (row // 4, int(rollouts.prompts[row]), rollouts.histories(row)[turn][-1], turn == 0)
            tokens = tuple(token for token, _ in text[begin:end])
            segments[row, turn] = state, tokens

    def value(row: int, turn: int, length: int) -> float:
        state, tokens = segments[row, turn]
        passing = {
            other
            for (other, _), (theirs, path) in segments.items()
            if theirs == state and path[:length] == tokens[:length] and len(path) >= length
        }
        return sum(float(outcome[other]) for other in passing) / len(passing)

    computed = td_of(rollouts, outcome)
    for row, text in enumerate(rollouts.texts):
        for column, (_, turn) in enumerate(text):
            if turn >= 0:
                t = column - int(rollouts.starts[row, turn])
                expected = value(row, turn, t + 1) - value(row, turn, t)
                flat = len(set(rollouts.rewards[list(rollouts.group(row))].tolist())) == 1
                assert float(computed[row, column]) == pytest.approx(0.0 if flat else expected, abs=1e-5)
            else:
                assert computed[row, column] == 0


def test_what_two_completions_do_when_they_come_back_is_credited():
    """All four do 5 in a state and come back to it. Then two do 6 and win, and two do 7."""
    ids = torch.tensor([[0, 9, 5, 9, 6], [1, 9, 5, 9, 6], [2, 9, 5, 9, 7], [3, 9, 5, 9, 7]])
    turns = torch.tensor([[0, -1, 1, -1, 2]] * 4)
    labels, outcome = np.array([[0, 1, 1]] * 4), torch.tensor([1.0, 1.0, 0.0, 0.0])
    td = graph_td_errors(ids, torch.full((4,), 5), turns, labels, outcome, 4)
    assert td[:, 4].tolist() == [0.5, 0.5, -0.5, -0.5]
    assert td[:, 2].tolist() == [0.0] * 4
