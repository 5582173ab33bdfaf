"""pytest plug-in: TRL's tests get TEMPOTrainer for GRPOTrainer, `python -m pytest -p trl_suite_plugin TRL/tests/...`.

Imported by its own name: the clone of TRL has a package `tests` as this repository has.
"""

import trl

import tempo_trl


def pytest_configure(config):
    """Before the tests import the names."""
    trl.GRPOTrainer, trl.GRPOConfig = tempo_trl.TEMPOTrainer, tempo_trl.TEMPOConfig
