"""Run TRL's tests of GRPOTrainer twice and compare: `python -m tests.trl_suite PATH_OF_A_CLONE [pytest options]`.

The clone is of the version that is installed. Tests whose model has no stand-in (vision, remote code) fail with both.
Exits with 1 if TEMPOTrainer fails a test that GRPOTrainer passes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import conftest  # noqa: F401  the environment of the tests, before torch
from .stand_ins import save_stand_ins
from .table import Results, regressions, table

TESTS = "tests/test_grpo_trainer.py"


def run(trl: Path, trainer: str, folder: Path, options: list[str]) -> Results:
    """What becomes of each of TRL's tests with a trainer, `stock` or `tempo`."""
    results = folder / f"{trainer}.json"
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "TRL_SUITE_TRAINER": trainer,
        "TRL_SUITE_RESULTS": str(results),
    }
    command = [sys.executable, "-m", "pytest", "-p", "trl_suite_plugin", "-n", "2", "-q", "--show-capture=no"]
    command += ["--tb=line", "-W", "ignore", "--rootdir", str(trl), *options, str(trl / TESTS)]
    if subprocess.run(command, cwd=folder, env=environment).returncode not in (0, 1):  # all passed, or some did not
        raise SystemExit(f"pytest did not run {trl / TESTS} with the {trainer} trainer: see above")
    return json.loads(results.read_text())


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
    return int(regressions(stock, ours) > 0)


if __name__ == "__main__":
    sys.exit(main())
