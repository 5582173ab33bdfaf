"""Turns of agents in the report: each has the mean credit of its tokens, its tools, and what was observed before."""

import json
from io import StringIO

import numpy as np
from rich.console import Console

from tempo_trl.report.embed import embed_groups
from tempo_trl.report.group import MAX_TEXT, Group, terms_of, turns_of_group
from tempo_trl.report.terminal_tree import turn_table


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
    assert turns_of_group(recorded) == [] and turn_table(recorded) is None
    assert "turns" not in embed_groups([recorded])["groups"][0]


def test_the_page_gets_the_turns_as_json():
    recorded = group([FIRST, SECOND], [1.0, np.nan])
    embedded = json.loads(json.dumps(embed_groups([recorded]), allow_nan=False))["groups"][0]["turns"]
    assert embedded[0][1] == [4, 5, -1, "take", "kitchen"]
    assert embedded[1] == [[0, 1, 0.5, "look, go", ""]]


def test_the_terminal_lists_each_turn_of_a_completion_with_its_tools_and_credit():
    console = Console(width=80, file=StringIO())
    console.print(turn_table(group([FIRST, SECOND], [1.0, np.nan])))
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert "1 1.00 go +2.00, take -1.00, text +5.00" in lines
    assert "2 – look, go +0.50" in lines
