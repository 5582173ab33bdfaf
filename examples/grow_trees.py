"""Trains TRL's own GRPOTrainer on completions that are grown as trees, with one of our rollouts.

python examples/grow_trees.py
"""

from trl import GRPOConfig, GRPOTrainer

from tempo_trl.demo.task import correct_answer, policy_path, problems
from tempo_trl.rollout import FixedTree, TreeRollout

# Two continuations per node, three levels, of twelve tokens each: eight completions per prompt.
rollout = TreeRollout(FixedTree(children=2, depth=3, step_tokens=12))

args = GRPOConfig(
    "tempo_demo/grow_trees",
    num_generations=8,
    per_device_train_batch_size=32,
    max_completion_length=48,
    max_steps=4,
    learning_rate=1e-4,
    logging_steps=1,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
)
dataset = problems(256, seed=0)
trainer = GRPOTrainer(str(policy_path()), correct_answer, args, dataset, rollout_func=rollout)
trainer.train()

tree = rollout.trees[0]
print(f"The last tree: {tree.num_tokens()} tokens for {len(tree.rows)} completions.")
for leaf in tree.rows:
    pieces = [trainer.processing_class.decode(tree.segments[segment].token_ids) for segment in tree.path(leaf)]
    print("  " + " | ".join(pieces))
