"""tempo_trl: token-level credit assignment for RL training of language models, on top of Hugging Face TRL.

`TEMPOTrainer` and `TEMPOConfig` stand in for TRL's `GRPOTrainer` and `GRPOConfig`. The arithmetic behind them lives in
`tempo_trl.credit` and needs neither TRL nor transformers.
"""

from importlib import import_module

from tempo_trl.version import __version__

# The public names and the module of each. Imported on first use: `tempo-trl --help` must not wait for torch and TRL.
_PUBLIC = {
    "GRPOLambdaConfig": "tempo_trl.methods.grpo_lambda_config",
    "GRPOLambdaTrainer": "tempo_trl.methods.grpo_lambda",
    "PPOConfig": "tempo_trl.methods.ppo_config",
    "PPOTrainer": "tempo_trl.methods.ppo",
    "TEMPOConfig": "tempo_trl.methods.tempo_config",
    "TEMPOTrainer": "tempo_trl.methods.tempo",
    "TreeRPOConfig": "tempo_trl.methods.treerpo_config",
    "TreeRPOEntropyConfig": "tempo_trl.methods.treerpo_config",
    "TreeRPOEntropyTrainer": "tempo_trl.methods.treerpo",
    "TreeRPOTrainer": "tempo_trl.methods.treerpo",
}

__all__ = [
    "GRPOLambdaConfig",
    "GRPOLambdaTrainer",
    "PPOConfig",
    "PPOTrainer",
    "TEMPOConfig",
    "TEMPOTrainer",
    "TreeRPOConfig",
    "TreeRPOEntropyConfig",
    "TreeRPOEntropyTrainer",
    "TreeRPOTrainer",
    "__version__",
]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tempo_trl' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
