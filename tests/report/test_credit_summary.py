"""The numbers of a report are those of their definitions."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.report.credit_summary import CreditSummary
from tempo_trl.report.embed import embed_groups, script_json
from tempo_trl.report.group import groups_of, terms_of
from tempo_trl.runs.token_text import readable, visible
from tempo_trl.runs.trees import read_trees
from tests.trainers.recording import share_of_threes, train

from .recorded import HAND_REWARDS, HAND_WORKED, record, rows_of, summary_of

HAND = [list(text) for text in HAND_WORKED]
SCALE = np.std(HAND_REWARDS, ddof=1) + 1e-4


def statistics_of(folder, *groups, **metadata) -> CreditSummary:
    return summary_of(record(folder, list(groups), **metadata))


def test_the_moved_share_of_the_hand_worked_group(tmp_path):
    statistics = statistics_of(tmp_path, rows_of(HAND, HAND_REWARDS))
    td = 3 * (2 / 3 - 1 / 2) + 1 / 2 + 2 * (1 - 2 / 3) + 2 / 3
    assert statistics.moved() == pytest.approx(td / (td + 4 * 13 * 1 / 2))
    assert (statistics.branch, statistics.count) == (7, 4 * 13)


def test_the_moved_share_is_the_logged_td_share_where_td_coef_is_one(tiny_model, tmp_path):
    options = {"reward_funcs": share_of_threes, "log_trees_steps": 1, "log_trees_prompts": 99, "max_steps": 1}
    logged = train(tiny_model, tmp_path, **options).state.log_history[0]
    assert summary_of(tmp_path).moved() == pytest.approx(logged["tempo/added_share"], rel=1e-4)


def test_nothing_moves_where_rewards_are_equal_or_unknown_or_completions_never_part(tmp_path):
    flat = statistics_of(tmp_path / "flat", rows_of(HAND, [1.0] * 4))
    assert (flat.moved(), flat.flat, flat.groups) == (0.0, 1, 1)
    unscorable = statistics_of(tmp_path / "unscorable", rows_of(HAND, [float("nan")] * 4))
    assert (unscorable.moved(), unscorable.flat) == (0.0, 1)
    same = statistics_of(tmp_path / "same", rows_of([HAND[0]] * 4, HAND_REWARDS))
    assert (same.moved(), len(same.top_td())) == (0.0, 0)


def test_tokens_are_ranked_by_their_sum_of_td(tmp_path):
    statistics = statistics_of(tmp_path, rows_of(HAND, HAND_REWARDS))
    ranked = statistics.top_td()
    expected = {"8": 2 / 3, "9": 2 / 3, "3": 1 / 2, "2": 1 / 2}
    assert ranked["mass"].to_dict() == pytest.approx({text: mass / SCALE for text, mass in expected.items()}, rel=1e-4)
    assert ranked.loc["2", ["ups", "downs", "seen"]].tolist() == [3, 0, 6]
    assert statistics.examples("8") == [(pytest.approx(-2 / 3 / SCALE, rel=1e-4), "7+5=2;2-3=", "#8")]


def test_tokens_that_do_not_train_decide_nothing(tmp_path):
    """The digits 2 and 3 at which the group first branches are those of a calculator."""
    rows = rows_of(HAND, HAND_REWARDS)
    for row in rows:
        row["loss_mask"][4] = False
    statistics = statistics_of(tmp_path, rows)
    assert set(statistics.top_td().index) == {"8", "9"}
    assert statistics.tokens.loc["2", ["ups", "downs", "seen"]].tolist() == [0, 0, 3]
    assert statistics.examples("2") == statistics.examples("3") == []


def unfolded(embedded: dict, group: dict, row: dict) -> list[str]:
    """Texts of a row's tokens, as the page reads them."""
    path, at = [], row["leaf"]
    while at >= 0:
        path.insert(0, group["nodes"][at]["t"])
        at = group["nodes"][at]["p"]
    numbers = [number for part in path for number in part]
    for t, number in row.get("x", []):
        numbers[t] = number
    return [embedded["texts"][number] for number in numbers]


PIECES = st.sampled_from(["a", "b", "<0xF0><0x9F>", "<0x98>", "<0x80>", "<0x89>", "\n"])


@given(st.lists(st.lists(PIECES, max_size=6), min_size=2, max_size=5), st.data())
def test_the_page_holds_every_row_as_it_was(tmp_path_factory, completions, data):
    rewards = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(completions), max_size=len(completions)))
    folder = record(tmp_path_factory.mktemp("run"), [rows_of(completions, rewards)])
    groups = groups_of(read_trees(folder), terms_of("tempo"))
    embedded = json.loads(script_json(embed_groups(groups)))
    group = embedded["groups"][0]
    assert [row["reward"] for row in group["rows"]] == rewards
    for i, row in enumerate(group["rows"]):
        assert unfolded(embedded, group, row) == [visible(piece) for piece in readable(completions[i])]
        advantages = np.zeros(len(completions[i]))
        for start, value in row["adv"]:
            advantages[start:] = value
        np.testing.assert_allclose(advantages, groups[0].advantages[i], atol=1e-4)
        td = np.zeros(len(completions[i]))
        for t, value in row["td"]:
            td[t] = value
        np.testing.assert_allclose(td, groups[0].td_errors[i], atol=1e-4)
