"""tempo_trl: token-level credit assignment for RL training of language models, on top of Hugging Face TRL.

`TEMPOTrainer` and `TEMPOConfig` stand in for TRL's `GRPOTrainer` and `GRPOConfig`; `TokenCreditTrainer` trains with
your own credit function. The arithmetic behind them is in `tempo_trl.credit`, which needs neither TRL nor
transformers.
"""

from importlib import import_module

from tempo_trl.methods import METHODS
from tempo_trl.version import __version__, warn_of_another_trl

warn_of_another_trl()

# The public names and the module of each. Imported on first use: `tempo-trl --help` must not wait for torch and TRL.
_PUBLIC = {
    "Batch": "tempo_trl.trainers.batch",
    "Credit": "tempo_trl.trainers.batch",
    "SpanReward": "tempo_trl.rewards.span_reward",
} | {
    name: module
    for method in METHODS.values()
    for path in (method.config, method.trainer)
    for module, _, name in [path.rpartition(".")]
    if module.startswith("tempo_trl.")
}

__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tempo_trl' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
