"""What the machines of this project could not run, as one report: `python -m benchmarks.gpu` on a machine with a GPU.

Each section runs in a process of its own, in the order of the table in __main__.py. `--device cpu --tiny` runs all of
them in two minutes, where their times mean nothing. docs/evidence/gpu.md has what it found on an H100.
"""

import os

# One device, the first of those that a scheduler has granted: Trainer would split the batch over all it sees.
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
