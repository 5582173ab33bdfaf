"""Shows how checks of a JSON answer become credit on its tokens, under span credit and under GRPO.

python examples/rewards_that_say_where.py
"""

from itertools import pairwise

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tempo_trl.credit import span_advantages, tempo_advantages
from tempo_trl.rewards import json_fields, json_fields_reward

TRUTH = '{"city": "Rome", "quantity": 2}'
ANSWERS = [
    '{"city": "Rome", "quantity": 2}',  # right
    '{"city": "Rome", "quantity": 5}',  # another quantity
    '{"city": "Rome", "quantity": 7}',  # another quantity
    '{"city": "Paris", "quantity": 2}',  # another city
]
G = len(ANSWERS)

judged = json_fields(ANSWERS, truth=[TRUTH] * G)  # per answer a SpanReward for each criterion
fields = [{span.name: span for span in spans if span.name in ("city", "quantity")} for spans in judged]
names = list(fields[0])  # the others are right in all answers, so that they add exactly 0

# Each character is a token here. A trainer turns the characters of a place into the tokens of its tokenizer.
rewards = torch.tensor([[row[name].reward for name in names] for row in fields])  # (4, 2)
starts = torch.tensor([[row[name].start for name in names] for row in fields])
ends = torch.tensor([[row[name].end for name in names] for row in fields])
lengths = torch.tensor([len(answer) for answer in ANSWERS])
width = int(lengths.max())

credit = span_advantages(rewards, starts, ends, lengths, width, G)  # (4, 32)
traced = span_advantages(rewards, starts, ends, lengths, width, G, trace_lambda=1.0)

sums = torch.tensor(json_fields_reward(ANSWERS, truth=[TRUTH] * G))  # what plain GRPO gets of the same checks
ids = torch.zeros(G, width, dtype=torch.long)  # GRPO does not read them
grpo = tempo_advantages(ids, lengths, sums, G, td_coef=0.0)


def pieces(row: int) -> list[tuple[str, int]]:
    """The parts of an answer that have one advantage each, and the first token of each part."""
    cuts = sorted({0, *starts[row].tolist(), *ends[row].tolist(), len(ANSWERS[row])})
    return [(ANSWERS[row][a:b], a) for a, b in pairwise(cuts)]


console = Console(width=110)
for row in range(G):
    checks = ", ".join(f"{name} {reward:.0f}" for name, reward in zip(names, rewards[row].tolist(), strict=True))
    table = Table(title=f"answer {row + 1}: {checks}", title_justify="left", box=SIMPLE)
    table.add_column("")
    for text, _ in pieces(row):
        table.add_column(text, justify="right")
    for name, advantages in (("GRPO", grpo), ("span credit", credit), ("trace_lambda 1", traced)):
        table.add_row(name, *(f"{advantages[row, at].item():+.2f}" for _, at in pieces(row)))
    console.print(table)
