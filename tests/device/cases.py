"""What trains on the pretend GPU, apart from it: to import it changes what torch knows of devices."""

from ..trainers.every_method import EVERY_METHOD

TWICE = {"per_device_train_batch_size": 16, "max_completion_length": 16}
ON_TREE = {"tree_forward": "on"}
CASES = {method: (method, {}) for method in EVERY_METHOD} | {
    "evaluation": ("tempo", {"num_generations_eval": 2}),
    "tempo, tree_forward on": ("tempo", ON_TREE),
    "tempo, tree_forward auto": ("tempo", {"tree_forward": "auto"}),
    "ppo, tree_forward on": ("ppo", ON_TREE),
    "tempo, bf16": ("tempo", {"bf16": True}),
}
# What ranks do differently: whole groups, a loss of its own, a critic, criteria, trees, evaluation.
OF_RANKS = {name: CASES[name] for name in ("tempo", "grpo_lambda", "ppo", "span_credit", "treerpo", "evaluation")}
GROWING = ("tempo", "prefix_baseline", "span_credit", "grpo_lambda", "ppo", "token_credit", "tempo, tree_forward on")
LARGER = {f"{name}, twice": (CASES[name][0], CASES[name][1] | TWICE) for name in GROWING}
