"""A run small enough for a test, on scripted completions of which groups share prefixes."""

import torch

from ..trainers.rank_matrix import reward_of, scripted
from ..trainers.recording import questions, train

# SGD is linear in the gradient: Adam would blow up the rounding of sums taken in another order.
SGD = {"optim": "sgd", "learning_rate": 0.1, "max_steps": 4, "max_completion_length": 48, "num_generations": 8}
ACCUMULATED = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 16}


def run(cls, model, folder, style="plain", **options):
    keywords = {"rollout_func": scripted(style), "eval_dataset": questions(4)}
    torch.manual_seed(0)
    return train(model, folder, cls, questions(8), reward_of(style), trainer=keywords, **(SGD | options))
