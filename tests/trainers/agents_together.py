"""One rank of an agent's run whose turns are scripted and sampled by all ranks together, MODEL FOLDER server|zero3.

A prompt "Question 3: 2" opens two doors and ends with "done 3". Group by group and step by step, ranks have other
numbers of conversations in play, and in the second step the last rank has none.
"""

import json
import re

from datasets import Dataset
from trl.generation.vllm_generation import VLLMGeneration

from tempo_trl import TEMPOTrainer

from .agents import Rooms
from .one_rank import finish
from .recording import config

DOORS = [1, 2, 1, 0, 2, 3, 0, 0]  # of the questions, in order: two of each rank in a step


def turn_after(tokenizer, prompt_ids: list[int]) -> list[int]:
    text = tokenizer.decode(prompt_ids)
    question, doors = map(int, re.search(r"Question (\d): (\d)", text).groups())
    if text.count("<tool_response>") == doors:
        return tokenizer.encode(f"done {question}<|im_end|>")
    call = json.dumps({"name": "open", "arguments": {"door": 1}})
    return tokenizer.encode(f"<tool_call>\n{call}\n</tool_call><|im_end|>")


class Client:
    """A vLLM server's client, as far as TRL's `VLLMGeneration.generate` asks it."""

    def __init__(self, tokenizer):
        self.tokenizer, self.asked = tokenizer, []

    def generate(self, prompts, features=None, n=1, **options) -> dict:
        self.asked.append(len(prompts))
        ids = [turn_after(self.tokenizer, prompt) for prompt in prompts for _ in range(n)]
        logprobs, names = ([[[make(token)] for token in row] for row in ids] for make in (lambda _: -1.0, int))
        return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": logprobs, "logprob_token_ids": names}


class Sampled(TEMPOTrainer):
    """Turns are sampled, which sharded weights let all ranks do at once only, and replaced by those of the script."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        super()._generate_single_turn(prompt_ids, *args, **kwargs)
        return [turn_after(self._tokenizer, ids) for ids in prompt_ids], None


def served(trainer: TEMPOTrainer) -> Client:
    """Let the trainer sample from a server with a scripted client."""
    client, generation = Client(trainer._tokenizer), object.__new__(VLLMGeneration)
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "logprobs": 0}
    rest = {"structured_outputs_regex": None, "generation_kwargs": {}, "max_completion_length": 400}
    generation.__dict__.update(sampling | rest, accelerator=trainer.accelerator, mode="server", vllm_client=client)
    generation.sync_weights = lambda: None
    trainer.use_vllm, trainer.vllm_mode, trainer.vllm_generation = True, "server", generation
    trainer.vllm_importance_sampling_correction, trainer._last_loaded_step = False, -1
    return client


def main(model: str, folder: str, sampler: str) -> None:
    ends = []

    def reward(prompts, completions, **columns) -> list[float]:
        ends.extend((p[0]["content"], m[-1]["content"]) for p, m in zip(prompts, completions, strict=True))
        return [float(i % 2) for i in range(len(prompts))]

    rows = [{"prompt": [{"role": "user", "content": f"Question {i}: {n}"}]} for i, n in enumerate(DOORS)]
    args = config(
        folder,
        num_generations=2,
        per_device_train_batch_size=4,
        max_steps=2,
        max_completion_length=400,
        shuffle_dataset=False,
    )
    cls = TEMPOTrainer if sampler == "server" else Sampled
    trainer = cls(model, reward, args, Dataset.from_list(rows), environment_factory=Rooms)
    client = served(trainer) if sampler == "server" else None
    trainer.train()
    finish(trainer, folder, {"ends": ends, "asked": client and client.asked, "steps": trainer.state.global_step})
