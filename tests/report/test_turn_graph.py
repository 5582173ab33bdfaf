"""Turns of agents in the report: equal states are one node, turns have the mean credit of their tokens."""

import json
from io import BytesIO

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch

from tempo_trl.report.embed import embed_groups, embedded_size
from tempo_trl.report.group import Group
from tempo_trl.report.terminal_tree import turn_table
from tempo_trl.report.turn_graph import END, MAX_TEXT, turn_graph
from tempo_trl.report.turn_picture import draw_turns, state_places

PROMPT, KITCHEN, CELLAR = 11, 22, 33


def group(rows, rewards) -> Group:
    """A group of agents. A row is a list of turns: key of the state, what was observed, tool, advantages of tokens."""
    turns = [_tokens(row, lambda n, turn: n, -1) for row in rows]
    advantages = [_tokens(row, lambda n, turn: None, 9.0) for row in rows]
    for own, row in zip(advantages, rows, strict=True):
        own[own == None] = [a for turn in row for a in turn[3]]  # noqa: E711
    lengths = [len(row) for row in turns]
    return Group(
        step=0,
        group=0,
        prompt="Where is it?",
        ids=[list(range(100 * i, 100 * i + n)) for i, n in enumerate(lengths)],
        tokens=[[f" t{n}" for n in range(length)] for length in lengths],
        values=[np.zeros(n + 1) for n in lengths],
        td_errors=[np.zeros(n) for n in lengths],
        advantages=[own.astype(float) for own in advantages],
        entropies=None,
        loss_mask=[row >= 0 for row in turns],
        outcome=np.zeros(len(rows)),
        rewards=np.array(rewards, dtype=float),
        turns=turns,
        states=[[turn[0] for turn in row] for row in rows],
        calls=[[turn[2] for turn in row] for row in rows],
        observed=[[turn[1] for turn in row] for row in rows],
    )


def _tokens(row, of_turn, between) -> np.ndarray:
    """A value per token, with two tokens of an answer between the turns."""
    values = []
    for n, turn in enumerate(row):
        values += [between] * (2 if n else 0) + [of_turn(n, turn)] * len(turn[3])
    return np.array(values)


FIRST = [(PROMPT, "", "go", [1.0, 3.0]), (KITCHEN, "kitchen", "take", [-1.0]), (KITCHEN, "kitchen", "", [5.0])]
SECOND = [(PROMPT, "", "look, go", [0.5]), (CELLAR, "cellar", "go", [2.0]), (KITCHEN, "kitchen, dark", "", [4.0])]
THIRD = [(PROMPT, "", "", [7.0])]


def test_completions_that_saw_the_same_share_a_state_and_a_loop_is_one_visitor():
    graph = turn_graph(group([FIRST, SECOND, THIRD], [1.0, 0.0, 1.0]))
    assert [(state.text, state.first, state.visitors) for state in graph.states] == [
        ("", 0, (0, 1, 2)),
        ("kitchen", 1, (0, 1)),
        ("cellar", 1, (1,)),
    ]
    assert [state.value for state in graph.states] == pytest.approx([2 / 3, 0.5, 0.0])
    assert [[(step.state, step.next) for step in steps] for steps in graph.rows] == [
        [(0, 1), (1, 1), (1, END)],
        [(0, 2), (2, 1), (1, END)],
        [(0, END)],
    ]


def test_a_turn_has_the_mean_advantage_of_its_tokens_in_the_loss():
    recorded = group([FIRST, SECOND], [1.0, 0.0])
    recorded.loss_mask[0][1] = False
    graph = turn_graph(recorded)
    assert [step.credit for step in graph.rows[0]] == [1.0, -1.0, 5.0]  # the 9.0 between turns is nowhere
    assert [(step.begin, step.end) for step in graph.rows[0]] == [(0, 2), (4, 5), (7, 8)]
    recorded.loss_mask[0][0] = False
    assert turn_graph(recorded).rows[0][0].credit == 0.0


def test_an_unscored_completion_does_not_count_towards_a_value():
    graph = turn_graph(group([FIRST, SECOND, THIRD], [1.0, np.nan, np.nan]))
    assert [state.value for state in graph.states[:2]] == [1.0, 1.0]
    assert np.isnan(graph.states[2].value)


def test_without_messages_an_observation_is_its_tokens():
    silent = [[(key, "", "", credit) for key, _, _, credit in row] for row in (FIRST, SECOND)]
    graph = turn_graph(group(silent, [1.0, 0.0]))
    assert [state.text for state in graph.states] == ["", "t2 t3", "t1 t2"]
    long = [[FIRST[0], (KITCHEN, "x" * 5000, "", [1.0])]]
    assert len(turn_graph(group(long, [1.0])).states[1].text) == MAX_TEXT


@pytest.mark.parametrize("missing", ["turns", "second turn"])
def test_there_is_no_graph_where_nothing_was_observed(missing):
    recorded = group([THIRD, THIRD], [1.0, 0.0])
    if missing == "turns":
        recorded = Group(**{**vars(group([FIRST], [1.0])), "turns": None})
    assert turn_graph(recorded) is None
    assert turn_table(recorded) is None
    assert "graph" not in embed_groups([recorded])["groups"][0]


def test_the_page_gets_the_graph_as_json():
    recorded = group([FIRST, SECOND, THIRD], [1.0, np.nan, 0.0])
    embedded = json.loads(json.dumps(embed_groups([recorded]), allow_nan=False))["groups"][0]["graph"]
    assert embedded["states"][2] == {"t": "cellar", "l": 1, "n": 1, "v": None}
    assert embedded["rows"][1] == [[0, 2, 0, 1, 0.5, "look, go"], [2, 1, 3, 4, 2, "go"], [1, END, 6, 7, 4, ""]]
    assert embedded_size(recorded) > len(json.dumps(embedded))


def test_the_picture_has_a_box_per_state_and_an_arrow_per_pair_of_states():
    figure = draw_turns(group([FIRST, SECOND, THIRD], [1.0, 0.0, 1.0]))
    (axes,) = figure.axes
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(axes.patches) - len(arrows) == 3  # prompt, kitchen, cellar
    assert len(arrows) == 4  # prompt to both, kitchen to itself, cellar to kitchen
    texts = [text.get_text() for text in axes.texts]
    assert {"prompt", "kitchen", "cellar", "go", "take"} <= set(texts)
    assert "V 0.50  n 2" in texts
    figure.savefig(BytesIO(), format="png")


def test_no_two_boxes_of_the_picture_overlap_and_groups_without_turns_or_with_too_many_have_none():
    states = turn_graph(group([FIRST, SECOND, THIRD], [1.0, 0.0, 1.0])).states
    places = state_places(states)
    assert len(set(places)) == len(states)
    assert places[0] == (0, 0)
    assert draw_turns(group([THIRD, THIRD], [1.0, 0.0])) is None
    long = [(PROMPT + n, f"page {n}", "", [1.0]) for n in range(60)]
    assert draw_turns(group([long, long], [1.0, 0.0])) is None
