"""GRPO and HEPO: TRL's own advantages in the loop of the other methods, to be compared with them."""

from dataclasses import dataclass

from tempo_trl.config_help import with_help
from tempo_trl.credit.batch import Credit
from tempo_trl.credit.prefix_covariance import PrefixCovariance
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.token_credit import TokenCreditTrainer


@with_help
@dataclass
class PlainGRPOConfig(TokenCreditConfig):
    """
    Configuration class for the [`PlainGRPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    and those of [`TokenCreditConfig`].
    """


class PlainGRPOTrainer(TokenCreditTrainer):
    """
    Advantages and loss of [`~trl.GRPOTrainer`], bit for bit, with what a run of the other methods has beside credit:
    checks before it trains, exact resuming, recorded trees and `tempo/*` metrics, `tree_forward` and
    `skip_zero_advantages`.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`PlainGRPOConfig`].
    """

    _tag_names = ["trl", "grpo"]
    _name = "GRPO"
    _config_cls = PlainGRPOConfig
    method_name = "grpo"
    reads_trees = True  # as far as TRL's own trainer does

    def _prepare_credit(self):
        self.learned = PrefixCovariance()  # for `tempo/prefix_r2` in the log

    def credit(self, batch):
        return Credit(batch.advantages, statistics=batch.pairs)


@with_help
@dataclass
class HEPOConfig(PlainGRPOConfig):
    """
    Configuration class for the [`HEPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    those of [`TokenCreditConfig`], and another default of one.

    Args:
        top_entropy_quantile (`float`, *optional*, defaults to `0.2`):
            Share of the tokens that train, those with the highest entropy.
    """

    top_entropy_quantile: float = 0.2


class HEPOTrainer(PlainGRPOTrainer):
    """
    Trainer for the method of "Beyond the 80/20 Rule" (https://huggingface.co/papers/2506.01939): [`~trl.GRPOTrainer`]
    that trains only the fifth of the tokens with the highest entropy, by `top_entropy_quantile`.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is an [`HEPOConfig`].
    """

    _tag_names = ["trl", "hepo"]
    _name = "HEPO"
    _paper = arxiv_paper(
        "2506.01939",
        "wang2025beyond",
        "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
        "Shenzhi Wang and Le Yu and Chang Gao and Chujie Zheng and Shixuan Liu and others",
    )

    _config_cls = HEPOConfig
    method_name = "hepo"
