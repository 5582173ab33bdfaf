"""Run the sections one after the other and write one report: `python -m benchmarks.gpu [SECTION ...]`."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers
import trl

from benchmarks.gpu.section import RESULT, Row
from benchmarks.provenance import commit

SECTIONS = {
    "methods": "Every method trains on the device",
    "paired": "TEMPO and GRPO by turns",
    "credit": "Credit beside an update, at 64 prompts x 8 completions",
    "tree_forward": "Compute on the tree",
    "vllm": "vLLM",
    "engines": "FSDP2, ZeRO and LoRA on one device",
    "language_model": "SmolLM2-135M: GRPO and span credit on orders",
    "long_run": "A run of the shape of Qwen3-1.7B",
}
REPOSITORY = Path(__file__).parents[2]


def run(section: str, device: str, size: str) -> tuple[list[Row], bool]:
    """Rows of a section from a process of its own, and whether it ended well."""
    command = [sys.executable, "-m", f"benchmarks.gpu.{section}", device, size]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    took = ("seconds of this section", f"{time.perf_counter() - start:.0f}")
    found = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if done.returncode == 0 and found:
        return [*map(tuple, json.loads(found[-1].removeprefix(RESULT))), took], True
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    print(done.stderr[-5000:], file=sys.stderr)
    return [(f"failed with status {done.returncode}", last), took], False


def table(section: str, rows: list[Row]) -> str:
    lines = [f"| {figure} | {measured} |".replace("\n", " ") for figure, measured in rows]
    return "\n".join([f"## {SECTIONS[section]}", "", "| figure | measured |", "|---|---|", *lines, ""])


def heading(device: str, size: str) -> str:
    """Where and on what the report was made."""
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}"
    found = commit()
    at = found["commit"][:7] + (" with changes" if found["dirty"] else "")
    note = "" if (device, size) == ("cuda", "full") else " Times mean nothing in this form."
    return f"# Report of benchmarks.gpu\n\n{where}; {versions}; commit {at}.{note}\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (all)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="tiny models: only shows that everything runs")
    parser.add_argument("--output", type=Path, default=Path("gpu_report.md"), help="the report (%(default)s)")
    asked = parser.parse_args(argv)
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"unknown section {', '.join(sorted(unknown))}; the sections are {', '.join(SECTIONS)}")
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU. `--device cpu --tiny` runs the same on a CPU.")
    size, well = "tiny" if asked.tiny else "full", True
    parts = [heading(asked.device, size)]
    for section in asked.sections or SECTIONS:
        rows, ended_well = run(section, asked.device, size)
        well &= ended_well
        parts.append(table(section, rows))
        print(parts[-1], flush=True)
        asked.output.write_text("\n".join(parts))  # after each: what is cut off is not lost
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
