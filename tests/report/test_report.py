"""`tempo-trl report` and `tempo-trl tree`: what is written, of which runs, and what is said where it is missing."""

import errno
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tempo_trl.launch.cli import main
from tempo_trl.report.collect import MAX_GROUPS
from tempo_trl.report.command import report
from tempo_trl.report.group import is_right
from tempo_trl.report.page import MAX_POINTS
from tempo_trl.runs.files import write_atomically

from .recorded import HAND_REWARDS, HAND_TREE, HAND_WORKED, hand_worked_run, hostile_run, large_run, record, rows_of

REPOSITORY = Path(__file__).parents[2]


def page_data(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def log(folder: Path, model: str = "", **series) -> Path:
    """A log as Trainer leaves it: `reward=[...]`, a value a step."""
    write_atomically(
        folder / "tempo/run.json", json.dumps({"method": folder.name.split("-")[0], "model": {"name": model}})
    )
    steps = range(len(next(iter(series.values()))))
    history = [{"step": i} | {name: values[i] for name, values in series.items()} for i in steps]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": len(steps)}))
    return folder


def test_the_report_and_its_picture_lie_in_the_run(tmp_path, capsys):
    folder = log(hand_worked_run(tmp_path / "tempo-seed0"), reward=[0.1, 0.5])
    assert main(["report", str(folder)]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert (folder / "report" / "tree.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "report" / "tree.svg").read_text(encoding="utf-8")


def test_a_picture_that_cannot_be_written_is_named_and_leaves_the_old_one(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    run, old = str(hand_worked_run(tmp_path)), tmp_path / "report" / "tree.png"
    old.parent.mkdir()
    old.write_text("old")
    monkeypatch.setattr("tempo_trl.report.command.write_atomically", lambda *_: None)  # the page's
    monkeypatch.setattr("os.fsync", fail)
    assert main(["report", run]) == 2
    assert f"No space left on device: '{old}'" in capsys.readouterr().err
    assert [path.read_text() for path in old.parent.iterdir()] == ["old"]


def test_the_page_counts_all_groups_and_says_what_moved(tmp_path):
    data = page_data(report([hand_worked_run(tmp_path / "tempo-seed0")], tmp_path / "r.html", pictures=False))
    assert "5 of the 5 groups that were read" in data["subtitle"]
    td, outcome = 3 / 6 + 1 / 2 + 2 / 3 + 2 / 3, 4 * 13 / 2  # of the hand-worked group; the flat one has neither
    assert data["headlines"][0]["share"] == pytest.approx(td / (td + outcome), rel=1e-3)
    facts = "14 of 208 tokens have a non-zero |TD| · all rewards are equal in 2 of 4 groups"
    assert data["headlines"][0]["facts"] == facts
    assert [source["label"] for source in data["sources"]] == ["tempo-seed0, training", "tempo-seed0, evaluation"]
    assert data["groups"][data["sources"][0]["opening"]]["prompt"] == "7+5-3?"


CREDITS = [({"method": "tempo", "credit": "TEMPO"}, "TEMPO", "TD")]
CREDITS += [({"method": "prefix_baseline", "credit": "prefix baseline"}, "prefix baseline", "added")]
CREDITS += [({"method": "token_credit", "credit": "my_credit"}, "my_credit", "added")]


@pytest.mark.parametrize(("metadata", "label", "added"), CREDITS)
def test_the_report_says_whose_credit_it_shows_and_what_that_adds(metadata, label, added, tmp_path):
    rows = rows_of([list(text) for text in HAND_WORKED], HAND_REWARDS)
    data = page_data(report([record(tmp_path / "run", [rows], **metadata)], tmp_path / "r.html", pictures=False))
    run = data["runs"][0]
    assert data["headlines"][0]["words"] == f" of the credit moved: {label} against GRPO"
    assert f"|{added}|" in data["headlines"][0]["facts"]
    assert (run["terms"]["label"], run["terms"]["added"]) == (label, added)


@pytest.mark.parametrize(("methods", "shown"), [(("tempo", "grpo"), ["TEMPO"]), (("grpo", "grpo"), ["GRPO"] * 2)])
def test_grpo_has_no_headline_beside_another_method(methods, shown, tmp_path):
    rows, labels = rows_of([list(text) for text in HAND_WORKED], HAND_REWARDS), {"tempo": "TEMPO", "grpo": "GRPO"}
    runs = [record(tmp_path / str(i), [rows], method=name, credit=labels[name]) for i, name in enumerate(methods)]
    headlines = page_data(report(runs, tmp_path / "r.html", pictures=False))["headlines"]
    assert [each["words"].partition(": ")[2] for each in headlines] == [f"{label} against GRPO" for label in shown]


def test_several_runs_have_a_line_a_method_with_a_band(tmp_path):
    runs = [log(tmp_path / f"grpo-seed{s}", reward=[0.1 * s, 0.5, 0.6]) for s in (0, 1, 2)]
    tempo = hand_worked_run(log(tmp_path / "tempo-seed0", reward=[0.2, 0.4, 0.7]))
    data = page_data(report([*runs, tempo], tmp_path / "all.html"))
    curve = next(curve for curve in data["curves"] if curve["title"] == "reward")
    grpo, tempo = curve["lines"]
    assert (grpo["name"], len(grpo["runs"]), grpo["y"]) == ("grpo", 3, [pytest.approx(0.1), 0.5, pytest.approx(0.6)])
    assert grpo["low"][0] < 0.0 < grpo["y"][0] < grpo["high"][0]
    assert (tempo["name"], tempo["low"]) == ("tempo", None)


def test_runs_of_different_models_are_no_runs_of_one_curve(tmp_path):
    folders = [(model, s) for model in ("qwen3-1.7b", "qwen3-4b") for s in (0, 1)]
    runs = [log(tmp_path / f"{model}/tempo-seed{s}", model, reward=[0.1, 0.2]) for model, s in folders]
    [reward] = page_data(report(runs, tmp_path / "r.html"))["curves"]
    lines = {line["name"]: len(line["runs"]) for line in reward["lines"]}
    assert lines == {"tempo (qwen3-1.7b)": 2, "tempo (qwen3-4b)": 2}


def test_every_criterion_has_a_curve_of_its_own(tmp_path):
    names = ["spans/city/mean", "spans/f/name/credit", "step_rewards/g/turn_12", "tempo/prefix_covariance_4"]
    run = log(tmp_path / "run", reward=[0.1, 0.2], **dict.fromkeys([*names, "other/spans/city/mean"], (1.0, 2.0)))
    curves = page_data(report([run], tmp_path / "r.html"))["curves"]
    assert {curve["title"] for curve in curves} == {"reward", *names}
    assert all(curve["help"] for curve in curves if curve["title"] in names)


def test_a_run_without_trees_has_its_curves_and_says_so(tmp_path):
    data = page_data(report([log(tmp_path / "grpo", reward=[0.1, 0.2])], tmp_path / "r.html"))
    assert data["sources"] == data["groups"] == []
    assert "No trees were recorded" in data["headlines"][0]["facts"]
    assert not (tmp_path / "r").exists()


def test_what_a_model_wrote_is_drawn_in_pictures_without_a_warning(tmp_path, recwarn):
    report([hostile_run(tmp_path / "run")])
    assert not [w for w in recwarn if "Glyph" in str(w.message)]
    text = (tmp_path / "run" / "report" / "tree.svg").read_text(encoding="utf-8")
    assert "<script" not in text


def test_a_reward_in_the_middle_of_its_range_is_not_right_however_float32_rounds_it():
    low, middle, high = map(float, np.float32([0.2, 0.6, 1.0]))
    assert middle > (low + high) / 2  # as rounded
    assert not is_right(middle, low, high) and is_right(0.601, low, high)


def test_a_curve_of_any_length_has_as_many_points_as_are_seen(tmp_path):
    run = log(tmp_path / "run", reward=[1 / 3 + step for step in range(1000)])
    [line] = page_data(report([run], tmp_path / "r.html", pictures=False))["curves"][0]["lines"]
    assert (len(line["x"]), line["x"][-1], line["y"][0], line["runs"]) == (MAX_POINTS, 999, 0.333333, [])


def test_a_report_whose_name_has_no_suffix_is_a_page_beside_its_pictures(tmp_path):
    assert main(["report", str(hand_worked_run(tmp_path / "run")), "-o", str(tmp_path / "mine")]) == 0
    assert {path.name for path in (tmp_path / "mine").glob("*.png")} == {"tree.png"}
    assert (tmp_path / "mine.html").is_file()


def test_groups_are_limited_and_taken_from_every_step(tmp_path):
    folder = large_run(tmp_path / "large", groups=160, size=3, tokens=20)
    data = page_data(report([folder], pictures=False))
    assert len(data["groups"]) == MAX_GROUPS
    steps = sorted({group["step"] for group in data["groups"]})
    assert (steps[0], steps[-1], len(steps)) == (0, 152, 16)
    assert "64 of the 160 groups that were read" in data["subtitle"]


def test_a_step_of_which_only_late_groups_were_recorded_is_on_the_page(tmp_path):
    """Groups of several prompts are left out of a record, and the others keep their numbers."""
    rows = [([["a"], ["b"]], [0.0, 1.0])] * 8
    for step in range(16):
        groups = [rows_of(*own, step=step, group=n) for n, own in enumerate(rows) if step != 7 or n >= 6]
        record(tmp_path, groups)
    steps = {group["step"] for group in page_data(report([tmp_path], pictures=False))["groups"]}
    assert steps == {*range(16)}


def test_what_is_no_run_is_refused(tmp_path, capsys):
    for folder in (tmp_path / "none", tmp_path):
        assert main(["report", str(folder)]) == 2
        assert f"{folder} is not the folder of a run" in capsys.readouterr().err


def test_tree_draws_the_group_that_was_asked_for(tmp_path, capsys):
    folder = str(hand_worked_run(tmp_path / "run"))
    assert main(["tree", folder, "--step", "0", "--prompt", "0"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == ["step 0, group 0", "7+5-3?   n=4  V=0.50", *HAND_TREE]
    assert main(["tree", folder]) == 0
    assert "step 4, group 0" in capsys.readouterr().out
    assert main(["tree", folder, "--mode", "eval"]) == 0


def test_tree_says_what_was_recorded(tmp_path, capsys):
    assert main(["tree", str(hand_worked_run(tmp_path / "run")), "--step", "0", "--prompt", "9"]) == 2
    assert "group 9 of step 0 was not recorded. Choose --prompt from 0 to 1" in capsys.readouterr().err


def hostile_agent(folder: Path) -> Path:
    """An agent that writes escapes into the names of its tools."""
    rows = rows_of([["a", "b"], ["a", "c"]], [0.0, 1.0])
    of_turns = {"turns": [0, 1], "calls": ["\x1b[2J\u202e", "a\nb"], "observed": ["", "\x00"]}
    return record(folder, [[row | of_turns for row in rows]])


@pytest.mark.parametrize("run", [hostile_run, hostile_agent])
def test_the_terminal_shows_no_escape_that_a_model_wrote(run, tmp_path, capsys):
    assert main(["tree", str(run(tmp_path / "run"))]) == 0
    printed = capsys.readouterr().out
    assert "␛[2J" in printed
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2028]", printed)


def test_the_example_answers_its_three_questions(tmp_path, capsys, monkeypatch):
    folder = hand_worked_run(tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["inspect_run.py", str(folder)])
    runpy.run_path(str(REPOSITORY / "examples" / "inspect_run.py"))
    printed = capsys.readouterr().out
    assert re.search(r"^8 +2\.31 +2 +0\.0$", printed, re.MULTILINE)
    assert re.search(r"^0 +4\.0$", printed, re.MULTILINE)
    assert "It moved" in printed
    assert "sign turned on 0.00%" in printed
