"""You learn which turns of an agent decided its outcome, and train it with credit for each of them.

python examples/agent_credit.py

A tiny policy walks through nine rooms to a key and to an exit. It calls tools of an environment, as in TRL.
"""

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tempo_trl import PrefixBaselineConfig, PrefixBaselineTrainer
from tempo_trl.demo.policy import policy_path
from tempo_trl.demo.rooms import TURNS, Rooms, problems, room_reward


class WatchedTrainer(PrefixBaselineTrainer):
    """Keeps the last scored batch and its credit, for the table at the end."""

    def _own_credit(self, batch, *others):
        self.last = batch, super()._own_credit(batch, *others)
        return self.last[1]


args = PrefixBaselineConfig(
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
trainer = WatchedTrainer(
    model=str(policy_path("rooms")),
    reward_funcs=room_reward,
    args=args,
    train_dataset=problems(4096, seed=0),
    eval_dataset=problems(128, seed=0, split="test"),
    environment_factory=Rooms,
)

before = trainer.evaluate()["eval_reward"]
trainer.train()
batch, credit = trainer.last
after = trainer.evaluate()["eval_reward"]

mixed = [g for g in range(0, len(batch.rewards), 8) if batch.rewards[g : g + 8].std() > 0]
group = mixed[0] if mixed else 0  # where all rewards are equal there is no credit
task = {name: batch.columns[name][group] for name in ("start", "key", "goal")}
table = Table(title=f"Credit by turn: {task}", title_justify="left", box=SIMPLE)
for heading in ("reward", *map(str, range(1, int(batch.turns[group : group + 8].max()) + 2))):
    table.add_column(heading, justify="right")
for row in range(group, group + 8):
    cells = []
    for turn in range(int(batch.turns[row].max()) + 1):
        own = batch.turns[row] == turn
        words = trainer.processing_class.decode(batch.completion_ids[row][own], skip_special_tokens=True).split()
        cells.append(f"{words[-1].strip('/')}\n{credit.advantages[row][own].mean():+.2f}")
    table.add_row(f"{batch.rewards[row]:.0f}", *cells)

console = Console(width=150)
console.print(table)
console.print(f"Held-out tasks solved: {before:.0%} before, {after:.0%} after {args.max_steps // 2} generations.")
