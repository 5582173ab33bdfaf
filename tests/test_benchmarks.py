"""The benchmark for a GPU runs end to end on a CPU, and can fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import packing
from benchmarks.gpu import __main__ as sections
from benchmarks.gpu import paired as gpu
from tempo_trl.launch.arguments import METHODS
from tempo_trl.tree_forward.packed_rows import PackedRows

REPOSITORY = Path(__file__).parents[1]


def rows_of(report: str, section: str) -> dict[str, str]:
    (part,) = (part for part in report.split("## ") if part.startswith(sections.SECTIONS[section]))
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", part, re.MULTILINE))


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_every_section_of_the_report_for_a_gpu_runs_on_a_cpu_too_and_compares_both_methods(tmp_path):
    path = tmp_path / "report.md"
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--output", str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = path.read_text()
    assert report.count("## ") == len(sections.SECTIONS)
    assert re.search(r"CPU; torch .*; commit (unknown|[0-9a-f]{7})( with changes)?\. ", report)
    assert "Times mean nothing in this form." in report
    assert "ailed" not in report.replace("FAILED", "failed")
    assert [rows_of(report, "methods")[method] for method in METHODS] == ["ran"] * len(METHODS)
    shares = [rows_of(report, "credit")[f"2 x 8 x {tokens}: credit / update"] for tokens in (32, 64)]
    assert all(re.fullmatch(r"\d\.\d{3} s / \d+\.\d s = .*%", share) for share in shares)
    assert rows_of(report, "vllm")["colocated, sleep mode"].startswith("not run")
    assert rows_of(report, "engines")["the same run without an engine"].startswith("3 steps in")
    assert rows_of(report, "language_model")["orders"].startswith("not run")
    assert rows_of(report, "long_run")["steps"].startswith("6 in")
    limits = {"float32": 1e-5, "bf16": 0.05}  # a CPU that multiplies in bf16 rounds there
    on_tree = [
        (figure.split(",")[0], float(measured.split()[-2]))
        for figure, measured in rows_of(report, "tree_forward").items()
        if "largest difference" in figure
    ]
    assert len(on_tree) == 4
    assert all(apart < limits[name] for name, apart in on_tree)
    figures = rows_of(report, "paired")
    assert re.fullmatch(r"\d+\.\d{3}", figures["TEMPO's step / GRPO's, median of 2 pairs"])
    assert 0 < float(figures["our share of TEMPO's step"].removesuffix(" %")) < 100
    assert figures["peak memory of a step, TEMPO / GRPO"] == "not measured on a CPU"
    assert figures["credit of the CPU's tensors, largest difference from the CPU's"].startswith("0 ")
    assert float(figures["advantages used, largest difference from the CPU's"].split()[0]) < 1e-4


def test_a_section_that_fails_is_in_the_report_and_in_the_exit_status(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sections.SECTIONS, "no_such_module", "A section that fails")
    arguments = ["no_such_module", "--device", "cpu", "--tiny", "--output", str(tmp_path / "report.md")]
    assert sections.main(arguments) == 1
    assert "| failed with status 1 |" in (tmp_path / "report.md").read_text()


@pytest.mark.matrix
@pytest.mark.parametrize(("granted", "used"), [("3,4", "3"), ("", ""), (None, "0")])
def test_the_run_for_a_gpu_takes_one_of_the_devices_that_it_was_granted(granted, used):
    command = [sys.executable, "-c", "import os, benchmarks.gpu; print('used:', os.environ['CUDA_VISIBLE_DEVICES'])"]
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {} if granted is None else {"CUDA_VISIBLE_DEVICES": granted}
    printed = subprocess.check_output(command, text=True, env=environment, cwd=REPOSITORY)
    assert printed.rpartition("used:")[2].strip() == used


def test_both_methods_take_every_other_step_and_credit_that_did_not_train_is_found_out():
    trainer, meter = gpu.train(torch.device("cpu"), gpu.TINY, pairs=2)
    assert len(meter.seconds) == gpu.WARM_UP + 4
    assert len(trainer.batches) == len(trainer.ours_after) == len(meter.seconds) // 2
    assert all(batch.advantages.shape == (16, 16) for batch in trainer.batches)
    assert 0 < trainer.ours < sum(meter.seconds)
    assert gpu.differences(trainer.batches)[0] == 0
    bent = [batch._replace(advantages=batch.advantages + 1e-3) for batch in trainer.batches]
    with pytest.raises(AssertionError, match="not close"):
        gpu.differences(bent)


# Of the short form of each benchmark, what its tables match, and how often.
PRINTED = {
    "rollouts": {r"fixed.* │ +\d\.\d\d │": 2},
    "grown_trees": {r"fixed.* \d\.\d\d": 1},
    # 8 rows of 48 tokens: a prompt of 32, and 8 x 16 of their own with 7 prompt tokens repeated.
    "packing": {
        f"32 / 16 / 8.* {8 * 48 / (32 + 8 * 16 + 7):.2f} │": 1,  # after a space: a speed may be x2.30
        r"x\d+\.\d\d .* -\d\d % .* the tree .* (?:0\.0e\+00|\de-0[6-9])": 2,
    },
    "agent_credit": {r"│ (?:Gi|H)GPO +│ +\d\.\d{3} s │": 2, r"│ (?:Gi|H)GPO: 4 times the turns +│ +\d+\.\d │": 2},
    "agents_batch": {r"│ +\d+\.\d+ │": 6, "2 x 8 x 4 turns x 20 tokens: the batch": 1},
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.usefixtures("quick_python")
def test_the_short_form_of_every_benchmark_prints_its_table(name):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    for pattern, times in PRINTED[name].items():
        assert len(re.findall(pattern, done.stdout)) == times, done.stdout


def test_log_probabilities_that_the_tree_gets_wrong_are_found_out(monkeypatch, tmp_path):
    trainer = packing.build(tmp_path, "cpu", half=False)
    batch = packing.scored_group(packing.QUICK[0], "tree", trainer.accelerator.device)
    assert packing.largest_difference(trainer, batch) < 1e-5
    right = PackedRows.unpack
    monkeypatch.setattr(PackedRows, "unpack", lambda self, values: right(self, values) + 1e-3)
    assert packing.largest_difference(trainer, batch) == pytest.approx(1e-3, rel=0.01)
