"""Evaluates a checkpoint, and shows how to read its answers, one line per question.

With rows of your own it runs offline:

    python examples/evaluate_checkpoint.py runs/tempo/checkpoint-50 [ROWS]

ROWS is a folder with math.jsonl, in the Hub's columns; without it MATH comes from the Hub. The same files are
written by `tempo-trl evaluate --model runs/tempo/checkpoint-50 --tasks math --n 4 --limit 20 --output DIR`.
"""

import json
import sys
from pathlib import Path

from tempo_trl.evaluation.evaluate import evaluate

model, data_dir = sys.argv[1], next(iter(sys.argv[2:]), None)
output = Path("evaluation") / Path(model).name

for result in evaluate(model, tasks="math", n=4, limit=20, data_dir=data_dir, output=str(output)):
    low, high = result["interval"]
    print(f"{result['metric']:<10}{result['value']:.1%} ({low:.1%} to {high:.1%})")

greedy, sampled = (
    [json.loads(line) for line in (output / f"math.{name}.jsonl").read_text().splitlines()]
    for name in ("greedy", "n4")
)
print("\nQuestions that the greedy answer misses and a sample does not:")
for question, samples in zip(greedy, sampled, strict=True):
    if not question["correct"][0] and any(samples["correct"]):
        print(f"row {question['row_id']}: said {question['answers'][0] or 'nothing'}, expected {question['gold']}")
