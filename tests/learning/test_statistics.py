"""Interquartile means, bands and ratios, by hand; and the numbers that a result has of runs made by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compact_json import plain
from benchmarks.learning import ceiling
from benchmarks.learning.arms import SWEEP_SEEDS, Arm
from benchmarks.learning.chain import Chain
from benchmarks.learning.experiment import Experiment, Tried, at_edge, best_rate
from benchmarks.learning.figures import spread
from benchmarks.learning.results import DIGITS, Measured, Result, as_json, baseline_of, oracle_of, read_results
from benchmarks.learning.show import _table
from benchmarks.learning.statistics import interval, iqm, mean_accuracy, ratio_to
from benchmarks.learning.studies import STUDIES
from tempo_trl.runs.curves import Curve


def curve(tokens, accuracy):
    steps = np.arange(len(accuracy), dtype=float)
    return Curve(steps, np.array(tokens, dtype=float), 10 * steps, np.array(accuracy))


def straight(ends, last=100):
    """A run a seed that climbs from 0 to its end in a line."""
    return [curve([0, last], [0.0, end]) for end in ends]


def test_the_interquartile_mean_of_five_is_the_mean_of_the_middle_three():
    assert iqm([0.0, 0.1, 0.2, 0.6, 1.0]) == pytest.approx(0.3)
    assert iqm([0.2, 0.4]) == pytest.approx(0.3)
    assert iqm(np.array([[0.0, 5.0], [3.0, 5.0], [9.0, 5.0], [3.0, 5.0]])).tolist() == [3.0, 5.0]


def test_an_interval_is_a_point_where_seeds_agree_and_nothing_where_there_is_one():
    assert interval(np.full(5, 0.7)) == (pytest.approx(0.7),) * 2
    assert all(np.isnan(end) for end in interval(np.array([0.7])))


def test_intervals_cover_the_mean_of_many_seeds():
    rng = np.random.default_rng(0)
    covered = [low <= 0.5 <= high for low, high in (interval(rng.normal(0.5, 0.1, 20)) for _ in range(200))]
    assert 0.85 < np.mean(covered) < 0.99


def test_a_band_resamples_whole_curves():
    """Two seeds that cross: at each point the band is their range."""
    low, high = interval(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert low.tolist() == [0.0, 0.0]
    assert high.tolist() == [1.0, 1.0]


def test_the_mean_accuracy_is_the_area_under_the_curve_up_to_the_budget():
    one = curve([0, 100, 300], [0.4, 0.6, 1.0])
    assert mean_accuracy(one, 100) == pytest.approx(0.5)
    assert mean_accuracy(one, 200) == pytest.approx((50 + 70) / 200)  # 0.8 at 200


def test_seconds_to_an_accuracy_are_another_ratio_than_tokens():
    """The baseline takes twice as long for the same tokens."""
    ours, theirs = [curve([0, 100], [0.0, 1.0])], [curve([0, 50, 100], [0.0, 0.5, 1.0])]
    assert ratio_to(ours, theirs, 0.5, 100).value == pytest.approx(1)
    assert ratio_to(ours, theirs, 0.5, 100, "seconds").value == pytest.approx(0.5)
    late = ratio_to([curve([0, 100], [0.0, 0.4])], theirs, 0.5, 100, "seconds")
    assert (late.sign, late.value) == (">", pytest.approx(10 / 10))


def test_pairs_stay_together_where_seeds_are_resampled():
    """Seeds differ by a factor of ten and each pair by exactly two: a paired interval has no width."""
    ours = [curve([0, 100 * 10**i], [0.0, 1.0]) for i in range(2)]
    theirs = [curve([0, 200 * 10**i], [0.0, 1.0]) for i in range(2)]
    ratio = ratio_to(ours, theirs, 0.5, 2000)
    assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(0.5),) * 3
    assert str(ratio) == "0.50 [0.50, 0.50]"


def test_runs_that_never_arrive_are_counted_and_make_the_ratio_a_bound():
    never, half, all_ = straight([0.4, 0.4]), straight([0.4, 1.0]), straight([1.0, 1.0])
    late = ratio_to(half, all_, 0.5, 100)
    assert (late.sign, late.reached, late.baseline_reached, late.seeds) == (">", 1, 2, 2)
    assert late.value == pytest.approx((100 + 50) / 2 / 50)  # the one that never arrived counts as the whole budget
    assert str(late) == ">1.50 [1.00, 2.00] (1, 2 of 2)"
    early = ratio_to(all_, half, 0.5, 100)
    assert (early.sign, early.value) == ("<", pytest.approx(50 / 75))
    neither = ratio_to(never, half, 0.5, 100)
    assert (neither.sign, neither.value, str(neither)) == ("?", None, "never (0, 1 of 2)")


def test_a_level_reached_after_the_budget_counts_as_never():
    long = [curve([0, 100, 200], [0.0, 0.2, 1.0])]
    assert ratio_to(long, straight([1.0]), 0.5, 100).reached == 0
    assert ratio_to(long, straight([1.0]), 0.5, 200).reached == 1


def result(ends, label="tempo"):
    return Result(Arm(label, Chain(), label), 1e-3, tuple(range(len(ends))), tuple(straight(ends)), 100)


def test_results_of_different_seeds_are_not_compared():
    ours, theirs = result([0.6, 0.8]), replace(result([0.4, 0.6], "grpo"), seeds=(1, 0))
    with pytest.raises(ValueError, match=r"\(0, 1\) and \(1, 0\)"):
        ours.over(theirs)
    with pytest.raises(ValueError, match=r"\(0, 1\) and \(1, 0\)"):
        ours.ratios(theirs)


def test_a_result_is_over_grpo_by_the_difference_of_paired_runs():
    over = result([0.6, 0.8]).over(result([0.4, 0.6], "grpo"))
    assert (over.iqm, over.low, over.high) == (pytest.approx(0.1),) * 3  # mean heights: half of the ends
    assert over.percent(signed=True) == "+10.0 [10.0, 10.0]"
    assert Measured.of([0.5]).percent() == "50.0"


def test_the_numbers_of_a_result_are_json_with_null_for_what_one_seed_cannot_say():
    numbers = plain(as_json(result([0.6]), result([0.4], "grpo")), DIGITS)
    text = json.dumps(numbers, allow_nan=False)
    assert json.loads(text)["final"] == {"iqm": 0.6, "low": None, "high": None, "seeds": [0.6]}


def test_the_curves_of_a_result_end_with_its_budget():
    one = result([0.6])
    assert one.by_tokens()["tokens"][-1] == 100
    assert one.by_seconds()["iqm"][-1] == 0.6


def test_results_that_were_written_down_are_read_with_their_curves_and_statistics():
    arms = {arm.label: arm for arm in STUDIES["chain"].arms}
    before = [
        Result(arms[label], 1e-3, (0, 1), tuple(straight(ends)), 100)
        for label, ends in (("grpo", [0.4, 2 / 3]), ("tempo", [0.6, 0.9]))
    ]
    written = [as_json(one, before[0]) for one in before]
    after = read_results(json.loads(json.dumps(plain({"study": "chain", "results": written}, DIGITS))))
    assert [one.arm for one in after] == [one.arm for one in before]
    assert after[0].by_seconds() == before[0].by_seconds()
    assert after[1].over(after[0]).iqm == pytest.approx(before[1].over(before[0]).iqm)
    for unit in ("tokens", "seconds"):
        ratio = after[1].ratios(after[0], unit)[0.5]
        assert vars(ratio) == pytest.approx(vars(before[1].ratios(before[0], unit)[0.5]))


def test_an_arm_that_the_study_no_longer_has_is_read_as_it_was_measured():
    one = STUDIES["ceiling_chain"]
    gone = replace(one.arms[0], label="gone", method="none", changes=(("beta", 0.1),), tuned_as="", rates=())
    before = [replace(result([end]), arm=arm) for end, arm in ((0.4, one.arms[0]), (0.6, gone))]
    written = [as_json(each, before[0]) for each in before]
    after = read_results(json.loads(json.dumps(plain({"study": "ceiling_chain", "results": written}, DIGITS))))
    assert [each.arm for each in after] == [one.arms[0], gone]


def panel(**ends):
    """GRPO, an oracle and others by the ends of their straight curves."""
    return {label: result(own, label) for label, own in ends.items()}


def test_the_share_of_the_oracles_lead_is_one_for_the_oracle_and_zero_for_grpo():
    """Leads of 0.2 and 0.1 in the ends are twice those in the mean heights: their ratio is the same."""
    own = panel(grpo=[0.4, 0.6], tempo=[0.5, 0.7], oracle_td=[0.6, 0.8])
    shares = {label: one.share(own["oracle_td"], own["grpo"]) for label, one in own.items()}
    assert [shares[label].iqm for label in own] == pytest.approx([0.0, 0.5, 1.0])
    assert (shares["tempo"].low, shares["tempo"].high) == (pytest.approx(0.5),) * 2
    assert shares["tempo"].seeds == pytest.approx((0.5, 0.5))


def test_pairs_stay_together_in_the_share():
    """Leads differ by a factor of ten over seeds, and the method always has a quarter of the oracle's."""
    own = panel(grpo=[0.1, 0.1], tempo=[0.11, 0.2], oracle_td=[0.14, 0.5])
    share = own["tempo"].share(own["oracle_td"], own["grpo"])
    assert (share.iqm, share.low, share.high) == (pytest.approx(0.25),) * 3


@pytest.mark.parametrize("ends", [[0.4, 0.6], [0.3, 0.7], [0.2, 0.3]])
def test_where_the_oracle_is_level_there_is_nothing_to_share(ends):
    own = panel(grpo=[0.4, 0.6], tempo=[0.5, 0.7], oracle_td=ends)
    assert own["tempo"].share(own["oracle_td"], own["grpo"]) is None


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")  # no runs, no CPU seconds
def test_the_table_has_the_share_of_the_better_oracle_only_where_there_is_one():
    own = panel(grpo=[0.4], tempo=[0.5], oracle_td=[0.6], oracle_baseline=[0.8])
    assert oracle_of(own["tempo"], list(own.values())) is own["oracle_baseline"]
    table = _table(STUDIES["ceiling_chain"], list(own.values()), "")
    (column,) = [column for column in table.columns if column.header == "share of the oracle's lead"]
    assert list(column.cells) == ["", "25.0", "50.0", "100.0"]
    without = [own["grpo"], own["tempo"]]
    assert "share of the oracle's lead" not in [one.header for one in _table(STUDIES["chain"], without, "").columns]
    assert as_json(own["tempo"], own["grpo"], own["oracle_td"])["share_of_oracle"]["iqm"] == pytest.approx(0.5)
    assert "share_of_oracle" not in as_json(own["tempo"], own["grpo"])


CEILINGS = ("ceiling_chain", "ceiling_plan", "ceiling_wording")


def written(name: str, folder: Path, ends: dict[str, float]) -> None:
    """Numbers of a study whose arms end at these accuracies in both panels."""
    one = STUDIES[name]
    results = [replace(result([ends[arm.label]]), arm=arm) for arm in one.arms if arm.label in ends]
    origin = {"command": f"learn {name}", "seeds": [0], "commits_of_runs": [name[::-1]], "machine": "this"}
    numbers = {"study": name, **origin, "results": [as_json(each, baseline_of(each, results)) for each in results]}
    (folder / f"learning_{name}.json").write_text(json.dumps(plain(numbers, DIGITS)))


def test_the_ceiling_has_a_map_of_tasks_by_batch_sizes_for_the_oracle_and_one_for_the_best_method():
    ends = {"grpo": 0.4, "tempo": 0.5, "prefix_baseline": 0.45, "oracle_td": 0.6, "oracle_baseline": 0.5}
    arms = [arm for name in CEILINGS for arm in STUDIES[name].arms if arm.label in ends]
    oracle, method, *_ = ceiling.maps([replace(result([ends[a.label]]), arm=a) for a in arms]).axes
    assert [text.get_text() for text in oracle.texts] == ["+10.0\noracle_td"] * 6
    assert [text.get_text() for text in method.texts] == ["+5.0\ntempo"] * 6
    assert [tick.get_text() for tick in oracle.get_yticklabels()] == ["chain", "plan", "wording"]
    assert [tick.get_text() for tick in oracle.get_xticklabels()] == ["256 completions", "32 completions"]


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")  # no runs, no CPU seconds
def test_the_map_grows_with_each_task_that_has_numbers(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(ceiling, "save", lambda figure, path, caption: drawn.append((figure, caption)))
    for name in CEILINGS[:2]:
        written(name, tmp_path, {"grpo": 0.4, "tempo": 0.5, "oracle_td": 0.6})
        ceiling.draw(tmp_path)
    assert [len(figure.axes[0].texts) for figure, _ in drawn] == [2, 4]
    assert drawn[1][1].startswith("learn ceiling_chain ceiling_plan   runs at commit nalp_gn, niahc_g, seeds 0, this")


def test_a_run_of_a_sweep_has_the_length_and_the_batch_of_its_arm(tmp_path):
    plan = STUDIES["ceiling_plan"]
    runs = Experiment(tmp_path, 1, None)._runs(plan, plan.arms[-1], 1e-3, plan.sweep_seeds)
    assert [(run.seed, run.budget.generations, run.rows) for run in runs] == [(100, 20, 32), (101, 20, 32)]


def test_make_runs_every_study():
    (recipe,) = re.findall(r"benchmarks\.learning (.*)", (Path(__file__).parents[2] / "Makefile").read_text())
    assert sorted(recipe.split()) == sorted(STUDIES)


def test_an_arm_keeps_a_learning_rate_of_its_own(tmp_path):
    chosen, tried = Experiment(tmp_path, 1, None, quick=True)._learning_rates(STUDIES["carried"])
    assert {arm.label: rate for arm, rate in chosen.items()}["grpo, rate 8e-4"] == 8e-4
    assert {rate for arm, rate in chosen.items() if arm.learning_rate is None} == {1e-3}
    assert not tried


def test_the_floor_and_the_trace_of_grpo_lambda_are_each_switched_off_once():
    """Lambda 0 switches off both, so it cannot tell which of them helps."""
    settings = {arm.label: dict(arm.changes) for arm in STUDIES["lambda"].arms}
    assert 0 < settings["floor alone"]["trace_lambda"] < 1e-3 and "advantage_floor" not in settings["floor alone"]
    assert settings["trace alone, 0.99"] == {"advantage_floor": None}


def test_the_best_rate_is_that_of_the_highest_mean_and_an_edge_is_said():
    tried = [
        Tried("tempo", rate, means) for rate, means in ((1e-4, (0.5, 0.6)), (1e-3, (0.4, 0.9)), (1e-2, (0.6,) * 2))
    ]
    assert best_rate(tried, "tempo") == 1e-3
    assert not at_edge(tried, "tempo")
    assert at_edge(tried[:2], "tempo")


def test_a_seed_does_not_choose_and_report(tmp_path):
    with pytest.raises(ValueError, match="seed 100 is used to choose"):
        Experiment(tmp_path, 1, None, seeds=(0, *SWEEP_SEEDS)).study("chain")
    with pytest.raises(ValueError, match="seed 101 is used to choose"):
        Experiment(tmp_path, 1, None, seeds=(0, 101)).study("floor")


def test_labels_are_moved_apart_and_keep_their_order():
    moved = spread([0.5, 0.5, 0.1], room=0.1)
    assert moved[0] + 0.1 == pytest.approx(moved[1])
    assert moved[2] == pytest.approx(0.1 - 0.1 / 3)
    assert np.mean(moved) == pytest.approx(np.mean([0.5, 0.5, 0.1]))


@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_takes_its_rate_from_an_arm_that_is_swept(name):
    one = STUDIES[name]
    swept = [arm.tuned_as for arm in (one if one.swept else STUDIES["chain"]).arms]
    assert {arm.tuned_as for arm in one.arms} <= set(swept)
    assert len(set(swept)) == len(swept)  # no arm is tuned by another's runs
    cells = [(arm.panel, arm.label) for arm in one.arms]
    assert len(set(cells)) == len(cells)
