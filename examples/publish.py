"""Publishes model, card, record and curves from a script of your own. It runs on any CPU, in seconds:

    hf auth login                            # once; or set HF_TOKEN
    python examples/publish.py user/name     # a private repository, which is made

`tempo-trl train` records its runs, and `tempo-trl publish OUTPUT_DIR --repo user/name` publishes them. HF_ENDPOINT
sends them to a Hub of your own.
"""

import sys
from pathlib import Path

from tempo_trl import TEMPOConfig, TEMPOTrainer
from tempo_trl.demo.task import correct_answer, policy_path, problems
from tempo_trl.hub.publish import publish
from tempo_trl.runs.record import record_run

repo = sys.argv[1]
output_dir = Path("tempo_demo/publish")

args = TEMPOConfig(
    output_dir=str(output_dir),
    per_device_train_batch_size=64,
    num_generations=8,
    max_completion_length=48,
    learning_rate=1e-4,
    max_steps=4,
    logging_steps=1,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
)
trainer = TEMPOTrainer(
    model=str(policy_path()),
    reward_funcs=correct_answer,
    args=args,
    train_dataset=problems(1000, seed=0),
)
record_run(trainer)  # tempo_demo/publish/tempo/run.json: settings, versions, seed and commit, before anything changes
trainer.train()
trainer.save_state()
trainer.save_model()
print(publish(output_dir, repo, private=True))
