"""A terminal that is not UTF-8 prints what it can: no verb and no run ends with an error of its encoding."""

import json
import os
import subprocess
import sys

import pytest

from ..report.recorded import HAND_REWARDS, HAND_WORKED, record, rows_of

pytestmark = pytest.mark.matrix

ENCODINGS = ["ascii", "cp1252"]


def printed(encoding: str, *command: str) -> str:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout.decode(encoding)


BOTH = """
import sys
from tempo_trl.launch.cli import main

folder, file = sys.argv[1:]
raise SystemExit(main(["tree", folder]) or main(["credit", file]))
"""


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_tree_and_the_credit_of_a_file_are_printed(encoding, tmp_path):
    rows = rows_of([list(text) for text in HAND_WORKED], HAND_REWARDS, prompt="价 7+5-3?")
    record(tmp_path, [rows])
    file = tmp_path / "completions.jsonl"
    rows = [{"prompt": "价 7+5-3?", "completion": [i], "reward": i} for i in range(2)]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert printed(encoding, "-c", BOTH, str(tmp_path), str(file)).count("? 7+5-3?") == 2


RUN = """
import sys
from datasets import Dataset
from tempo_trl import TEMPOConfig, TEMPOTrainer

model, folder = sys.argv[1:]
sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_steps": 1, "max_completion_length": 4}
logs = {"log_completions": True, "logging_steps": 1, "report_to": "none", "save_strategy": "no"}
args = TEMPOConfig(folder, use_cpu=True, bf16=False, **sizes, **logs)
rows = Dataset.from_dict({"prompt": ["\\u4ef7 \\u2192 7"] * 4})
TEMPOTrainer(model, lambda completions, **columns: [1.0, 0.0, 1.0, 0.0], args, rows).train()
"""


@pytest.mark.usefixtures("quick_python")
def test_a_run_of_ones_own_script_prints_its_table(tiny_model, tmp_path):
    assert "? ? 7" in printed("ascii", "-c", RUN, tiny_model, str(tmp_path))
