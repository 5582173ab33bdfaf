"""The table of methods. Each method has a file here with its credit function, configuration and trainer.

The table is plain data and imports nothing, so every subpackage may read it: training, reports, model cards, help.
"""

from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple


class Method(NamedTuple):
    """
    One row of the table.

    Args:
        label: Name in tables, figures and reports.
        trainer: Dotted path of its trainer, imported on first use. Its configuration has `Config` for `Trainer`.
        colour: Colour of its curves, as `#RRGGBB` from the palette of Okabe and Ito; an unused one if empty.
        paper: Link to the paper; empty for our own method.
        defaults: Fields of the config for which the method has its own default.
    """

    label: str
    trainer: str
    colour: str = ""
    paper: str = ""
    defaults: dict = {}

    @property
    def config(self) -> str:
        """Dotted path of its configuration."""
        return self.trainer.removesuffix("Trainer") + "Config"


PAPERS = "https://huggingface.co/papers"

METHODS = {
    "tempo": Method(
        label="TEMPO",
        trainer="tempo_trl.methods.tempo.TEMPOTrainer",
        colour="#0072B2",
        paper=f"{PAPERS}/2509.18314",
    ),
    "prefix_baseline": Method(
        label="prefix baseline",
        trainer="tempo_trl.methods.prefix_baseline.PrefixBaselineTrainer",
    ),
    "span_credit": Method(
        label="span credit",
        trainer="tempo_trl.methods.span_credit.SpanCreditTrainer",
    ),
    "grpo": Method(
        label="GRPO",
        trainer="trl.GRPOTrainer",
        colour="#D55E00",
        paper=f"{PAPERS}/2402.03300",
    ),
    "hepo": Method(
        label="HEPO",
        trainer="trl.GRPOTrainer",
        colour="#CC79A7",
        paper=f"{PAPERS}/2506.01939",
        defaults={"top_entropy_quantile": 0.2},
    ),
    "grpo_lambda": Method(
        label="GRPO-lambda",
        trainer="tempo_trl.methods.grpo_lambda.GRPOLambdaTrainer",
        paper=f"{PAPERS}/2510.00194",
    ),
    "treerpo": Method(
        label="TreeRPO",
        trainer="tempo_trl.methods.treerpo.TreeRPOTrainer",
        paper=f"{PAPERS}/2506.05183",
    ),
    "treerpo_entropy": Method(
        label="TreeRPO (hierarchical)",
        trainer="tempo_trl.methods.treerpo.TreeRPOEntropyTrainer",
    ),
    "ppo": Method(
        label="PPO",
        trainer="tempo_trl.methods.ppo.PPOTrainer",
        colour="#009E73",
        paper=f"{PAPERS}/1707.06347",
    ),
    "gigpo": Method(
        label="GiGPO",
        trainer="tempo_trl.methods.gigpo.GiGPOTrainer",
        paper=f"{PAPERS}/2505.10978",
    ),
    "hgpo": Method(
        label="HGPO",
        trainer="tempo_trl.methods.hgpo.HGPOTrainer",
        paper=f"{PAPERS}/2602.22817",
    ),
    "token_credit": Method(
        label="your credit function",
        trainer="tempo_trl.trainers.token_credit.TokenCreditTrainer",
    ),
}

LEFT_OVER = ("#E69F00", "#56B4E9", "#000000", "#F0E442")  # of the palette, for methods without a colour of their own


def method_label(method: str) -> str:
    """Name of a method in tables, figures and reports. Any other label is returned unchanged."""
    return METHODS[method].label if method in METHODS else method


def method_colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour per method: its own, or an unused one."""
    left_over = cycle(LEFT_OVER)
    return {m: (METHODS[m].colour if m in METHODS else "") or next(left_over) for m in dict.fromkeys(methods)}
