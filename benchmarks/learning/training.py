"""Trains one run in this process: `python -m benchmarks.learning.training RECIPE`, where `Run.prepare` wrote it.

The trainer is that of `tempo_trl.train`, which this calls. What is added is a clock of generated tokens: it asks for
evaluations at equal distances and ends the run with its budget, so that methods that sample fewer tokens a generation
have more generations. It reads TRL's log, so a run that resumes from a checkpoint keeps its time.
"""

import json
import resource
import sys
from pathlib import Path

from transformers import TrainerCallback

from benchmarks.learning.results import sampled_tokens
from benchmarks.learning.runs import DONE, UPDATES
from tempo_trl.launch import train
from tempo_trl.launch.arguments import METHODS, class_of

# Trainers import on first use: what a worker forks from has them all.
TRAINERS = [class_of(method, "Trainer") for method in METHODS]


class TokenClock(TrainerCallback):
    """Evaluates `evaluations` times on the way to `tokens` generated ones, the last time there, and ends the run."""

    def __init__(self, tokens: int, evaluations: int, rows: int, group: int):
        self.tokens, self.interval = tokens, tokens / evaluations
        self.rows, self.group = rows, group

    def on_log(self, args, state, control, **kwargs):
        """TRL logs before it looks whether to evaluate: this decides after the last update of a generation."""
        if state.global_step % UPDATES or "eval_reward" in state.log_history[-1]:
            return
        spent = sampled_tokens(state.log_history, self.rows, self.group)
        now, before = (sum(n for step, n in spent.items() if step <= state.global_step - ago) for ago in (0, UPDATES))
        control.should_training_stop = now >= self.tokens
        crossed = now // self.interval > before // self.interval
        control.should_evaluate = control.should_evaluate or crossed or control.should_training_stop


def train_run(recipe: str) -> None:
    """Train what `recipe` says, going on from its last checkpoint, and note that it is finished.

    Raises:
        RuntimeError: it cannot be trained, or the run ended before its tokens were spent.
    """
    folder = Path(recipe).parent
    budget = json.loads((folder / "budget.json").read_text())
    argv = ["--config", recipe, "--resume_from_checkpoint", "last"]
    if train.main(argv, [TokenClock(**budget)]):
        raise RuntimeError(f"{recipe} cannot be trained.")
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    spent = sum(sampled_tokens(history, budget["rows"], budget["group"]).values())
    if spent < budget["tokens"]:
        raise RuntimeError(
            f"{folder} ended after {spent:,.0f} of {budget['tokens']:,} tokens. Raise `safety` in runs.py."
        )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    done = {"generated_tokens": spent, "cpu_seconds_of_last_process": usage.ru_utime + usage.ru_stime}
    (folder / DONE).write_text(json.dumps(done))


if __name__ == "__main__":
    train_run(sys.argv[1])
