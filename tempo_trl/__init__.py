"""tempo_trl: token-level credit assignment for RL training of language models, on top of Hugging Face TRL.

`TEMPOTrainer` and `TEMPOConfig` stand in for TRL's `GRPOTrainer` and `GRPOConfig`; `SpanCreditTrainer` trains on
rewards that say where, `TokenCreditTrainer` with your own credit function. The arithmetic behind them is in
`tempo_trl.credit`, which needs neither TRL nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tempo_trl.methods import METHODS
from tempo_trl.version import __version__, warn_of_another_trl

warn_of_another_trl()

if TYPE_CHECKING:  # editors and type checkers do not run `__getattr__`
    from tempo_trl.credit.batch import Batch, Credit
    from tempo_trl.methods.gigpo import GiGPOConfig, GiGPOTrainer
    from tempo_trl.methods.grpo import HEPOConfig, HEPOTrainer, PlainGRPOConfig, PlainGRPOTrainer
    from tempo_trl.methods.grpo_lambda import GRPOLambdaConfig, GRPOLambdaTrainer
    from tempo_trl.methods.hgpo import HGPOConfig, HGPOTrainer
    from tempo_trl.methods.ppo import PPOConfig, PPOTrainer
    from tempo_trl.methods.prefix_baseline import PrefixBaselineConfig, PrefixBaselineTrainer
    from tempo_trl.methods.span_credit import SpanCreditConfig, SpanCreditTrainer
    from tempo_trl.methods.tempo import TEMPOConfig, TEMPOTrainer
    from tempo_trl.methods.treerpo import TreeRPOConfig, TreeRPOEntropyConfig, TreeRPOEntropyTrainer, TreeRPOTrainer
    from tempo_trl.rewards.span_reward import SpanReward
    from tempo_trl.trainers.config import TokenCreditConfig
    from tempo_trl.trainers.token_credit import TokenCreditTrainer

# The public names and the module of each. Imported on first use: `tempo-trl --help` must not wait for torch and TRL.
_PUBLIC = {
    "Batch": "tempo_trl.credit.batch",
    "Credit": "tempo_trl.credit.batch",
    "SpanReward": "tempo_trl.rewards.span_reward",
} | {
    name: module
    for method in METHODS.values()
    for path in (method.config, method.trainer)
    for module, _, name in [path.rpartition(".")]
}

__all__ = [
    "Batch",
    "Credit",
    "GRPOLambdaConfig",
    "GRPOLambdaTrainer",
    "GiGPOConfig",
    "GiGPOTrainer",
    "HEPOConfig",
    "HEPOTrainer",
    "HGPOConfig",
    "HGPOTrainer",
    "PPOConfig",
    "PPOTrainer",
    "PlainGRPOConfig",
    "PlainGRPOTrainer",
    "PrefixBaselineConfig",
    "PrefixBaselineTrainer",
    "SpanCreditConfig",
    "SpanCreditTrainer",
    "SpanReward",
    "TEMPOConfig",
    "TEMPOTrainer",
    "TokenCreditConfig",
    "TokenCreditTrainer",
    "TreeRPOConfig",
    "TreeRPOEntropyConfig",
    "TreeRPOEntropyTrainer",
    "TreeRPOTrainer",
    "__version__",
]


if not TYPE_CHECKING:  # with it, type checkers would take any name

    def __getattr__(name: str):
        if name not in _PUBLIC:
            raise AttributeError(f"module 'tempo_trl' has no attribute {name!r}")
        return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
