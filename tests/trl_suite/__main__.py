"""Run TRL's tests of GRPOTrainer twice and compare: `python -m tests.trl_suite PATH_OF_A_CLONE [pytest options]`.

The clone is of the version that is installed. Tests whose model has no stand-in (vision, remote code) fail with both.
Exits with 1 if TEMPOTrainer fails a test that GRPOTrainer passes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import conftest  # noqa: F401  the environment of the tests, before torch
from .stand_ins import save_stand_ins
from .table import Results, lost, results_of, table

TESTS = "tests/test_grpo_trainer.py"


def run(trl: Path, trainer: str, folder: Path, options: list[str]) -> Results:
    """What becomes of each of TRL's tests with a trainer, `stock` or `tempo`."""
    report = folder / f"{trainer}.xml"
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "--show-capture=no", f"--junitxml={report}"]
    command += ["-p", "trl_suite_plugin"] if trainer == "tempo" else []
    command += ["--tb=line", "-W", "ignore", "--rootdir", str(trl), *options, str(trl / TESTS)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    if subprocess.run(command, cwd=folder, env=environment).returncode not in (0, 1):  # all passed, or some did not
        raise SystemExit(f"pytest did not run {trl / TESTS} with the {trainer} trainer: see above")
    return results_of(report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trl", type=Path, help="a clone of TRL, at the version that is installed")
    given, options = parser.parse_known_args()
    if not (given.trl / TESTS).is_file():
        parser.error(f"{given.trl} has no {TESTS}: expected a clone of https://github.com/huggingface/trl")
    with tempfile.TemporaryDirectory() as folder:
        save_stand_ins(Path(folder))
        stock, ours = (run(given.trl.resolve(), trainer, Path(folder), options) for trainer in ("stock", "tempo"))
    print(table(stock, ours))
    return int(bool(lost(stock, ours)))


if __name__ == "__main__":
    sys.exit(main())
