"""Credit by criterion: recorded in training, read again, and shown in page, terminal and completions table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from tempo_trl import SpanCreditConfig, SpanCreditTrainer, SpanReward
from tempo_trl.credit import span_advantages
from tempo_trl.demo.task import policy_path
from tempo_trl.launch.cli import main
from tempo_trl.launch.credit import read_groups
from tempo_trl.report import read_trees
from tempo_trl.report.collect import RecordedRun
from tempo_trl.report.criteria import criteria_of, statistics, with_places
from tempo_trl.report.group import credit_scale, groups_of, recorded_groups, terms_of
from tempo_trl.report.page import page_data
from tempo_trl.report.terminal_tree import criteria_table
from tempo_trl.runs.criteria import Span, criteria_text
from tests.trainers.recording import config, questions

from .recorded import HAND_WORKED, order_run, record, rows_of, summary_of, write

DEMO = str(policy_path())


def halves(texts, **columns):
    """One criterion in the first half, one at both ends, one without a place, and one that judges few."""
    return [
        [
            SpanReward("half", float(ord(text[0]) % 2), 0, max(len(text) // 2, 1)),
            SpanReward("ends", float(len(text) % 2), 0, 1),
            *([SpanReward("ends", float(len(text) % 2), len(text) - 1, len(text))] if len(text) > 1 else []),
            SpanReward("all", float(len(text) % 3)),
            *([SpanReward("long", 1.0)] if len(text) > 4 else []),
        ]
        for text in texts
    ]


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The folder of a run of span credit, and what it printed."""
    folder = tmp_path_factory.mktemp("spans")
    args = config(folder, SpanCreditConfig, log_trees_steps=1, log_completions=True, max_steps=1, trace_lambda=0.5)
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("trl.trainer.grpo_trainer.print_prompt_completions_sample", lambda *_, **k: printed.append(k))
        SpanCreditTrainer(tiny_model, None, args, questions(), span_reward_funcs=halves).train()
    return folder, printed


def test_recorded_criteria_are_those_that_trained(trained):
    """Their advantages, spread over their places, add up to the advantages of the tokens."""
    groups = recorded_groups(trained[0], 0)
    assert criteria_of(groups[0])[:3] == ["half", "ends", "all"]
    for group in groups:
        assert (group.terms.label, group.terms.of_places, group.trace_lambda) == ("span credit", True, 0.5)
        for spans, advantages in zip(group.spans, group.advantages, strict=True):
            expected, column = np.zeros(len(advantages)), np.arange(len(advantages))
            for span, places in with_places(spans).values():
                starts, ends = (np.array(side)[:, None] for side in zip(*places, strict=True)) if places else (0, 0)
                share = np.where(column < ends, 0.5 ** np.clip(starts - column, 0, None), 0.0).max(axis=0)
                expected += span.advantage * (share if places else 1.0)
            np.testing.assert_allclose(advantages, expected, atol=1e-5)


def test_the_completions_table_has_a_column_of_criteria_that_is_not_printed(trained):
    folder, printed = trained
    table = pd.read_parquet(folder / "completions" / "completions_00001.parquet")
    spans = [[Span(**span) for span in row] for row in read_trees(folder)["spans"]]
    assert table["criteria"].tolist() == [criteria_text(own) for own in spans]
    assert {"added_share", "branch_tokens"} <= set(table.columns)
    assert [call["extra"] for call in printed] == [{}] * len(printed)
    assert printed


def test_a_criterion_is_named_once_with_reward_and_advantage():
    spans = [Span("city", 1.0, 0.866, 0, 2), Span("city", 1.0, 0.866, 4, 6), Span("item", 0.0, -1.2), Span("x", 1 / 3)]
    assert criteria_text(spans) == "city: 1 +0.87, item: 0 -1.20, x: 0.333"
    assert criteria_text([]) == ""


def test_statistics_of_criteria_by_hand(tmp_path):
    """City is right in 2 of 4 completions, item in 2 of the 3 that have one; politeness is 0 in all of them."""
    found = statistics(summary_of(order_run(tmp_path)).criteria)
    assert found["reward"].to_dict() == {"city": 1 / 2, "item": pytest.approx(2 / 3), "polite": 0}
    assert found[["groups", "flat"]].values.tolist() == [[2, 0], [2, 0], [2, 1]]
    # Two of four: |±1/2| / sqrt(1/3). Two of three: (1/3 + 1/3 + 2/3) / sqrt(1/3), divided by three completions.
    credit = {"city": 0.5 * 3**0.5, "item": 4 / 9 * 3**0.5, "polite": 0}
    assert found["credit"].to_dict() == pytest.approx(credit, rel=1e-3)


def test_one_large_advantage_leaves_the_colours_of_the_others_alone(tmp_path):
    """Of 40 stretches of equal credit of 1, and one of 10, the darkest colour is that of 1, and 10 is as dark."""
    [group] = recorded_groups(record(tmp_path, [rows_of([["a"] * 81, ["b"] * 81], [1.0, 0.0])]), 0)
    credit = np.append([0.0, 1.0] * 40, -10.0)
    group = replace(group, advantages=[credit, 0 * credit], outcome=np.zeros(2))
    assert credit_scale(group) == (1.0, 10.0)
    assert credit_scale(replace(group, loss_mask=[credit >= 0, credit >= 0])) == (1.0, 1.0)
    assert credit_scale(replace(group, advantages=[0 * credit] * 2)) == (1.0, 1.0)


def run_of(folder) -> RecordedRun:
    run = RecordedRun("run", "run", [])
    run.read("train", [recorded_groups(folder, 0)], [0])
    return run


def test_the_page_gets_each_criterion_once_with_its_places(trained, tmp_path):
    run = run_of(order_run(tmp_path))
    data = page_data([run], "title")
    [group, _] = data["groups"]
    names, rows = group["criteria"], group["rows"]
    assert (names, group["trace"]) == (["city", "item", "polite"], 0)
    assert rows[1]["s"] == [
        [0, 0, pytest.approx(-0.866, abs=1e-3), [(9, 15)]],
        [1, 1, pytest.approx(0.577, abs=1e-3), [(25, 31)]],
        [2, 0, 0, []],
    ]
    assert len(rows[3]["s"]) == 2
    assert all(row["td"] == [] for row in rows)
    assert data["runs"][0]["statistics"]["criteria"]["polite"] == [0, 0, 1, 2]
    several = page_data([run_of(trained[0])], "title")["groups"][0]
    assert any(len(places) == 2 for row in several["rows"] for *_, places in row["s"])


def test_a_narrow_console_shows_each_criterion_once_and_names_are_no_markup(tmp_path):
    names = [f"[red]field{k}[/]" for k in range(7)]
    [row] = rows_of([list(HAND_WORKED[0])], [1.0])
    row["spans"] = [Span(name, 0.5, 0.25)._asdict() for name in names]
    console = Console(width=30, record=True)
    console.print(criteria_table(groups_of(read_trees(record(tmp_path, [[row]])), terms_of("span_credit"))[0]))
    printed = "".join(console.export_text().split())
    assert [printed.count(name) for name in names] == [1] * 7


def orders(**extra):
    """Three completions of the hand-worked group, each with its first sum and its answer, and their characters."""
    lines = []
    for text, right in zip(HAND_WORKED[:3], [(1, 1), (1, 0), (0, 0)], strict=True):
        places = ("sum", 0, 5), ("answer", 11, 13)
        spans = [{"name": n, "reward": r, "start": a, "end": b} for (n, a, b), r in zip(places, right, strict=True)]
        lines.append(
            {"prompt": "7+5-3?", "completion": text, "spans": [*spans, {"name": "short", "reward": 0}]} | extra
        )
    return lines


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("reward", [{}, {"reward": 0.5}])
def test_a_file_with_spans_has_the_span_credit_of_training(scale, reward, tmp_path):
    """Equal rewards beside the criteria add nothing; each character is a token here, and EOS has no place."""
    lines = orders(**reward) + [line | {"prompt": "again"} for line in orders(**reward)[:2]]
    groups = read_groups(write(tmp_path, lines), DEMO, scale_rewards=scale, trace_lambda=0.5)
    rewards = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]])
    starts, ends = torch.tensor([[0, 11, -1]] * 5), torch.tensor([[5, 13, -1]] * 5)
    lengths = torch.full((5,), 14)
    for group, own in zip(groups, [slice(0, 3), slice(3, 5)], strict=True):
        places = rewards[own], starts[own], ends[own], lengths[own]
        options = {"scale_rewards": scale, "trace_lambda": 0.5, "all_rewards": rewards}
        expected = span_advantages(*places, 14, len(places[0]), **options)
        torch.testing.assert_close(torch.tensor(np.array(group.advantages)), expected)
        assert group.rewards.tolist() == pytest.approx(
            [0.5] * len(places[0]) if reward else places[0].mean(1).tolist()
        )


def test_rewards_beside_spans_add_their_outcome(tmp_path):
    lines = orders()
    for line, reward in zip(lines, [1.0, 0.0, None], strict=True):
        line["reward"] = reward
    [both] = read_groups(write(tmp_path, lines), DEMO)
    [alone] = read_groups(write(tmp_path, orders()), DEMO)
    for with_outcome, without, outcome in zip(both.advantages, alone.advantages, both.outcome, strict=True):
        np.testing.assert_allclose(with_outcome, without + outcome, atol=1e-6)
    assert both.outcome[0] > 0


def test_places_of_token_ids_are_tokens(tmp_path):
    lines = [
        {"prompt": "a", "completion": [5, 6, 7], "spans": [{"name": "x", "reward": r, "start": 1, "end": 3}]}
        for r in (0, 1)
    ]
    [group] = read_groups(write(tmp_path, lines), scale_rewards="none")
    expected = [[-0.45, -0.5, -0.5], [0.45, 0.5, 0.5]]  # before the place as much as training's default leaves
    np.testing.assert_allclose(group.advantages, expected, rtol=1e-6)
    lines += [{"prompt": "b", "completion": [], "spans": []}]
    assert read_groups(write(tmp_path, lines))[1].spans == [[]]


def test_the_verb_prints_criteria_and_writes_the_report(tmp_path, capsys):
    path, output = str(write(tmp_path, orders())), tmp_path / "credit.html"
    assert main(["credit", path, "--tokenizer", DEMO, "-o", str(output)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 0.67 sum: 1 +0.58, answer: 1 +1.15, short: 0 +0.00" in printed
    assert "span credit against GRPO" in printed
    assert "span credit against GRPO" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ({"x": 1}, "line 2: `spans` must be a list of objects with name, reward, start and end, got {'x': 1}"),
        ([{"name": "x", "start": 0}], "line 2: `spans` must be a list of objects with name, reward, start"),
        ([{"name": "x", "reward": 1, "start": 0, "end": 4}], "line 2: `spans`: the place of 'x' must have 0 <= start"),
    ],
)
def test_what_is_no_criterion_is_named_by_its_line(spans, message, tmp_path, capsys):
    lines = [{"prompt": "a", "completion": [1, 2, 3], "spans": own} for own in ([], spans)]
    assert main(["credit", str(write(tmp_path, lines))]) == 2
    assert message in capsys.readouterr().err


def test_settings_of_another_credit_are_refused(tmp_path, capsys):
    path = str(write(tmp_path, orders()))
    assert main(["credit", path, "--tokenizer", DEMO, "--td-coef", "0"]) == 2
    assert "unexpected keyword argument 'td_coef'" in capsys.readouterr().err
    plain = [{"prompt": "a", "completion": [1], "reward": 1}]
    assert main(["credit", str(write(tmp_path, plain)), "--trace-lambda", "0.5"]) == 2
    assert "unexpected keyword argument 'trace_lambda'" in capsys.readouterr().err
