"""Compute results from graded answers, `{task}.json`: a list of results, each with its interval and settings.

    {"task": "math", "hub_id": "DigitalLearningGmbH/MATH-lighteval", "split": "test", "metric": "accuracy",
     "value": 0.87, "interval": [0.861, 0.879], "n": 5000, "k": 1, "temperature": 0.0, ...}

`n` is the number of questions, `k` the number of answers to each. Values are fractions of 1, intervals 95 %. `hub_id`
is null for local rows or a part of the benchmark, because such a number is not comparable with the benchmark's.
"""

import json
from pathlib import Path

import numpy as np

from tempo_trl.evaluation.records import Record, records_of
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.results import percent
from tempo_trl.runs.statistics import interval_over_questions, numbers_by_metric


def write_results(folder: Path, task: str) -> list[dict]:
    """Compute the results of a task from its finished records, and write them to `{task}.json`."""
    finished = [record for record in records_of(folder, task) if record.is_finished]
    results = [result for record in finished for result in results_of(record)]
    write_atomically(folder / f"{task}.json", json.dumps(results, indent=2))
    return results


def results_of(record: Record) -> list[dict]:
    """Results of one finished record: accuracy of greedy answers, or avg@n, pass@k and maj@n."""
    rows = record.rows()
    correct = np.array([row["correct"] for row in rows], float)  # None is NaN
    measured = numbers_by_metric(record.decoding, correct, [row["answers"] for row in rows])
    return [
        {
            "task": record.task,
            "metric": metric,
            "value": float(values.mean()),
            "interval": list(interval_over_questions(values)),
            "n": len(rows),
            "k": correct.shape[1],
            "ungradable": int(np.isnan(correct).any(axis=1).sum()),
            **record.read_state(),
        }
        for metric, values in measured.items()
    ]


def table(results: list[dict]) -> str:
    """One line per result: `math  accuracy  87.0 % (86.1 to 87.9)  5,000 questions`."""
    lines = []
    for result in results:
        number = percent(result["value"], result["interval"])
        lines.append(f"{result['task']:<16}{result['metric']:<10}{number:>24}{result['n']:>8,} questions")
    return "\n".join(lines)
