"""Credit assignment as pure tensor functions, independent of TRL, transformers and trainers."""

from tempo_trl.credit.advantages import prefix_values, td_errors, tempo_advantages
from tempo_trl.credit.prefix_tree import PrefixTree, build_prefix_tree
from tempo_trl.credit.spans import Criteria, span_advantages

__all__ = [
    "Criteria",
    "PrefixTree",
    "build_prefix_tree",
    "prefix_values",
    "span_advantages",
    "td_errors",
    "tempo_advantages",
]
