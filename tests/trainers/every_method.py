"""Every method, small: its trainer with all that moves at once.

As a module it is one rank of a run of all of them in turn, MODEL FOLDER [key=value ...].
"""

import torch
from peft import LoraConfig

from tempo_trl.launch.arguments import METHODS, class_of

from .credit_functions import halves, later_counts_more
from .one_rank import finish, parsed
from .recording import Recording, config, parity, questions, share_of_threes, weights

TREES = ("treerpo", "treerpo_entropy", "tempo on fixed trees", "tempo on entropy trees", "baseline on entropy trees")
EVERY_METHOD = (*METHODS, *TREES[2:])
LETTERS = [chr(code) for code in range(33, 127)]
ENTROPY = {
    "tree_min_segment_tokens": 2,
    "tree_entropy_threshold": 0.1,
    "tree_coverage_tokens": 6,
    "tree_delimiters": LETTERS,
}
OPTIONS = {
    "treerpo": {"tree_depth": 2},
    "treerpo_entropy": ENTROPY,
    "tempo on fixed trees": {"rollout": "fixed", "tree_depth": 2},
    "tempo on entropy trees": {"rollout": "entropy", **ENTROPY},
    "baseline on entropy trees": {"rollout": "entropy", **ENTROPY},
}
FUNCTIONS = {"token_credit": {"credit_func": later_counts_more}, "span_credit": {"span_reward_funcs": halves}}


def trainer_of(method: str, model: str, folder, lora: bool = False, reward=parity, dataset=None, **overrides):
    """Trainer of a method that records each scored batch in `batches`."""
    registered = method if method in METHODS else "prefix_baseline" if "baseline" in method else "tempo"
    args = config(folder, class_of(registered, "Config"), **(OPTIONS.get(method, {}) | overrides))
    cls = type("RecordingMethod", (Recording, class_of(registered, "Trainer")), {})
    peft_config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights="gaussian") if lora else None
    torch.manual_seed(0)
    own = FUNCTIONS.get(method, {})
    return cls(model, reward, args, dataset or questions(), peft_config=peft_config, **own)


def main(model: str, folder: str, *options: str) -> None:
    overrides = parsed(options)
    seen = {}
    for method in EVERY_METHOD:
        rows = 4 if method in TREES else 2  # trees need a whole group of four on a rank, the others split it
        options = overrides | {"per_device_train_batch_size": rows, "reward": share_of_threes}
        trainer = trainer_of(method, model, f"{folder}/{method}", **options)
        trainer.train()
        history = [entry for entry in trainer.state.log_history if "reward" in entry]
        seen[method] = {"batches": trainer.batches, "weights": weights(trainer), "history": history}
    finish(trainer, folder, seen)
