"""The two methods called TreeRPO: completions grown as a tree, and advantages among siblings."""

from dataclasses import dataclass, replace

from trl import GRPOConfig

from tempo_trl.config_help import with_help
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_choice, refuse
from tempo_trl.credit.grown_tree import branches
from tempo_trl.credit.siblings import SIBLING_SCALES, count_once, sibling_advantages
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.methods.prefix_tree_method import with_forced_tokens
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.settings import refuse_rewards_that_are_normalized_first
from tempo_trl.trainers.token_credit import TokenCreditTrainer

SHARED_TOKENS = ("once", "per_leaf")


def sibling_credit(
    batch: Batch,
    average: str = "children",
    scale: str = "std",
    count_shared_tokens: str = "once",
    forced_tokens: str = "keep",
) -> Credit:
    """
    Credit on grown trees: the value of a token's segment relative to the values of its siblings.

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups. Evaluation does not grow trees: its completions keep GRPO's advantages.
        average, scale (`str`):
            As in [`~tempo_trl.credit.siblings.sibling_advantages`].
        count_shared_tokens, forced_tokens (`str`):
            As in [`TreeRPOConfig`] and [`TreeRPOEntropyConfig`].

    Returns:
        [`~tempo_trl.Credit`].
    """
    if batch.tree_rollouts is None:
        return Credit(batch.advantages)
    tree = branches(batch.tree_rollouts, batch.completion_ids.shape[1])
    options = {"average": average, "scale": scale, "sizes": batch.reward_sizes}
    advantages = sibling_advantages(tree.segment, tree.parent, tree.leaf, batch.rewards, **options)
    credit = with_forced_tokens(Credit(advantages), batch, forced_tokens)
    mask = batch.loss_mask if credit.loss_mask is None else batch.loss_mask & credit.loss_mask
    if count_shared_tokens == "once":
        mask = count_once(tree.segment, mask)
        credit = replace(credit, loss_mask=mask)
    silent = ((credit.advantages == 0) & mask).sum().item()
    return replace(credit, metrics={"treerpo/silent_tokens": (silent, mask.sum().item())})


@with_help
@dataclass
class SiblingCreditConfig(TokenCreditConfig):
    """
    Fields that the configurations of both methods share.

    Args:
        count_shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once per completion
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's, and
            would also drop the shared tokens that are in the loss only there.
    """

    count_shared_tokens: str = "once"
    vllm_importance_sampling_mode: str = "token_truncate"

    def check(self) -> None:
        """Validate the choices and reject TRL options that sibling groups do not support."""
        super().check()
        check_choice("count_shared_tokens", self.count_shared_tokens, SHARED_TOKENS)
        refuse_rewards_that_are_normalized_first(self, "siblings are compared by the weighted sum")
        scaled = self.scale_rewards != GRPOConfig.scale_rewards
        refuse(self, {"scale_rewards": (scaled, "siblings are compared, not completions. Leave it unset")})
        if self.count_shared_tokens == "once":
            corrected = self.use_vllm and self.vllm_importance_sampling_correction
            by_sequence = corrected and self.vllm_importance_sampling_mode.startswith("sequence")
            why = (
                "it weights whole completions, so a shared token would get the weight of the first completion only. "
                "Use {}, or `count_shared_tokens='per_leaf'`"
            )
            refused = {
                "vllm_importance_sampling_mode": (by_sequence, "'token_truncate' or 'token_mask'"),
                "importance_sampling_level": (self.importance_sampling_level == "sequence", "'token'"),
                "off_policy_mask_threshold": (self.off_policy_mask_threshold is not None, "None"),
                "loss_type": (self.loss_type in ("grpo", "sapo", "vespo"), "another one"),
            }
            refuse(self, {name: (wrong, why.format(instead)) for name, (wrong, instead) in refused.items()})


@with_help
@dataclass
class TreeRPOConfig(FixedTreeFields, SiblingCreditConfig):
    r"""
    Configuration class for the [`TreeRPOTrainer`] (https://huggingface.co/papers/2506.05183): every field of
    [`~trl.GRPOConfig`], with its meaning and default, those of
    [`~tempo_trl.rollout.config_fields.FixedTreeFields`] and of [`~tempo_trl.methods.treerpo.SiblingCreditConfig`], and
    the one below.

    Args:
        advantage_scale (`str`, *optional*, defaults to `"std"`):
            Divisor of the difference between a segment's value and the mean m of its siblings: `"none"` for 1, `"std"`
            for their standard deviation, as in GRPO, `"bernoulli"` for $\sqrt{m (1 - m)}$. The paper's abstract, our
            only source, does not specify it.
    """

    advantage_scale: str = "std"

    def check(self) -> None:
        """Validate the tree and credit settings."""
        self.check_fixed_tree()
        super().check()
        check_choice("advantage_scale", self.advantage_scale, SIBLING_SCALES)


@with_help
@dataclass
class TreeRPOEntropyConfig(EntropyTreeFields, SiblingCreditConfig):
    """
    Configuration class for the [`TreeRPOEntropyTrainer`] (hierarchical TreeRPO): every field of
    [`~trl.GRPOConfig`], those of [`~tempo_trl.rollout.config_fields.EntropyTreeFields`] and of
    [`~tempo_trl.methods.treerpo.SiblingCreditConfig`], and those below.
    `num_generations` is the largest number of leaves of a tree. Defaults that differ from TRL's are the paper's, or
    follow from them:

    Args:
        temperature, top_p, top_k, repetition_penalty (`float`, *optional*, defaults to `0.6`, `0.85`, `25`, `1.1`):
            Sampling (section 4.2.2). TRL's loss divides the logits by the temperature, but ignores the other three.
        vllm_importance_sampling_correction (`bool`, *optional*, defaults to `False`):
            TRL's default is `True`. Truncated sampling gives each token a higher probability than the policy in the
            loss does, so over a completion the correction would reduce its weight to almost 0.
    """

    temperature: float = 0.6
    top_p: float = 0.85
    top_k: int = 25
    repetition_penalty: float = 1.1
    vllm_importance_sampling_correction: bool = False

    def check(self) -> None:
        """Validate the tree and credit settings."""
        self.check_entropy_tree()
        super().check()


class TreeRPOTrainer(TokenCreditTrainer):
    """
    Trainer for TreeRPO (https://huggingface.co/papers/2506.05183). Two changes with respect to [`~trl.GRPOTrainer`]:
    the completions of a prompt are the leaves of a tree with N continuations per node, and a token's advantage
    compares the value of its segment with those of the segment's siblings. The value of a leaf is its reward, the
    value of a node the mean over its children. Rewards, loss, logging and saving are TRL's. Evaluation does not grow
    trees.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TreeRPOConfig`].

    Raises:
        ValueError: if `args` is not a [`TreeRPOConfig`], if batches would split a group over ranks, and for options
            that tree rollouts do not support: tools, environments, images, a `rollout_func`, colocated vLLM.

    Note:
        Our source is the paper's abstract. What it does not specify:

        - Siblings with equal values get advantage 0, like a group with equal rewards in GRPO.
        - The scale of an advantage is an option (`advantage_scale`), by default GRPO's standard deviation.
        - A branch that ends early, at depth d, counts as the N^(D - d) leaves that it would have had: TRL gets that
          many copies of its completion, so TRL's mean reward of a prompt is the value of the root. Its tokens are in
          the loss once.
        - A token that several leaves share is in the loss once, in the first of them (`count_shared_tokens`). The
          average over tokens is TRL's `loss_type`.
        - `max_completion_length` limits a path, `tree_step_tokens` a segment.
    """

    _tag_names = ["trl", "treerpo"]
    _name = "TreeRPO"
    _paper = arxiv_paper(
        "2506.05183",
        "yang2025treerpo",
        "TreeRPO: Tree Relative Policy Optimization",
        "Zhicheng Yang and Zhijiang Guo and Yinya Huang and Xiaodan Liang and Yiwei Wang and Jing Tang",
    )
    _config_cls = TreeRPOConfig
    method_name = "treerpo"
    reads_trees = True

    def _tree_rollout(self, args):
        return TreeRollout(args.fixed_tree())

    def credit(self, batch):
        args = self.args
        return sibling_credit(batch, scale=args.advantage_scale, count_shared_tokens=args.count_shared_tokens)


class TreeRPOEntropyTrainer(TokenCreditTrainer):
    """
    Trainer for hierarchical TreeRPO ("TreeRPO: Hierarchical Credit Assignment for Reasoning in Language Models"),
    a different method of the same name. Trees split in two at tokens of high entropy after a delimiter. The value of a
    node is the mean over all leaves below it, and its advantage the unscaled difference from its siblings' mean.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TreeRPOEntropyConfig`].

    Raises:
        ValueError: as [`TreeRPOTrainer`].

    Note:
        What the paper does not specify, or what batches of fixed shape require:

        - TRL gets `num_generations` completions per prompt. A tree never has more leaves than that. If it has fewer,
          some leaves are repeated; the copies do not count in values, and in the loss only with
          `count_shared_tokens="per_leaf"`.
        - Entropy is computed over the 20 most likely tokens of the sampling distribution (after temperature and
          truncation).
        - The alternative to a token is drawn from the same 20 tokens without it. It is not a sample of the policy;
          `forced_tokens` selects a correction. By default there is none, as in the paper.
        - A sibling grown for coverage is sampled freely and does not split. The paper does not give the length from
          which it is grown (`tree_coverage_tokens`).
        - All lengths are in tokens. A token that several leaves share is in the loss once (`count_shared_tokens`). The
          average over tokens is TRL's `loss_type`, whereas the paper sums over nodes.
    """

    _tag_names = ["trl", "treerpo-entropy"]
    _name = "TreeRPO_entropy"
    _paper = {
        "title": "TreeRPO: Hierarchical Credit Assignment for Reasoning in Language Models",
        "citation": "@misc{treerpo_hierarchical,\n    title        = {{TreeRPO: Hierarchical Credit Assignment for "
        "Reasoning in Language Models}},\n}",
    }
    _config_cls = TreeRPOEntropyConfig
    method_name = "treerpo_entropy"
    reads_trees = True

    def _tree_rollout(self, args):
        return TreeRollout(args.entropy_tree())

    def credit(self, batch):
        args = self.args
        choices = {"count_shared_tokens": args.count_shared_tokens, "forced_tokens": args.forced_tokens}
        return sibling_credit(batch, average="leaves", scale="none", **choices)
