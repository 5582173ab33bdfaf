"""The runs of the reference: every method on a tiny model, with the same completions and rewards each time.

Only public names of tempo_trl, so that the same file trains at any commit. All settings that matter are written down
here: a change of one is a change of the reference.
"""

import os
import random

import torch
from datasets import Dataset
from peft import LoraConfig

import tempo_trl

LETTERS = [chr(code) for code in range(33, 127)]
FIXED = {"rollout": "fixed", "tree_depth": 2}
SPLITS = {
    "tree_min_segment_tokens": 2,
    "tree_entropy_threshold": 0.1,
    "tree_coverage_tokens": 6,
    "tree_delimiters": LETTERS,
}
ENTROPY = {"rollout": "entropy", **SPLITS}
BASELINE = {"trainer": "PrefixBaseline"}
EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4}
RESUMED = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
TRACED = {"trainer": "GRPOLambda", "num_iterations": 2, "trace_lambda": 0.9, "beta": 0.1, "max_steps": 4}
# A critic learns by Adam, which this epsilon keeps from blowing rounding up to a whole step.
CRITIC = {"trainer": "PPO", "critic_learning_rate": 1e-2, "adam_epsilon": 1e-3, "gae_lambda": 0.95}

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
        "two_rewards": True,
        "reward_weights": [1.0, 0.5],
        "beta": 0.1,
        "gradient_accumulation_steps": 2,
    },
    "tempo, truncated completions masked": {"mask_truncated_completions": True},
    "tempo, tokens of the environment": {"style": "environment"},
    "tempo, td_coef 0": {"td_coef": 0.0},
    "tempo with LoRA": {"lora": True, "beta": 0.1},
    "tempo with tree_forward": {"tree_forward": "on", "num_iterations": 2, "beta": 0.1, "max_steps": 4},
    "tempo on fixed trees": FIXED,
    "tempo on entropy trees": ENTROPY | EVALUATED,
    "tempo on entropy trees, uniform": ENTROPY | {"leaf_weights": "uniform"},
    "tempo on entropy trees, reweight": ENTROPY | {"forced_tokens": "reweight"},
    "tempo on entropy trees, mask": ENTROPY | {"forced_tokens": "mask"},
    "prefix baseline": BASELINE | EVALUATED | RESUMED,
    "prefix baseline, fixed shrinkage": BASELINE | {"prefix_shrinkage": 2.0},
    "prefix baseline on entropy trees": BASELINE | ENTROPY | RESUMED,
    "grpo_lambda, trace, recent": TRACED | EVALUATED,
    "grpo_lambda, trace, both": TRACED | {"trace_style": "both"},
    "grpo_lambda, weight, recent": TRACED | {"trace_update": "weight"},
    "grpo_lambda, weight, both": TRACED | {"trace_update": "weight", "trace_style": "both"},
    "treerpo": {"trainer": "TreeRPO", "tree_depth": 2} | EVALUATED,
    "treerpo, tokens once a leaf": {
        "trainer": "TreeRPO",
        "tree_depth": 2,
        "count_shared_tokens": "per_leaf",
        "advantage_scale": "bernoulli",
    },
    "treerpo_entropy": {"trainer": "TreeRPOEntropy", **SPLITS},
    "treerpo_entropy, mask": {"trainer": "TreeRPOEntropy", **SPLITS, "forced_tokens": "mask"},
    "ppo": CRITIC | EVALUATED | RESUMED,
    "ppo, shared trunk": CRITIC | RESUMED | {"shared_trunk": True},
    "ppo, KL in the reward": CRITIC | {"kl_in": "reward", "beta": 0.1, "steps_per_generation": 2, "max_steps": 6},
    "ppo with LoRA": CRITIC | {"lora": True, "whiten_advantages": False, "value_clip_range": 0.01, "max_steps": 4},
}

# What a case has beside the fields of its configuration, and where it does not say.
BESIDE = {"trainer": "TEMPO", "lora": False, "style": "plain", "two_rewards": False}
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
    return "rollout" in options or options.get("trainer", "").startswith("TreeRPO")


def trainer_of(options: dict, model: str, folder: str):
    """The trainer of a case on this rank. What of `options` is no field of its configuration stands in `BESIDE`."""
    beside = {name: options.get(name, default) for name, default in BESIDE.items()}
    rewards = [score, share_of_threes] if beside["two_rewards"] else [score]
    torch.manual_seed(0)  # of the adapters
    return getattr(tempo_trl, f"{beside['trainer']}Trainer")(
        model,
        rewards,
        arguments(options, folder, getattr(tempo_trl, f"{beside['trainer']}Config")),
        questions(8),
        eval_dataset=questions(5),
        rollout_func=None if grows_trees(options) else scripted(beside["style"]),
        peft_config=LoraConfig(**ADAPTERS) if beside["lora"] else None,
    )


def arguments(options: dict, folder: str, config: type):
    """The configuration: two ranks have a group and a half each, whole groups where a method grows trees."""
    rows = (8 if grows_trees(options) else 12) // int(os.environ.get("WORLD_SIZE", "1"))
    parts = options.get("steps_per_generation", options.get("gradient_accumulation_steps", 1))
    batches = {"per_device_train_batch_size": rows // parts, "per_device_eval_batch_size": rows}
    fields = {name: value for name, value in options.items() if name not in BESIDE}
    return config(output_dir=folder, **(SETTINGS | batches | fields))


def questions(n: int) -> Dataset:
    return Dataset.from_dict({"prompt": [f"What is {a} + {7 * a}?" for a in range(n)]})


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


def score(completions, completion_ids, **columns) -> list[float | None]:
    """Between 0 and 1; one completion in seven is not scored."""
    return [None if sum(ids) % 7 == 0 else sum(ids) % 5 / 4 for ids in completion_ids]


def share_of_threes(completions, completion_ids, **columns) -> list[float]:
    return [sum(i % 3 == 0 for i in ids) / max(len(ids), 1) for ids in completion_ids]
