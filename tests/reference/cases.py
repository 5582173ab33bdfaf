"""The runs of the reference: every method on a tiny model, with the same completions and rewards each time.

Only public names of tempo_trl, so that the same file trains at any commit. All settings that matter are written down
here.
"""

import os
import random
import re
from importlib import import_module

import torch
from datasets import Dataset
from peft import LoraConfig

from tempo_trl.methods import METHODS

from ..trainers import credit_functions as functions
from ..trainers.agents import Rooms, visited_reward
from ..trainers.agents import scripted as scripted_turns


def score(completions, completion_ids, **columns) -> list[float | None]:
    """Between 0 and 1; one completion in seven is not scored."""
    return [None if sum(ids) % 7 == 0 else sum(ids) % 5 / 4 for ids in completion_ids]


def share_of_threes(completions, completion_ids, **columns) -> list[float]:
    return [sum(i % 3 == 0 for i in ids) / max(len(ids), 1) for ids in completion_ids]


def lengths_of_steps(completions, **columns) -> list[list[float]]:
    """Characters of each step, which ends with an `A`, or with the completion."""
    return [[len(step) / 8 for step in re.findall("[^A]*A|[^A]+$", text)] for text in completions]


class KeyedRooms(Rooms):
    def _state_key(self) -> int:
        return self.room


LETTERS = [chr(code) for code in range(33, 127)]
FIXED = {"rollout": "fixed", "tree_depth": 2}
SPLITS = {
    "tree_min_segment_tokens": 2,
    "tree_entropy_threshold": 0.1,
    "tree_coverage_tokens": 6,
    "tree_delimiters": LETTERS,
}
ENTROPY = {"rollout": "entropy", **SPLITS}
BASELINE = {"method": "prefix_baseline"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4}
RESUMED = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
TRACED = {"method": "grpo_lambda", "num_iterations": 2, "trace_lambda": 0.9, "beta": 0.1, "max_steps": 4}
# A critic learns by Adam, which this epsilon keeps from blowing rounding up to a whole step.
CRITIC = {"method": "ppo", "critic_learning_rate": 1e-2, "adam_epsilon": 1e-3, "gae_lambda": 0.95}
SPANS = {"method": "span_credit", "functions": {"span_reward_funcs": functions.halves}}
AGENT = {"world": Rooms, "rewards": [visited_reward], "max_completion_length": 400}
DOORS = {"functions": {"step_reward_funcs": functions.door_rewards}}


def own(credit_func) -> dict:
    return {"method": "token_credit", "functions": {"credit_func": credit_func}}


CASES = {
    "tempo": EVALUATED | RESUMED | {"log_trees_steps": 2},
    "tempo, several updates a generation": {
        "td_coef": 0.5,
        "scale_rewards": "batch",
        "importance_sampling_level": "sequence",
        "off_policy_mask_threshold": -0.5,
        "steps_per_generation": 2,
        "num_iterations": 2,
        "max_steps": 6,
        "log_trees_steps": 1,
        "log_trees_prompts": 2,
    },
    "tempo, off-policy mask": {"td_coef": 3.0, "off_policy_mask_threshold": -0.5, "num_iterations": 2, "max_steps": 4},
    "tempo, two rewards and a KL term": {
        "rewards": [score, share_of_threes],
        "reward_weights": [1.0, 0.5],
        "beta": 0.1,
        "gradient_accumulation_steps": 2,
    },
    "tempo, truncated completions masked": {"mask_truncated_completions": True},
    "tempo, tokens of the environment": {"style": "environment"},
    "tempo, td_coef 0": {"td_coef": 0.0},
    "tempo, skip_zero_advantages": {"skip_zero_advantages": True, "num_iterations": 2, "max_steps": 4},
    "tempo with LoRA": {"lora": True, "beta": 0.1},
    "tempo with tree_forward": {"tree_forward": "on", "num_iterations": 2, "beta": 0.1, "max_steps": 4},
    "tempo on fixed trees": FIXED,
    "tempo on entropy trees": ENTROPY | EVALUATED,
    "tempo on entropy trees, reweight": ENTROPY | {"forced_tokens": "reweight"},
    "tempo on entropy trees, mask": ENTROPY | {"forced_tokens": "mask"},
    "tempo, agent": AGENT | {"log_trees_steps": 1},
    "prefix baseline": BASELINE | EVALUATED | RESUMED,
    "prefix baseline on fixed trees": BASELINE | FIXED,
    "prefix baseline on entropy trees": BASELINE | ENTROPY | RESUMED,
    "span credit": SPANS | EVALUATED | {"trace_lambda": 0.9, "log_trees_steps": 1},
    "span credit, lambda 0, scale of the batch": SPANS | {"trace_lambda": 0.0, "scale_rewards": "batch"},
    "span credit without other rewards": SPANS | {"rewards": [], "importance_sampling_level": "sequence"},
    "grpo": {"method": "grpo"} | EVALUATED,
    "grpo, several updates a generation": {"method": "grpo", "num_iterations": 2, "beta": 0.1, "max_steps": 4},
    "hepo": {"method": "hepo"},
    "grpo_lambda, trace, recent": TRACED | EVALUATED,
    "grpo_lambda, trace, both": TRACED | {"trace_style": "both"},
    "grpo_lambda, weight, recent": TRACED | {"trace_update": "weight"},
    "grpo_lambda, weight, both": TRACED | {"trace_update": "weight", "trace_style": "both"},
    "treerpo": {"method": "treerpo", "tree_depth": 2} | EVALUATED,
    "treerpo, tokens once a leaf": {
        "method": "treerpo",
        "tree_depth": 2,
        "count_shared_tokens": "per_leaf",
        "advantage_scale": "bernoulli",
    },
    "treerpo_entropy": {"method": "treerpo_entropy", **SPLITS},
    "treerpo_entropy, mask": {"method": "treerpo_entropy", **SPLITS, "forced_tokens": "mask"},
    "ppo": CRITIC | EVALUATED | RESUMED,
    "ppo, shared trunk": CRITIC | RESUMED | {"shared_trunk": True},
    "ppo, several updates a generation": CRITIC | {"beta": 0.1, "steps_per_generation": 2, "max_steps": 6},
    "ppo with LoRA": CRITIC | {"lora": True, "whiten_advantages": False, "max_steps": 4},
    "gigpo": AGENT | {"method": "gigpo"} | EVALUATED,
    "gigpo, rewards per turn": AGENT | DOORS | {"method": "gigpo", "scale_rewards": "batch", "log_trees_steps": 1},
    "gigpo, keys of states": AGENT | {"method": "gigpo", "world": KeyedRooms, "state_history": 1},
    "gigpo, tokens of the environment": {"method": "gigpo", "style": "environment"},
    "hgpo": AGENT | {"method": "hgpo"} | EVALUATED,
    "hgpo, rewards per turn": AGENT | DOORS | {"method": "hgpo", "scale_rewards": "none", "num_iterations": 2},
    "token_credit, a number per completion": own(functions.grpo) | EVALUATED,
    "token_credit, a number per token": own(functions.later_counts_more) | EVALUATED | {"advantage_floor": -0.1},
    "token_credit, a function that learns": own(functions.RunningMean) | RESUMED,
    "token_credit, steps": {
        "method": "token_credit",
        "step_delimiter": "A",
        "functions": {"credit_func": functions.spread, "step_reward_funcs": lengths_of_steps},
        "log_trees_steps": 1,
    },
}

# What a case has beside the fields of its configuration, and where it does not say.
BESIDE = {"method": "tempo", "lora": False, "style": "plain", "world": None, "rewards": [score], "functions": {}}
ADAPTERS = {"r": 4, "target_modules": "all-linear", "init_lora_weights": "gaussian"}
SETTINGS = {
    "use_cpu": True,
    "bf16": False,
    "num_generations": 4,
    "max_completion_length": 16,
    "max_steps": 3,
    "top_k": 3,
    # SGD is linear in the gradient: Adam would blow up the rounding of another CPU.
    "optim": "sgd",
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1.0,
    "gradient_checkpointing": False,
    "logging_steps": 1,
    "log_completions": True,
    "num_completions_to_print": 0,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "seed": 3,
}


def grows_trees(options: dict) -> bool:
    """Whether the method samples trees of its own: all other completions are scripted."""
    return "rollout" in options or options.get("method", "").startswith("treerpo")


def trainer_of(options: dict, model: str, folder: str):
    """The trainer of a case on this rank. What of `options` is no field of its configuration stands in `BESIDE`."""
    beside = {name: options.get(name, default) for name, default in BESIDE.items()}
    method, world = METHODS[beside["method"]], beside["world"]
    cls = scripted_turns(class_of(method.trainer)) if world else class_of(method.trainer)
    torch.manual_seed(0)  # of the adapters
    return cls(
        model,
        beside["rewards"],
        arguments(options, folder, class_of(method.config)),
        questions(8, conversational=bool(world)),
        eval_dataset=questions(5, conversational=bool(world)),
        rollout_func=None if world or grows_trees(options) else scripted(beside["style"]),
        environment_factory=world,
        peft_config=LoraConfig(**ADAPTERS) if beside["lora"] else None,
        **{name: given() if isinstance(given, type) else given for name, given in beside["functions"].items()},
    )


def class_of(path: str) -> type:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def arguments(options: dict, folder: str, config: type):
    """The configuration: two ranks have a group and a half each, whole groups where a method grows trees."""
    rows = (8 if grows_trees(options) else 12) // int(os.environ.get("WORLD_SIZE", "1"))
    parts = options.get("steps_per_generation", options.get("gradient_accumulation_steps", 1))
    batches = {"per_device_train_batch_size": rows // parts, "per_device_eval_batch_size": rows}
    fields = {name: value for name, value in options.items() if name not in BESIDE}
    return config(output_dir=folder, **(SETTINGS | batches | fields))


def questions(n: int, conversational: bool = False) -> Dataset:
    prompts = [f"What is {a} + {7 * a}?" for a in range(n)]
    if conversational:
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return Dataset.from_dict({"prompt": prompts})


def completion(prompt: str, place: int) -> list[int]:
    """Token ids of a completion: pairs of a group share a stem or all, lengths differ, some end by themselves."""
    rng = random.Random(f"{prompt} {place // 2}")
    if int(prompt.split()[2]) % 3 == 0:
        place -= place % 2
    stem = [rng.randrange(30, 40) for _ in range(rng.randrange(1, 5))]
    return [*stem, *(30 + place % (1 + t) for t in range(2 + place % 3)), *[2] * (place % 3 > 0)]


def scripted(style: str):
    """A `rollout_func` whose completions depend on the prompt and the place in its group alone."""

    def rollout(prompts, trainer):
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        first = trainer.accelerator.process_index * len(prompts)
        places = [(first + i) % size for i in range(len(prompts))]
        ids = [completion(prompt, place) for prompt, place in zip(prompts, places, strict=True)]
        output = {
            "prompt_ids": trainer.processing_class(text=prompts)["input_ids"],
            "completion_ids": ids,
            # The tiny model gives every token about -5.6: half a group is clearly too far for the off-policy mask.
            "logprobs": [[-3.0 - 2 * place] * len(row) for place, row in zip(places, ids, strict=True)],
        }
        if style == "environment":
            output["env_mask"] = [[int(t % 3 != 1) for t in range(len(row))] for row in ids]
        return output

    return rollout
