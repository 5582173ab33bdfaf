"""Fine-tune the language model on a few examples, as a user would before any reinforcement learning.

    python -m benchmarks.language_model.starts orders 32 1 4e-5 FOLDER    # 32 examples, once, at 4e-5

Eight examples a step, with a constant rate and the loss on the answers alone. A folder that has a policy is left as it
is.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.language_model.arms import Start
from benchmarks.tasks import answered, directory, prompts_of
from tempo_trl.demo.language_model import language_model

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = 8  # of a step


def examples_of(task: str, count: int) -> "Dataset":
    """Right answers to prompts of a task, as TRL's SFTTrainer reads them."""
    if task == "orders":  # the package's
        return answered(prompts_of("orders", "train").shuffle(seed=0).select(range(count)), "truth")
    return import_module(f"benchmarks.tasks.{task}").examples(count)


def fine_tune(task: str, start: Start, folder: Path) -> None:
    """Save the policy that fine-tuning makes of the model, if none is there."""
    if (folder / "config.json").exists():
        return
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    examples, path = examples_of(task, start.examples), language_model().path
    tokenizer = directory.tokenizer(path) if task == "directory" else AutoTokenizer.from_pretrained(path)
    with tempfile.TemporaryDirectory() as output_dir:
        args = SFTConfig(
            output_dir,
            max_steps=start.epochs * (start.examples // ROWS),
            per_device_train_batch_size=ROWS,
            learning_rate=start.learning_rate,
            lr_scheduler_type="constant",
            model_init_kwargs={"dtype": "float32"},
            bf16=False,
            gradient_checkpointing=False,
            assistant_only_loss="messages" in examples.column_names,  # of a dialogue, only what the policy says
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            seed=0,
        )
        trainer = SFTTrainer(path, args, train_dataset=examples, processing_class=tokenizer)
        trainer.train()
    trainer.save_model(str(folder))


if __name__ == "__main__":
    task, examples, epochs, rate, folder = sys.argv[1:]
    fine_tune(task, Start(int(examples), float(rate), int(epochs)), Path(folder))
