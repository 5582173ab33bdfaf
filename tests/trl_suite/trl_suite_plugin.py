"""pytest plug-in: TRL's tests get TEMPOTrainer for GRPOTrainer, and what became of each test is written to a file.

    TRL_SUITE_TRAINER=tempo TRL_SUITE_RESULTS=results.json python -m pytest -p trl_suite_plugin TRL/tests/...

Imported by its own name: the clone of TRL has a package `tests` as this repository has.
"""

import json
import os
from pathlib import Path

import pytest
import trl

import tempo_trl

OURS = Path(tempo_trl.__file__).parent
results: dict[str, tuple[str, str]] = {}  # test: (passed, failed, refused or skipped; the error)


def pytest_configure(config):
    """Before the tests import the names."""
    if os.environ["TRL_SUITE_TRAINER"] == "tempo":
        trainer, arguments = tempo_trl.TEMPOTrainer, tempo_trl.TEMPOConfig
        trl.GRPOTrainer, trl.GRPOConfig = trainer, arguments


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A ValueError that tempo_trl itself raises is a refusal: what it refuses is documented."""
    raised_in = Path(str(call.excinfo.traceback[-1].path)) if call.excinfo else None
    report = (yield).get_result()
    if report.failed:
        refused = call.excinfo.errisinstance(ValueError) and OURS in raised_in.parents
        report.what = "refused" if refused else "failed"
        report.error = str(call.excinfo.value).strip()


def pytest_runtest_logreport(report):
    """Of set-up, test and teardown, the last that did not pass counts."""
    name = report.nodeid.partition("::")[2]
    if report.passed:
        results.setdefault(name, ("passed", ""))
    else:
        results[name] = getattr(report, "what", "skipped"), getattr(report, "error", "")


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # the process that has the reports of all workers
        Path(os.environ["TRL_SUITE_RESULTS"]).write_text(json.dumps(results))
