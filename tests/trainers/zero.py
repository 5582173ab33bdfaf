"""One rank of a ZeRO or DDP run, MODEL FOLDER full|lora [CHECKPOINT]. Started by test_zero.py.

Four steps on scripted completions, with a reference model, evaluation and a checkpoint at step 2. Writes the rank's
batches, and the consolidated model to FOLDER.
"""

from peft import LoraConfig

from .one_rank import finish
from .rank_matrix import reward_of, scripted
from .recording import RecordingTrainer, config, questions


def main(model: str, folder: str, weights: str, checkpoint: str | None = None) -> None:
    args = config(
        folder,
        max_steps=4,
        max_completion_length=48,
        per_device_train_batch_size=12,
        num_generations=8,  # a group lies across both ranks
        beta=0.1,
        optim="sgd",  # linear in the gradient: see rank_matrix.py
        learning_rate=0.1,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=6,
        num_generations_eval=3,
        save_strategy="steps",
        save_steps=2,
    )
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights="gaussian")
    trainer = RecordingTrainer(
        model,
        reward_of("plain"),
        args,
        questions(8),
        eval_dataset=questions(5),
        rollout_func=scripted("plain"),
        peft_config=lora if weights == "lora" else None,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(folder)
    state = {
        "advantages": [batch.output["advantages"] for batch in trainer.batches],
        "engine": str(trainer.accelerator.distributed_type),
        "resident": sum(p.numel() for p in trainer.accelerator.unwrap_model(trainer.model).parameters()),
        "evaluated": [entry["eval_reward"] for entry in trainer.state.log_history if "eval_reward" in entry],
    }
    finish(trainer, folder, state)
