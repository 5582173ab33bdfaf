"""TEMPO on grown trees against independent completions, at about equal numbers of generated tokens.

`python -m benchmarks.grown_trees [--quick]`: real generations of the demonstration's starting policy by the real
trainer, which learns nothing here (learning rate 0), seed 0. The figures are means over prompts.
"""

import argparse
import contextlib
import io
import os
import tempfile
from typing import NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

GENERATIONS, QUICK_GENERATIONS = 8, 1
PROMPTS = 32  # a generation
TREE = {"tree_depth": 4, "tree_step_tokens": 8}  # 2 ** 4 leaves of four steps
GATES = {"tree_min_segment_tokens": 4, "tree_entropy_threshold": 0.3, "tree_coverage_tokens": 20}
ROLLOUTS = {
    "iid, 8": {"rollout": "iid", "num_generations": 8},
    "fixed, 2 ** 4": {"rollout": "fixed", "num_generations": 16, **TREE},
    "entropy, up to 12": {"rollout": "entropy", "num_generations": 12, "tree_delimiters": "=", **GATES},
}


class Figures(NamedTuple):
    """Means over the generations: tokens generated a prompt, and the metrics of the same name."""

    generated_tokens: float
    td_share: float
    branch_tokens: float
    branch_nodes: float
    branch_depth: float


def measure(options: dict, generations: int) -> Figures:
    """Sample and credit so many generations with the demonstration's recipe and these options over it."""
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
    history = [entry for entry in trainer.state.log_history if "tempo/added_share" in entry]
    return _figures(history, options["num_generations"])


def _figures(history: list[dict], leaves: int) -> Figures:
    def mean(name: str) -> float:
        return sum(entry[name] for entry in history) / len(history)

    grown = "rollout/generated_tokens" in history[0]
    tokens = mean("rollout/generated_tokens") if grown else leaves * mean("completions/mean_length")
    return Figures(tokens, *(mean(f"tempo/{name}") for name in Figures._fields[1:]))


def table(measured: dict[str, Figures]) -> Table:
    """A row a rollout; the share of TD credit as a ratio to the first row's, too."""
    first = next(iter(measured.values()))
    table = Table(title="TEMPO's signal on the demonstration's starting policy", box=SIMPLE_HEAD)
    for heading in ("rollout, leaves", "tokens per prompt", "td_share", "ratio", "branch tokens", "branches", "depth"):
        table.add_column(heading, justify="left" if heading.startswith("rollout") else "right")
    for name, figures in measured.items():
        tokens, share, branch_tokens, nodes, depth = figures
        ratio = share / first.td_share
        numbers = (f"{tokens:.0f}", f"{share:.4f}", f"{ratio:.2f}", f"{branch_tokens:.4f}", f"{nodes:.2f}")
        table.add_row(name, *numbers, f"{depth:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only one generation of each")
    generations = QUICK_GENERATIONS if parser.parse_args().quick else GENERATIONS
    Console().print(table({name: measure(options, generations) for name, options in ROLLOUTS.items()}))


if __name__ == "__main__":
    main()
