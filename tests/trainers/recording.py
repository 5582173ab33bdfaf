"""A TEMPO run small enough for a test, with every batch recorded as it left the trainer."""

from typing import NamedTuple

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig

from tempo_trl import PrefixBaselineTrainer, TEMPOConfig, TEMPOTrainer


class Batch(NamedTuple):
    training: bool
    completion_ids: list[list[int]]
    rewards_per_func: torch.Tensor
    output: dict[str, torch.Tensor]
    prompts: list
    trees: list | None  # of a rollout that grows them


class Recording:
    """Mixin."""

    def __init__(self, *args, **kwargs):
        self.batches: list[Batch] = []
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._last = completion_ids_list, rewards_per_func
        return rewards_per_func

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        kept = {key: value.clone() for key, value in output.items() if isinstance(value, torch.Tensor)}
        prompts, trees = [row.get("prompt") for row in inputs], getattr(self.rollout_func, "trees", None)
        self.batches.append(Batch(self.model.training, *self._last, kept, prompts, trees))
        return output


class RecordingTrainer(Recording, TEMPOTrainer):
    pass


class RecordingBaseline(Recording, PrefixBaselineTrainer):
    pass


def share_of_threes(completions, completion_ids, **columns) -> list[float]:
    """A deterministic reward that depends on the tokens."""
    return [sum(i % 3 == 0 for i in ids) / max(len(ids), 1) for ids in completion_ids]


def parity(completions, completion_ids, **columns) -> list[float]:
    return [float(sum(ids) % 2) for ids in completion_ids]


def picky(completions, completion_ids, **columns) -> list[float | None]:
    """A reward function that scores some completions only."""
    return [None if len(ids) % 3 == 0 else float(ids[0] % 2) for ids in completion_ids]


def rolled_out(prompts, trainer, completion_ids: list[list[int]], **more) -> dict:
    """What a `rollout_func` returns that writes these completions."""
    prompt_ids = trainer.processing_class(text=prompts)["input_ids"]
    logprobs = [[-1.0] * len(ids) for ids in completion_ids]
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs, **more}


def questions(n: int = 8, conversational: bool = False) -> Dataset:
    prompts = [f"What is {a} + {a + 1}?" for a in range(n)]
    if conversational:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return Dataset.from_dict({"prompt": prompts})


def config(folder, cls=TEMPOConfig, **overrides):
    defaults = {
        "use_cpu": True,
        "bf16": False,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 3,
        "top_k": 3,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "seed": 3,
    }
    return cls(output_dir=str(folder), **(defaults | overrides))


def config_of(cls) -> type:
    """The configuration that a trainer class takes."""
    return getattr(cls, "_config_cls", GRPOConfig)


def train(
    model, folder, cls=RecordingTrainer, dataset=None, reward_funcs=parity, config_cls=None, resume=None, **overrides
):
    """Train a few steps, from a checkpoint if one is given, and return the trainer, whose keywords go in `trainer`."""
    keywords = overrides.pop("trainer", {})
    args = config(folder, config_cls or config_of(cls), **overrides)
    trainer = cls(model, reward_funcs, args, dataset or questions(), **keywords)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer) -> dict[str, torch.Tensor]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def moved(trainer, model: str) -> bool:
    """Whether training has changed any weight of the model in that folder."""
    start = dict(AutoModelForCausalLM.from_pretrained(model).named_parameters())
    return any(not torch.equal(value, start[name]) for name, value in weights(trainer).items())


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], rtol: float = 0, atol: float = 0) -> None:
    """Tensors by their names, bit for bit unless a tolerance is given."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], rtol=rtol, atol=atol, msg=name)


def assert_same_weights(a, b, rtol: float = 0, atol: float = 0) -> None:
    """The weights of two trainers, bit for bit unless a tolerance is given."""
    assert_same(weights(a), weights(b), rtol, atol)


def assert_refused(cls, options: dict, message: str, model: str, folder) -> None:
    """A configuration refuses these options, and so does its trainer if they are set later."""
    with pytest.raises(ValueError, match=message):
        config(folder, config_of(cls), **options)
    args = config(folder, config_of(cls))
    for name, value in options.items():
        setattr(args, name, value)
    with pytest.raises(ValueError, match=message):
        cls(model, parity, args, questions())
