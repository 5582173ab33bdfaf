"""The share of a real TEMPO step that is ours, on an untrained Qwen3 of the size of the demonstration's."""

import time

import torch
from datasets import Dataset
from transformers import Qwen3ForCausalLM

from tempo_trl import TEMPOConfig, TEMPOTrainer
from tempo_trl.demo.policy import character_tokenizer, tiny_policy_config

COMPLETIONS, TOKENS, STEPS = 64, 256, 3


class TimedTrainer(TEMPOTrainer):
    """Splits the time of scoring a batch into TRL's part and ours."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ours = 0.0

    def _outcome(self, advantages):
        self.began = time.perf_counter()  # the first thing we do after TRL has scored the batch
        return super()._outcome(advantages)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.ours += time.perf_counter() - self.began
        return output


def random_reward(completions, completion_ids, **columns) -> list[float]:
    return [float(sum(ids) % 2) for ids in completion_ids]


def time_steps(folder: str) -> tuple[float, str]:
    """Share of the steps' time that is ours, and what a step was."""
    torch.manual_seed(0)
    policy_config = tiny_policy_config()
    policy_config.max_position_embeddings = 2 * TOKENS
    model = Qwen3ForCausalLM(policy_config)
    args = TEMPOConfig(
        folder,
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=COMPLETIONS,
        num_generations=8,
        max_completion_length=TOKENS,
        generation_kwargs={"min_new_tokens": TOKENS},
        max_steps=STEPS,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1000,
    )
    prompts = Dataset.from_dict({"prompt": [f"{a}+{a}?" for a in range(10)]})
    trainer = TimedTrainer(model, random_reward, args, prompts, processing_class=character_tokenizer())
    start = time.perf_counter()
    trainer.train()
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    step = f"{parameters:.1f}M parameters, {COMPLETIONS} completions of {TOKENS} tokens, CPU"
    return trainer.ours / (time.perf_counter() - start), step
