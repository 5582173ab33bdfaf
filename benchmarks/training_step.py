"""Time that TEMPO adds to TRL's steps, on an untrained Qwen3 of ten million parameters.

`python -m benchmarks.training_step OUTPUT` is one rank of a run that writes our share of its time. For several ranks
launch it with torchrun.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOTrainer

from benchmarks.learning.policy import character_tokenizer
from tempo_trl import TEMPOConfig, TEMPOTrainer
from tempo_trl.launch.train import end

COMPLETIONS, TOKENS, GROUP = 64, 256, 8
STEP = f"10M parameters, {COMPLETIONS} completions of {TOKENS} tokens, CPU"
SHARE_STEPS, PAIRS = 2, 4


class TimedTrainer(TEMPOTrainer):
    """Splits the time of scoring a batch into TRL's part and `ours`, in seconds: gather, tree, credit and metrics."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ours = 0.0

    def _assign_credit(self, *scored):  # the first thing we do after TRL has scored the batch
        self.accelerator.wait_for_everyone()  # a rank that samples for longer is waited for in any case
        self.began = time.perf_counter()
        super()._assign_credit(*scored)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.ours += time.perf_counter() - self.began
        return output


def is_tempo(step: int) -> bool:
    """TEMPO, GRPO, GRPO, TEMPO: what drifts in the course of a run weighs on both alike."""
    return step % 4 in (0, 3)


class PairedTrainer(TEMPOTrainer):
    """Steps of TEMPO and of GRPO by turns, on the same weights."""

    def _generate_and_score_completions(self, inputs):
        trainer = TEMPOTrainer if is_tempo(self.state.global_step) else GRPOTrainer
        return trainer._generate_and_score_completions(self, inputs)


class SkippingTrainer(TEMPOTrainer):
    """Steps with and without `skip_zero_advantages` by turns. `updates` are their CPU seconds after scoring."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.updates: list[float] = []

    def _generate_and_score_completions(self, inputs):
        self.args.skip_zero_advantages = is_tempo(self.state.global_step)
        output = super()._generate_and_score_completions(inputs)
        self.began = time.process_time()
        return output

    def training_step(self, *args):
        loss = super().training_step(*args)
        self.updates.append(time.process_time() - self.began)
        return loss


class StepTimes(TrainerCallback):
    """CPU seconds of each optimizer step: with one thread, what else the machine does is not in them."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds.append(time.process_time() - self.began)


def random_reward(completions, completion_ids, **columns) -> list[float]:
    return [float(sum(ids) % 2) for ids in completion_ids]


def half_flat_reward(completions, completion_ids, **columns) -> list[float]:
    """Random in every other group, and equal in the others."""
    random = random_reward(completions, completion_ids)
    return [reward if index // GROUP % 2 else 1.0 for index, reward in enumerate(random)]


def policy() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
    size = {"hidden_size": 384, "intermediate_size": 1088, "num_hidden_layers": 6, "max_position_embeddings": 512}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(character_tokenizer()), **size, **heads))


def configured(folder: str, completions: int, tokens: int, steps: int, **options) -> TEMPOConfig:
    """Of a run of so many completions per device and step, each of so many tokens, which writes nothing."""
    return TEMPOConfig(
        folder,
        per_device_train_batch_size=completions,
        num_generations=GROUP,
        max_completion_length=tokens,
        generation_kwargs={"min_new_tokens": tokens},
        max_steps=steps,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1000,
        **options,
    )


def build(
    trainer: type[TEMPOTrainer], folder: str, ranks: int, steps: int, reward=random_reward, **keywords
) -> TEMPOTrainer:
    on_cpu = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
    args = configured(folder, COMPLETIONS // ranks, TOKENS, steps, **on_cpu)
    prompts = Dataset.from_dict({"prompt": [f"{a}+{a}?" for a in range(10)]})
    return trainer(policy(), reward, args, prompts, processing_class=character_tokenizer(), **keywords)


def ratio_by_turns(seconds: list[float]) -> float:
    """Median of the steps that are TEMPO's over that of the others. The first four steps are not counted."""
    steady = list(enumerate(seconds))[4:]
    tempo, others = ([spent for step, spent in steady if is_tempo(step) == asked] for asked in (True, False))
    return median(tempo) / median(others)


def paired_ratio() -> float:
    """TEMPO's step over GRPO's in one run."""
    times = StepTimes()
    with tempfile.TemporaryDirectory() as folder:
        build(PairedTrainer, folder, ranks=1, steps=4 + 2 * PAIRS, callbacks=[times]).train()
    return ratio_by_turns(times.seconds)


def skipped_ratio() -> float:
    """An update that leaves half of the groups out over one that does not, in one run."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = build(SkippingTrainer, folder, 1, 4 + 2 * PAIRS, half_flat_reward)
        trainer.train()
    return ratio_by_turns(trainer.updates)


def share_of_a_step(ranks: int) -> float:
    """Share of the steps' time that is ours, on the first of `ranks` processes on this machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher, "-m", "benchmarks.training_step", folder]
        subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[1])
        return float((Path(folder) / "share").read_text())


def main(folder: str) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # the process group begins with the trainer's configuration
    trainer = build(TimedTrainer, folder, ranks, SHARE_STEPS)
    start = time.perf_counter()
    trainer.train()
    if trainer.accelerator.is_main_process:
        (Path(folder) / "share").write_text(str(trainer.ours / (time.perf_counter() - start)))
    end(trainer)


if __name__ == "__main__":
    main(sys.argv[1])
