"""Queries the trees that a run records: which tokens decide, how early completions part, and whether TEMPO does
anything that GRPO does not.

python examples/inspect_run.py RUN_DIR        # the output folder of a TEMPO run, also while it trains
python examples/inspect_run.py                # without one: trains for ten steps first
"""

import subprocess
import sys

import numpy as np
import pandas as pd

from tempo_trl.report import read_trees

run_dir = sys.argv[1] if sys.argv[1:] else "runs/inspect"
if not sys.argv[1:]:
    fields = f"--config sums/tempo --output_dir {run_dir} --max_steps 10 --log_trees_steps 2"
    subprocess.run([sys.executable, "-m", "tempo_trl.train", *fields.split()], check=True)

trees = read_trees(run_dir)  # a pandas frame, one completion a row; its columns: tempo_trl/runs/trees.py
print(f"{len(trees)} completions, steps {trees['step'].min()} to {trees['step'].max()}")

# One row per token. V moves from values[t] to values[t + 1] at token t.
tokens = trees[["step", "group", "tokens", "td_errors", "advantages", "loss_mask", "outcome"]].explode(
    ["tokens", "td_errors", "advantages", "loss_mask"]
)
tokens = tokens[tokens["loss_mask"].astype(bool)].astype({"td_errors": float, "advantages": float})

print("\n1. Which tokens decide? Those with the largest sum of |TD|:")
branches = tokens[tokens["td_errors"] != 0]
by_token = branches.assign(mass=branches["td_errors"].abs(), up=branches["td_errors"] > 0).groupby("tokens")
table = pd.DataFrame(
    {"sum |TD|": by_token["mass"].sum(), "branches": by_token.size(), "V rose": by_token["up"].mean()}
)
print(table.sort_values("sum |TD|", ascending=False).head(10).round(2).to_string())

print("\n2. How early do completions part? Tokens before the first difference in a group, median by step:")


def first_parting(group: pd.DataFrame) -> float:
    """Tokens that all completions of a group share; NaN if they are all the same."""
    ids = group["completion_ids"].tolist()
    shortest = min(map(len, ids))
    differs = np.flatnonzero([len({row[t] for row in ids}) > 1 for t in range(shortest)])
    return differs[0] if len(differs) else np.nan if len(set(map(tuple, ids))) == 1 else shortest


partings = {key: first_parting(group) for key, group in trees.groupby(["step", "group"])}
print(pd.Series(partings).groupby(level=0).median().to_string())

print("\n3. Is TEMPO doing anything that GRPO does not?")
moved = (tokens["advantages"] - tokens["outcome"]).abs()
share = moved.sum() / (moved.sum() + tokens["outcome"].abs().sum() or 1.0)
flipped = (np.sign(tokens["advantages"]) * np.sign(tokens["outcome"]) < 0).mean()
print(
    f"It moved {share:.1%} of the credit, on {(moved > 1e-6).mean():.1%} of the tokens; "
    f"the sign turned on {flipped:.2%} of them."
)
print("Nothing moved: this is GRPO." if share == 0 else f"The whole picture: tempo-trl report {run_dir}")
