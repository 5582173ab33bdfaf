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
# # Reading credit
# How a group of completions becomes a prefix tree, how TEMPO turns its values into advantages, and how to
# see the credit of completions that any trainer sampled.
#
# It runs offline in seconds and trains nothing.

# %%
import json
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import torch
from rich.console import Console

from tempo_trl.credit import prefix_values, td_errors, tempo_advantages
from tempo_trl.demo.task import policy_path
from tempo_trl.launch import credit
from tempo_trl.report.terminal_tree import terminal_tree

# %% [markdown]
# ## One group
# Four answers to `7+5-3?`. A token is a character. The first and the last answer are right.

# %%
answers = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]
rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
completion_ids = torch.tensor([[ord(character) for character in answer] for answer in answers])
lengths = torch.tensor([len(answer) for answer in answers])
group = (completion_ids, lengths, rewards, len(answers))

Console(width=100).print(terminal_tree([list(answer) for answer in answers], rewards.tolist(), "7+5-3?"))

# %% [markdown]
# ## Values and TD errors
# The value of a state is the mean reward of the answers that pass through it. Column t is the state after t tokens.
# The TD error of a token is the value after it minus the value before it. It is 0 where all answers agree.

# %%
values = prefix_values(*group)  # (4, 14)
td = td_errors(values, lengths)  # (4, 13)
print(pd.DataFrame({"token": list(answers[1]), "V after": values[1, 1:], "TD": td[1]}).round(2).to_string())

# %% [markdown]
# ## Advantages
# GRPO gives all tokens of the second answer the same advantage. TEMPO adds the TD error, in the same unit: the slip
# `8` gets much less, and the right digit `2` a little more.

# %%
grpo = tempo_advantages(*group, td_coef=0.0)
tempo = tempo_advantages(*group)
print(pd.DataFrame({"token": list(answers[1]), "GRPO": grpo[1], "TEMPO": tempo[1]}).round(2).to_string())
assert tempo[1].argmin() == answers[1].index("8")

# %% [markdown]
# ## Completions of any trainer
# A JSON object per line: prompt, completion and reward. `tempo-trl credit FILE --tokenizer NAME` does the same in the
# terminal.

# %%
file = Path(mkdtemp(), "completions.jsonl")
rows = zip(answers, rewards.tolist(), strict=True)
file.write_text("".join(json.dumps({"prompt": "7+5-3?", "completion": a, "reward": r}) + "\n" for a, r in rows))
status = credit.main(str(file), str(policy_path()), groups=1, output=str(file.with_suffix(".html")))
assert status == 0
