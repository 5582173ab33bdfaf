"""Turns of agents in the report: each has the mean credit of its tokens, its tools, and what was observed before."""

import json
from collections import Counter
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from tempo_trl.report.credit_terms import terms_of
from tempo_trl.report.embed import embed_groups, embedded_size
from tempo_trl.report.group import Group
from tempo_trl.report.terminal_tree import turn_tables
from tempo_trl.report.turns import MAX_TEXT, turns_of_group


def group(rows, rewards) -> Group:
    """A group of agents. A row is a list of turns: what was observed, the tool, the advantages of its tokens."""
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
        terms=terms_of("tempo"),
        turns=list(turns),
        calls=[[turn[1] for turn in row] for row in rows],
        observed=[[turn[0] for turn in row] for row in rows],
    )


def _tokens(row) -> tuple[np.ndarray, np.ndarray]:
    """Turn and advantage of each token, with two tokens of an answer between the turns."""
    turns, advantages = [], []
    for n, (_, _, own) in enumerate(row):
        answer = 2 if n else 0
        turns += [-1] * answer + [n] * len(own)
        advantages += [9.0] * answer + own
    return np.array(turns), np.array(advantages)


FIRST = [("", "go", [1.0, 3.0]), ("kitchen", "take", [-1.0]), ("<b>" + "x" * 5000, "", [5.0])]
SECOND = [("", "look, go", [0.5])]


def test_a_turn_has_the_mean_advantage_of_its_tokens_in_the_loss_and_what_was_seen_before():
    recorded = group([FIRST, SECOND], [1.0, 0.0])
    recorded.loss_mask[0][1] = False
    first, second = turns_of_group(recorded)
    assert [turn.credit for turn in first] == [1.0, -1.0, 5.0]  # the 9.0 between turns is nowhere
    assert [(turn.begin, turn.end) for turn in first] == [(0, 2), (4, 5), (7, 8)]
    assert [turn.observed for turn in first[:2]] == ["", "kitchen"]
    assert len(first[2].observed) == MAX_TEXT
    assert [turn.calls for turn in second] == ["look, go"]
    recorded.loss_mask[0][0] = False
    assert turns_of_group(recorded)[0][0].credit == 0.0


def test_completions_of_one_turn_have_no_table():
    recorded = group([SECOND, SECOND], [1.0, 0.0])
    assert turns_of_group(recorded) == turn_tables(recorded, Console()) == []
    assert "turns" not in embed_groups([recorded])["groups"][0]


def test_the_page_gets_the_turns_as_json():
    recorded = group([FIRST, SECOND], [1.0, np.nan])
    embedded = json.loads(json.dumps(embed_groups([recorded]), allow_nan=False))["groups"][0]["turns"]
    assert embedded[0][1] == [4, 5, -1, "take", "kitchen"]
    assert embedded[1] == [[0, 1, 0.5, "look, go", ""]]
    assert embedded_size(recorded) > len(json.dumps(embedded))


@pytest.mark.parametrize("turns", [2, 13])
@pytest.mark.parametrize("width", [80, 40, 1000])
def test_a_console_shows_each_turn_once_and_whole_in_as_few_tables_as_its_width_needs(turns, width):
    def walk(count) -> list:
        return [(f"room {n}", ("take the lamp", "go", "")[n % 3], [n - 3.5]) for n in range(count)]

    console = Console(width=width, file=StringIO())
    tables = turn_tables(group([walk(turns), walk(2)], [1.0, 0.0]), console)
    for table in tables:
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    words = " ".join(lines).split()
    assert [n for word, n in pairwise(words) if word == "turn"] == [str(n + 1) for n in range(turns)]
    shares = Counter(word for word in words if word[0] in "+-")
    assert shares == Counter(f"{n - 3.5:+.2f}" for n in [*range(turns), 0, 1])
    widths = [max(len(f"turn {n + 1}"), 13 if n % 3 == 0 else 0) + 3 for n in range(turns)]
    shown = np.cumsum([len(table.columns) - 2 for table in tables])
    for begin, end in pairwise([0, *shown.tolist()]):
        assert end == turns or 23 + sum(widths[begin : end + 1]) > width  # 23 for the completion and its reward
