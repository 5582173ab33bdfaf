"""One rank of a run, MODEL FOLDER off|on [on_policy]. Started by test_tree_ranks.py.

Four steps of two micro-batches on scripted completions, with checkpointed layers and evaluation; and with a reference
model and two iterations, unless it is on policy: then the first pass that is measured is that of the loss. Writes what
the rank logged, and the consolidated model to FOLDER.
"""

from tempo_trl import PlainGRPOConfig, PlainGRPOTrainer

from ..trainers.one_rank import finish
from ..trainers.rank_matrix import reward_of, scripted
from ..trainers.recording import config, questions


def main(model: str, folder: str, tree_forward: str, policy: str = "off_policy") -> None:
    args = config(
        folder,
        PlainGRPOConfig,
        tree_forward=tree_forward,
        max_steps=4,
        max_completion_length=48,
        per_device_train_batch_size=12,
        gradient_accumulation_steps=2,
        num_generations=16,  # the 24 rows of a rank are a group and a half
        num_iterations=1 if policy == "on_policy" else 2,
        beta=0.0 if policy == "on_policy" else 0.1,
        gradient_checkpointing=True,
        optim="sgd",  # linear in the gradient: see rank_matrix.py
        learning_rate=0.1,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=6,
        num_generations_eval=3,
    )
    keywords = {"eval_dataset": questions(5), "rollout_func": scripted("plain")}
    trainer = PlainGRPOTrainer(model, reward_of("plain"), args, questions(8), **keywords)
    trainer.train()
    trainer.save_model(folder)
    finish(trainer, folder, {"state": trainer.tree_pass.state.name, "history": trainer.state.log_history})
