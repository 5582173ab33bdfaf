"""Turns of agents in the report: equal states are one node, turns have the mean credit of their tokens."""

import json
from collections import Counter
from io import BytesIO, StringIO
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import Bbox
from rich.console import Console

from tempo_trl.report.embed import embed_groups, embedded_size
from tempo_trl.report.group import Group
from tempo_trl.report.pictures import save
from tempo_trl.report.terminal_tree import turn_tables
from tempo_trl.report.turn_graph import END, MAX_TEXT, turn_graph
from tempo_trl.report.turn_layout import DOWN, HEIGHT, LANE, on_curve, state_cells, turn_curves
from tempo_trl.report.turn_picture import draw_turns

PROMPT, KITCHEN, CELLAR = 11, 22, 33


def group(rows, rewards) -> Group:
    """A group of agents. A row is a list of turns: key of the state, what was observed, tool, advantages of tokens."""
    turns, advantages = zip(*map(_tokens, rows), strict=True)
    lengths = [len(row) for row in turns]
    return Group(
        step=0,
        group=0,
        prompt="Where is it?",
        ids=[list(range(100 * i, 100 * i + n)) for i, n in enumerate(lengths)],
        tokens=[[f" t{n}" for n in range(length)] for length in lengths],
        values=[np.zeros(n + 1) for n in lengths],
        td_errors=[np.zeros(n) for n in lengths],
        advantages=list(advantages),
        entropies=None,
        loss_mask=[row >= 0 for row in turns],
        outcome=np.zeros(len(rows)),
        rewards=np.array(rewards, dtype=float),
        turns=list(turns),
        states=[[turn[0] for turn in row] for row in rows],
        calls=[[turn[2] for turn in row] for row in rows],
        observed=[[turn[1] for turn in row] for row in rows],
    )


def _tokens(row) -> tuple[np.ndarray, np.ndarray]:
    """Turn and advantage of each token, with two tokens of an answer between the turns."""
    turns, advantages = [], []
    for n, (*_, own) in enumerate(row):
        answer = 2 if n else 0
        turns += [-1] * answer + [n] * len(own)
        advantages += [9.0] * answer + own
    return np.array(turns), np.array(advantages)


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
    assert turn_tables(recorded, Console()) == []
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


def walk(states) -> list:
    """A completion that goes through these states."""
    return [(state, f"room {state}", ("take the lamp", "go", "")[n % 3], [n - 3.5]) for n, state in enumerate(states)]


SHAPES = {
    "three turns": [FIRST, SECOND, THIRD],
    "thirteen turns": [walk(range(13)), walk([0, 1, 2, 3, 4, 3, 2, 5, 0, 6, 7, 8, 9]), walk([0, 9, 9, 4, 1, 12])],
    "many returns": [walk(np.random.default_rng(seed).integers(0, 9, 13)) for seed in range(8)],
    "a straight line": [walk(range(13))] * 2,
    "one state": [walk([0, 0, 0])] * 2,
    "one column": [walk([0, 1 + n, 1 + (n + 1) % 7]) for n in range(7)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_that_is_drawn_lies_within_the_picture_and_ends_less_than_a_tenth_of_an_inch_from_each_edge(shape):
    figure = draw_turns(group(SHAPES[shape], [1.0] * len(SHAPES[shape])))
    (axes,) = figure.axes
    drawn = Bbox.union([artist.get_window_extent() for artist in (*axes.patches, *axes.texts)])
    (left, bottom), (right, top) = (drawn.get_points() - axes.bbox.get_points()) / figure.dpi
    assert all(0 < inches < 0.1 for inches in (left, bottom, -right, -top))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_blank_band_crosses_a_saved_picture_that_is_as_wide_as_a_quarter_of_an_inch(shape):
    file = BytesIO()
    save(draw_turns(group(SHAPES[shape], [1.0] * len(SHAPES[shape]))), file, "png")
    ink = (imread(BytesIO(file.getvalue()))[..., :3] < 1).any(axis=2)
    for axis in (0, 1):
        inked = np.flatnonzero(ink.any(axis=axis))
        assert np.diff(inked, prepend=-1, append=ink.shape[1 - axis]).max() / 140 < 0.25  # 140 dots an inch


@pytest.mark.parametrize("shape", SHAPES)
def test_arcs_pass_all_states_of_their_columns_and_no_two_of_them_have_one_lane_at_one_place(shape):
    graph = turn_graph(group(SHAPES[shape], [1.0] * len(SHAPES[shape])))
    cells = state_cells(graph.states)
    pairs = {(step.state, step.next) for row in graph.rows for step in row if step.next != END}
    curves = turn_curves(cells, pairs)
    assert set(curves) == pairs
    ahead = {pair: cells[pair[1]][0] - cells[pair[0]][0] for pair in pairs}
    arcs = {pair: on_curve(curves[pair], 0.5)[1] for pair in pairs if ahead[pair] not in (0, 1) or len({*pair}) == 1}
    for pair, middle in arcs.items():
        first, last = sorted(cells[state][0] for state in pair)
        bottom = max(row for column, row in cells if first <= column <= last) * DOWN + HEIGHT
        assert middle < 0 if ahead[pair] > 0 else middle > bottom or ahead[pair] == 0
    for one, other in combinations(arcs, 2):
        (x, end), (y, finish) = (sorted(curves[pair][[0, 3], 0]) for pair in (one, other))
        assert end <= y or finish <= x or abs(arcs[one] - arcs[other]) > 0.99 * LANE


def test_no_two_boxes_of_the_picture_overlap_and_groups_without_turns_or_with_too_many_have_none():
    states = turn_graph(group([FIRST, SECOND, THIRD], [1.0, 0.0, 1.0])).states
    places = state_cells(states)
    assert len(set(places)) == len(states)
    assert places[0] == (0, 0)
    assert draw_turns(group([THIRD, THIRD], [1.0, 0.0])) is None
    long = [(PROMPT + n, f"page {n}", "", [1.0]) for n in range(60)]
    assert draw_turns(group([long, long], [1.0, 0.0])) is None


@pytest.mark.parametrize("turns", [2, 13])
@pytest.mark.parametrize("width", [80, 40, 1000])
def test_a_console_shows_each_turn_once_and_whole_in_as_few_tables_as_its_width_needs(turns, width):
    recorded = group([walk(range(turns)), walk(range(2))], [1.0, 0.0])
    console = Console(width=width, file=StringIO())
    tables = turn_tables(recorded, console)
    for table in tables:
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    words = " ".join(lines).split()
    assert [n for word, n in pairwise(words) if word == "turn"] == [str(n + 1) for n in range(turns)]
    shares = Counter(word for word in words if word[0] in "+-")
    assert shares == Counter(f"{n - 3.5:+.2f}" for n in [*range(turns), 0, 1])
    assert words.count("lamp") == len(range(0, turns, 3)) + 1
    widths = [max(len(f"turn {n + 1}"), 13 if n % 3 == 0 else 0) + 3 for n in range(turns)]
    assert (len(tables) == 1) == (sum(widths) + 23 <= width)  # 23 for the completion and its reward
    shown = np.cumsum([len(table.columns) - 2 for table in tables])
    for begin, end in pairwise([0, *shown.tolist()]):
        assert end == turns or 23 + sum(widths[begin : end + 1]) > width
