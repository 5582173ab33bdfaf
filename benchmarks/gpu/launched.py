"""A short run of TEMPO through its command line, for the sections that start processes of their own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu.section import Row

MODULE = ["-m", "tempo_trl.train"]


def launched(figure: str, launcher: list[str], flags: list[str], folder: Path, **environment: str) -> Row:
    """Seconds of a run, and what it says of itself; or its last words."""
    command = [sys.executable, *launcher, *MODULE, *flags]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    took = time.perf_counter() - start
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return figure, f"FAILED after {took:.0f} s: {last}"
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    steps = [entry for entry in history if "loss" in entry]
    off = [e[key] for e in steps for key in e if key.startswith("sampling/sampling_logp_difference/m")]
    difference = f", log-probabilities of sampler and trainer at most {max(off):.1e} apart" if off else ""
    return figure, f"{len(steps)} steps in {took:.0f} s{difference}"
