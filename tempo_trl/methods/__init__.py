"""The table of methods. Each method has a file here with its credit function, configuration and trainer.

The table is plain data and imports nothing, so every subpackage may read it: training, reports, model cards, help.
"""

from typing import NamedTuple


class Method(NamedTuple):
    """
    One row of the table.

    Args:
        label: Name in tables, figures and reports.
        trainer: Dotted path of its trainer, imported on first use. Its configuration has `Config` for `Trainer`.
        paper: Link to the paper; empty for our own method.
    """

    label: str
    trainer: str
    paper: str = ""

    @property
    def config(self) -> str:
        """Dotted path of its configuration."""
        return self.trainer.removesuffix("Trainer") + "Config"


PAPERS = "https://huggingface.co/papers"

METHODS = {
    "tempo": Method("TEMPO", "tempo_trl.methods.tempo.TEMPOTrainer", f"{PAPERS}/2509.18314"),
    "prefix_baseline": Method("prefix baseline", "tempo_trl.methods.prefix_baseline.PrefixBaselineTrainer"),
    "span_credit": Method("span credit", "tempo_trl.methods.span_credit.SpanCreditTrainer"),
    "grpo": Method("GRPO", "tempo_trl.methods.grpo.PlainGRPOTrainer", f"{PAPERS}/2402.03300"),
    "hepo": Method("HEPO", "tempo_trl.methods.grpo.HEPOTrainer", f"{PAPERS}/2506.01939"),
    "grpo_lambda": Method("GRPO-lambda", "tempo_trl.methods.grpo_lambda.GRPOLambdaTrainer", f"{PAPERS}/2510.00194"),
    "treerpo": Method("TreeRPO", "tempo_trl.methods.treerpo.TreeRPOTrainer", f"{PAPERS}/2506.05183"),
    "treerpo_entropy": Method("TreeRPO (hierarchical)", "tempo_trl.methods.treerpo.TreeRPOEntropyTrainer"),
    "ppo": Method("PPO", "tempo_trl.methods.ppo.PPOTrainer", f"{PAPERS}/1707.06347"),
    "gigpo": Method("GiGPO", "tempo_trl.methods.gigpo.GiGPOTrainer", f"{PAPERS}/2505.10978"),
    "hgpo": Method("HGPO", "tempo_trl.methods.hgpo.HGPOTrainer", f"{PAPERS}/2602.22817"),
    "token_credit": Method("your credit function", "tempo_trl.trainers.token_credit.TokenCreditTrainer"),
}


def method_label(method: str) -> str:
    """Name of a method in tables, figures and reports, before what stands in brackets. Others are left unchanged."""
    name, *more = method.split(" (", 1)
    return " (".join([METHODS[name].label, *more]) if name in METHODS else method
