"""Shows which turns of an agent decided its outcome, and trains it with credit for each of them.

PYTHONPATH=. python examples/agent_credit.py

A tiny policy walks through nine rooms to a key and to an exit. It calls tools of an environment, as in TRL.
"""

import torch
from rich.console import Console

from benchmarks.tasks.rooms import START, TURNS, Rooms, problems, room_reward
from tempo_trl import GiGPOConfig, GiGPOTrainer
from tempo_trl.report.terminal_tree import recorded_group, turn_table

torch.set_num_threads(1)  # threads would only wait for each other in a model as tiny as this

args = GiGPOConfig(
    output_dir="tempo_demo/agent_credit",
    num_generations=8,
    max_completion_length=160,
    max_tool_calling_iterations=TURNS,
    per_device_train_batch_size=32,
    steps_per_generation=2,  # a generation has 64 completions and serves two updates
    max_steps=40,
    learning_rate=1e-3,
    lr_scheduler_type="constant",
    num_generations_eval=1,
    per_device_eval_batch_size=128,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
    logging_steps=20,
    report_to="none",
    disable_tqdm=True,
    seed=0,
)
trainer = GiGPOTrainer(
    model=str(START),
    reward_funcs=room_reward,
    args=args,
    train_dataset=problems(4096, seed=0),
    eval_dataset=problems(128, seed=0, split="test"),
    environment_factory=Rooms,
)

before = trainer.evaluate()["eval_reward"]
trainer.train()
after = trainer.evaluate()["eval_reward"]

group = recorded_group(args.output_dir, step=None, prompt=None)  # the last record's most informative group
console = Console()
console.print(f"Credit by turn: {group.prompt}")
console.print(turn_table(group))
console.print(f"Held-out tasks solved: {before:.0%} before, {after:.0%} after {args.max_steps // 2} generations.")
