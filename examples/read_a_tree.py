"""Shows how one group becomes a prefix tree, values, TD errors and advantages: the group of the README, by hand.

python examples/read_a_tree.py
"""

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tempo_trl.credit import prefix_values, td_errors, tempo_advantages
from tempo_trl.report.terminal_tree import terminal_tree

PROMPT = "7+5-3?"
ANSWERS = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]  # right, slip, slip, right
REWARDS = [1.0, 0.0, 0.0, 1.0]

completion_ids = torch.tensor([[ord(character) for character in answer] for answer in ANSWERS])
completion_lengths = torch.tensor([len(answer) for answer in ANSWERS])
rewards = torch.tensor(REWARDS)
group = (completion_ids, completion_lengths, rewards, len(ANSWERS))

values = prefix_values(*group)  # (4, 14): column t is the state after t tokens
td = td_errors(values, completion_lengths)  # (4, 13)
grpo = tempo_advantages(*group, td_coef=0.0)
tempo = tempo_advantages(*group)

console = Console(width=130)
console.print(terminal_tree([list(answer) for answer in ANSWERS], REWARDS, PROMPT))
for answer, row in zip(ANSWERS[:3], range(3), strict=True):
    table = Table(title=f"{answer}   reward {REWARDS[row]:.0f}", title_justify="left", box=SIMPLE)
    table.add_column("")
    for token in answer:
        table.add_column(token, justify="right")
    for name, numbers in (("V", values[row, 1:]), ("TD", td[row]), ("GRPO", grpo[row]), ("TEMPO", tempo[row])):
        table.add_row(name, *(f"{number:+.2f}" for number in numbers.tolist()))
    console.print(table)
