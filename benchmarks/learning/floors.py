"""The floor that GRPO-lambda puts under advantages, under those of other methods, for `credit_func` in a recipe.

    A[i, t] = max(method's A[i, t], -0.1)

GRPO with the floor is GRPO-lambda with a trace of practically zero. Since these were measured, `advantage_floor` is a
field of every configuration: it does the same.
"""

from dataclasses import replace

from tempo_trl import Batch, Credit
from tempo_trl.methods.grpo_lambda import GRPOLambdaConfig
from tempo_trl.methods.prefix_baseline import PrefixBaselineCredit
from tempo_trl.methods.tempo import tempo_credit


def with_floor(credit: Credit) -> Credit:
    """`credit` with GRPO-lambda's default floor under the advantage of each token."""
    return replace(credit, advantages=credit.advantages.clamp(min=GRPOLambdaConfig.advantage_floor))


def grpo_floor(batch: Batch) -> Credit:
    """GRPO's credit with the floor."""
    return with_floor(Credit(batch.outcome))


def tempo_floor(batch: Batch) -> Credit:
    """TEMPO's credit with the floor."""
    return with_floor(tempo_credit(batch))


class PrefixBaselineFloor(PrefixBaselineCredit):
    """The adaptive prefix baseline's credit with the floor; its covariance is learned as in that method's trainer."""

    def __call__(self, batch: Batch) -> Credit:
        return with_floor(super().__call__(batch))


# What a recipe's `credit_func` names.
prefix_baseline_floor = PrefixBaselineFloor("auto")
