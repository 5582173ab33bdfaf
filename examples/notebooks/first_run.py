# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first run
# How to train with TEMPO, which metrics to look at first, and how to open the trees that a run records.
#
# It runs offline, on any CPU, in seconds. `jupytext --to notebook examples/notebooks/first_run.py` makes an `.ipynb`.

# %%
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd

from tempo_trl import TEMPOConfig, TEMPOTrainer
from tempo_trl.demo.task import correct_answer, policy_path, problems
from tempo_trl.report import read_trees
from tempo_trl.report.command import report

output_dir = Path(mkdtemp(), "tempo")

# %% [markdown]
# ## The task
# Sums of digits, worked out step by step. The reward is 1 for the right answer and 0 otherwise. A small policy that
# gets about half of them right comes with the package.

# %%
dataset = problems(64, seed=0)
print(dataset[0])

# %% [markdown]
# ## Train
# This is a GRPO script with two names changed: `TEMPOConfig` and `TEMPOTrainer`.

# %%
args = TEMPOConfig(
    output_dir=str(output_dir),
    num_generations=8,
    per_device_train_batch_size=32,
    max_completion_length=48,
    max_steps=3,
    learning_rate=1e-4,
    logging_steps=1,
    log_trees_steps=1,
    use_cpu=True,
    bf16=False,
    disable_tqdm=True,
    report_to="none",
    save_strategy="no",
)
trainer = TEMPOTrainer(str(policy_path()), correct_answer, args, dataset)
trainer.train()

# %% [markdown]
# ## What to look at first
# `tempo/added_share` is the share of the credit that TEMPO moved. `tempo/prefix_r2` is the share of the variance
# of rewards that shared prefixes explain: near 0, credit from trees cannot help.

# %%
columns = ["reward", "tempo/added_share", "tempo/prefix_r2", "tempo/branch_depth"]
history = pd.DataFrame([entry for entry in trainer.state.log_history if "reward" in entry])
print(history[columns].round(3).to_string())

# %% [markdown]
# ## The recorded trees
# One row per completion. `td_errors` is what TEMPO adds to GRPO's advantage, token by token.

# %%
trees = read_trees(output_dir)
row = trees.iloc[0]
tokens = {"token": row["tokens"], "TD": row["td_errors"], "advantage": row["advantages"]}
print(pd.DataFrame(tokens).round(2).to_string())

# %% [markdown]
# ## The report
# The same trees as one HTML file, which needs no network.

# %%
page = report([output_dir], pictures=False)
print(f"Open {page} in a browser.")
