"""Config and trainer shared by TEMPO and the prefix baseline: completions sampled independently or grown as trees."""

import warnings
from dataclasses import dataclass, fields, replace

from tempo_trl.config_help import with_help
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_choice
from tempo_trl.credit.grown_tree import branches
from tempo_trl.credit.prefix_covariance import PrefixCovariance
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers import checks
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.token_credit import TokenCreditTrainer

ROLLOUTS = ("iid", "fixed", "entropy")


@with_help
@dataclass
class PrefixTreeConfig(FixedTreeFields, EntropyTreeFields, TokenCreditConfig):
    """
    Configuration of a method that computes credit from prefix trees: every field of [`~trl.GRPOConfig`], with its
    meaning and default, except for those below.

    Args:
        epsilon_high (`float`, *optional*, defaults to `0.28`):
            Upper clipping bound of the importance ratio. "Policy clipping parameter: 0.28, 0.2" (table 2 of
            https://huggingface.co/papers/2509.18314); TRL's default is the value of `epsilon`, 0.2.
        rollout (`str`, *optional*, defaults to `"iid"`):
            How the completions of a training prompt are sampled: `"iid"` independently, as TRL does, or grown as a
            tree that splits at `"fixed"` lengths or by `"entropy"`
            ([`~tempo_trl.rollout.config_fields.FixedTreeFields`],
            [`~tempo_trl.rollout.config_fields.EntropyTreeFields`]).
    """

    epsilon_high: float | None = 0.28
    rollout: str = "iid"

    def check(self) -> None:
        """Validate the rollout settings."""
        super().check()
        check_choice("rollout", self.rollout, ROLLOUTS)
        if self.rollout == "fixed":
            self.check_fixed_tree()
        if self.rollout == "entropy":
            self.check_entropy_tree()
        for kind, of_kind in (("fixed", FixedTreeFields), ("entropy", EntropyTreeFields)):
            is_set = [field.name for field in fields(of_kind) if getattr(self, field.name) != field.default]
            if is_set and self.rollout != kind:
                names = ", ".join(is_set)
                warnings.warn(f"rollout={self.rollout!r} does not read {names}: rollout={kind!r} does.", stacklevel=2)


class PrefixTreeTrainer(TokenCreditTrainer):
    """A trainer with a [`PrefixTreeConfig`]. It can grow trees, and warns if the first batch has no branches."""

    _config_cls = PrefixTreeConfig
    reads_trees = True

    def _prepare_credit(self):
        self.learned = PrefixCovariance()

    def _tree_rollout(self, args):
        if args.rollout == "iid":
            return None
        return TreeRollout(args.fixed_tree() if args.rollout == "fixed" else args.entropy_tree())

    def _check_first_batch(self, sums):
        if self.accelerator.is_main_process:
            checks.warn_of_a_first_batch_without_branches(sums, self._name)


def on_grown_trees(credit: Credit, batch: Batch, forced_tokens: str) -> Credit:
    """
    The credit of completions that were grown as trees: each counts with its weight w, as G w completions.

    Args:
        credit ([`Credit`]): Credit of each token as if all completions had equal weights, with `added` and `outcome`.
        batch ([`Batch`]): The batch.
        forced_tokens (`str`): As in [`~tempo_trl.rollout.config_fields.EntropyTreeFields`].
    """
    if (weights := batch.weights) is not None:
        share = batch.num_generations * weights.float()
        advantages, added = credit.advantages * share[:, None], credit.added * share[:, None]
        credit = replace(credit, advantages=advantages, added=added, weights=weights, outcome=credit.outcome * share)
    return with_forced_tokens(credit, batch, forced_tokens)


def with_forced_tokens(credit: Credit, batch: Batch, forced_tokens: str) -> Credit:
    """
    Credit in which forced tokens (not sampled from the policy) are reweighted or removed from the loss, if asked for.

    Args:
        credit ([`Credit`]): Credit of the batch.
        batch ([`Batch`]): The batch. Without grown trees it has no forced tokens.
        forced_tokens (`str`): As in [`~tempo_trl.rollout.config_fields.EntropyTreeFields`].
    """
    if batch.tree_rollouts is None or forced_tokens == "keep":
        return credit
    ratio = branches(batch.tree_rollouts, batch.completion_ids.shape[1]).forced_ratio  # 1 for sampled tokens
    if forced_tokens == "mask":
        return replace(credit, loss_mask=ratio == 1)
    return replace(credit, advantages=credit.advantages * ratio)
