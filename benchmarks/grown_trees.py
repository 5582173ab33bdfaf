"""TEMPO on grown trees against independent completions, at about equal numbers of generated tokens.

`python -m benchmarks.grown_trees [--quick]`: real generations of the demonstration's starting policy by the real
trainer, which learns nothing here (learning rate 0), seed 0. The figures are means over prompts.
"""

import contextlib
import io
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from benchmarks.timing import is_quick

GENERATIONS, QUICK_GENERATIONS = 8, 1
PROMPTS = 32  # a generation
TREE = {"tree_depth": 4, "tree_step_tokens": 8}  # 2 ** 4 leaves of four steps
GATES = {"tree_min_segment_tokens": 4, "tree_entropy_threshold": 0.3, "tree_coverage_tokens": 20}
ROLLOUTS = {
    "iid, 8": {"rollout": "iid", "num_generations": 8},
    "fixed, 2 ** 4": {"rollout": "fixed", "num_generations": 16, **TREE},
    "entropy, up to 12": {"rollout": "entropy", "num_generations": 12, "tree_delimiters": "=", **GATES},
}


# By heading, the metric and how it is printed; tokens come first.
METRICS = {
    "td_share": ("tempo/added_share", ".4f"),
    "branch tokens": ("tempo/branch_tokens", ".4f"),
    "branches": ("tempo/branch_nodes", ".2f"),
    "depth": ("tempo/branch_depth", ".1f"),
}


def measure(options: dict, generations: int) -> dict[str, float]:
    """Sample and credit so many generations with the demonstration's recipe and these options over it: means."""
    from tempo_trl.launch.arguments import parse
    from tempo_trl.launch.train import build_trainer

    rows = PROMPTS * options["num_generations"]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run = {
            "output_dir": folder,
            "learning_rate": 0.0,
            "max_steps": generations,
            "per_device_train_batch_size": rows,
            "steps_per_generation": 1,
            "eval_strategy": "no",
            "eval_on_start": False,
            "save_strategy": "no",
            "log_completions": False,
        }
        flags = [text for key, value in (run | options).items() for text in (f"--{key}", str(value))]
        trainer = build_trainer(parse(["--config", "sums/tempo", *flags]))
        trainer.train()
    history = pd.DataFrame([entry for entry in trainer.state.log_history if "tempo/added_share" in entry])
    independent = options["num_generations"] * history["completions/mean_length"]
    tokens = history.get("rollout/generated_tokens", independent).mean()
    return {"tokens": tokens} | {heading: history[metric].mean() for heading, (metric, _) in METRICS.items()}


def table(measured: dict[str, dict[str, float]]) -> Table:
    """A row a rollout; the share of TD credit as a ratio to the first row's, too."""
    first = next(iter(measured.values()))
    headings = (Column(name, justify="right") for name in ("tokens per prompt", *METRICS, "td_share, ratio"))
    title = "TEMPO's signal on the demonstration's starting policy"
    table = Table("rollout, leaves", *headings, title=title, box=SIMPLE_HEAD)
    for name, own in measured.items():
        numbers = (f"{own[heading]:{form}}" for heading, (_, form) in METRICS.items())
        table.add_row(name, f"{own['tokens']:.0f}", *numbers, f"{own['td_share'] / first['td_share']:.2f}")
    return table


def main() -> None:
    generations = QUICK_GENERATIONS if is_quick(__doc__, "only one generation of each") else GENERATIONS
    Console().print(table({name: measure(options, generations) for name, options in ROLLOUTS.items()}))


if __name__ == "__main__":
    main()
