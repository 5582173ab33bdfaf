"""Shows which two names of a GRPO script to change, besides the import: the lines marked `<--`.

It runs offline, on any CPU, in seconds:

    python examples/drop_in.py

To train a real model, give its name and your dataset as you would to GRPOTrainer; nothing else changes.
"""

from tempo_trl import TEMPOConfig, TEMPOTrainer  # from trl import GRPOConfig, GRPOTrainer
from tempo_trl.demo.task import correct_answer, policy_path, problems

args = TEMPOConfig(  # <-- GRPOConfig(
    output_dir="tempo_demo/drop_in",
    per_device_train_batch_size=64,
    num_generations=8,
    max_completion_length=48,
    learning_rate=1e-4,
    max_steps=10,
    logging_steps=5,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
)
trainer = TEMPOTrainer(  # <-- GRPOTrainer(
    model=str(policy_path()),
    reward_funcs=correct_answer,
    args=args,
    train_dataset=problems(1000, seed=0),
)
trainer.train()
