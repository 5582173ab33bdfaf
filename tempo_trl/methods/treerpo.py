"""The two methods called TreeRPO: completions grown as a tree, and advantages among siblings."""

import textwrap
from dataclasses import dataclass, field, replace
from functools import partial

from trl import GRPOConfig

from tempo_trl.credit.siblings import SIBLING_SCALES, count_once, sibling_advantages
from tempo_trl.methods.prefix_tree_method import with_forced_tokens
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.rollout.tree import branches
from tempo_trl.rollout.tree_rollout import entropy_tree_rollout, fixed_tree_rollout
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.token_credit import TokenCreditTrainer

SHARED_TOKENS = ("once", "per_leaf")


def sibling_credit(
    batch: Batch,
    average: str = "children",
    scale: str = "std",
    shared_tokens: str = "once",
    forced_tokens: str = "keep",
) -> Credit:
    """
    Credit of grown trees: the value of a token's segment against those of its siblings.

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups. In evaluation completions are no trees, and keep GRPO's advantages.
        average, scale (`str`):
            As in [`~tempo_trl.credit.siblings.sibling_advantages`].
        shared_tokens, forced_tokens (`str`):
            As in [`TreeRPOConfig`] and [`TreeRPOEntropyConfig`].

    Returns:
        [`~tempo_trl.Credit`].
    """
    if batch.grown is None:
        return Credit(batch.outcome)
    tree = branches(batch.grown, batch.completion_ids.shape[1])
    advantages = sibling_advantages(tree.segment, tree.parent, tree.leaf, batch.rewards, average=average, scale=scale)
    credit = with_forced_tokens(Credit(advantages), batch, forced_tokens)
    mask = batch.loss_mask if credit.loss_mask is None else batch.loss_mask & credit.loss_mask
    if shared_tokens == "once":
        mask = count_once(tree.segment, mask)
        credit = replace(credit, loss_mask=mask)
    silent = ((credit.advantages == 0) & mask).sum().item()
    return replace(credit, metrics={"treerpo/silent_tokens": (silent, mask.sum().item())})


@dataclass
class SiblingCreditConfig(TokenCreditConfig):
    """
    Fields of the configurations of both methods.

    Args:
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
    """

    shared_tokens: str = field(
        default="once",
        metadata={"help": "Tokens of several completions are in the loss `once`, or once a completion: `per_leaf`."},
    )
    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={"help": "How to correct for what vLLM samples: by token, where a shared token is in the loss once."},
    )

    def check(self) -> None:
        """Raise ValueError for an unknown choice, and for what sibling groups leave no room for."""
        super().check()
        if self.shared_tokens not in SHARED_TOKENS:
            raise ValueError(f"`shared_tokens` must be one of {SHARED_TOKENS}, got {self.shared_tokens!r}.")
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"`multi_objective_aggregation` is {self.multi_objective_aggregation!r}, but siblings are compared by "
                "one reward, without GRPO's normalisation of each function: leave it at 'sum_then_normalize'."
            )
        if self.scale_rewards != GRPOConfig.scale_rewards:
            raise ValueError(
                f"`scale_rewards` is {self.scale_rewards!r}, which this method would not read: it compares siblings, "
                "not the completions of a prompt. Leave it unset."
            )
        if self.shared_tokens == "once":
            self._check_factors_of_a_completion()

    def _check_factors_of_a_completion(self) -> None:
        """Raise ValueError for what weighs whole completions: a shared token would have the weight of one of them."""
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        for name, weighs, instead in (
            (
                "vllm_importance_sampling_mode",
                corrected and self.vllm_importance_sampling_mode.startswith("sequence"),
                "'token_truncate' or 'token_mask'",
            ),
            ("importance_sampling_level", self.importance_sampling_level == "sequence", "'token'"),
            ("off_policy_mask_threshold", self.off_policy_mask_threshold is not None, "None"),
            ("loss_type", self.loss_type == "vespo", "another one"),
        ):
            if weighs:
                raise ValueError(
                    f"`{name}` is {getattr(self, name)!r}, which weighs a completion as a whole, but a token that "
                    "several completions share is in the loss once, in the first of them: it would get the weight of "
                    f"that one for all. Take {instead}, or `shared_tokens='per_leaf'`."
                )


@dataclass
class TreeRPOConfig(FixedTreeFields, SiblingCreditConfig):
    r"""
    Configuration class for the [`TreeRPOTrainer`] (https://huggingface.co/papers/2506.05183): every field of
    [`~trl.GRPOConfig`], with its meaning and but for the last of these its default, those of
    [`~tempo_trl.rollout.config_fields.FixedTreeFields`], and these.

    Args:
        advantage_scale (`str`, *optional*, defaults to `"std"`):
            What the difference of a segment's value from its siblings' mean is divided by: `"none"` for 1, `"std"` for
            their standard deviation, as GRPO's, `"bernoulli"` for the $\sqrt{m (1 - m)}$ of their mean m. The paper's
            abstract, which is what we have, names none.
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
    """

    advantage_scale: str = field(
        default="std",
        metadata={"help": "Scale of the advantages of siblings: `none`, `std` or `bernoulli`."},
    )

    def check(self) -> None:
        """Raise ValueError for a tree or a credit that is none."""
        self.check_fixed_tree()
        super().check()
        if self.advantage_scale not in SIBLING_SCALES:
            raise ValueError(f"`advantage_scale` must be one of {SIBLING_SCALES}, got {self.advantage_scale!r}.")


@dataclass
class TreeRPOEntropyConfig(EntropyTreeFields, SiblingCreditConfig):
    """
    Configuration class for the [`TreeRPOEntropyTrainer`] (hierarchical TreeRPO): every field of
    [`~trl.GRPOConfig`], those of [`~tempo_trl.rollout.config_fields.EntropyTreeFields`], and these. `num_generations`
    is the largest number of leaves of a tree. Defaults that the text changes:

    Args:
        shared_tokens (`str`, *optional*, defaults to `"once"`):
            Whether a token that several completions share is in the loss once (`"once"`) or once for each of them
            (`"per_leaf"`).
        vllm_importance_sampling_mode (`str`, *optional*, defaults to `"token_truncate"`):
            TRL's default is `"sequence_mask"`, which drops a completion whose probability is too far from vLLM's: with
            it every token that stands in the loss there for the other completions, too.
        temperature (`float`, *optional*, defaults to `0.6`), top_p (`float`, *optional*, defaults to `0.85`), \
        top_k (`int`, *optional*, defaults to `25`), repetition_penalty (`float`, *optional*, defaults to `1.1`):
            Sampling (section 4.2.2). TRL's loss divides the logits by the temperature, and knows nothing of the
            other three.
        vllm_importance_sampling_correction (`bool`, *optional*, defaults to `False`):
            TRL's default is `True`. The tokens that the cuts above leave are likelier under the sampler than under
            the policy of the loss, each of them: over a completion the correction would weigh it down to nothing.
    """

    temperature: float = field(default=0.6, metadata={"help": "Sampling temperature; the text has 0.6."})
    top_p: float = field(default=0.85, metadata={"help": "Nucleus sampling; the text has 0.85."})
    top_k: int = field(default=25, metadata={"help": "Tokens that can be sampled; the text has 25."})
    repetition_penalty: float = field(default=1.1, metadata={"help": "Repetition penalty; the text has 1.1."})
    vllm_importance_sampling_correction: bool = field(
        default=False,
        metadata={"help": "Whether to correct for what vLLM samples; not with top_p, top_k or a repetition penalty."},
    )

    def check(self) -> None:
        """Raise ValueError for a tree or a credit that is none."""
        self.check_entropy_tree()
        super().check()


class TreeRPOTrainer(TokenCreditTrainer):
    """
    Trainer for TreeRPO (https://huggingface.co/papers/2506.05183). With respect to [`~trl.GRPOTrainer`] the
    completions of a prompt are the leaves of a tree, N continuations a node, and a token's advantage compares its
    segment with the segment's siblings: the value of a leaf is its reward, that of a node the mean of its children.
    Rewards, loss, logging and saving are TRL's; evaluation samples without a tree.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TreeRPOConfig`].

    Raises:
        ValueError: if `args` is not one, if batches would split a group over ranks, and for what a tree cannot be
            grown with: tools, environments, images, a `rollout_func`, colocated vLLM, continuous batching.

    Note:
        Our source is the paper's abstract. Where it leaves a choice:

        - Siblings whose values are equal are dropped: they get advantage 0, as a flat group in GRPO.
        - The scale of an advantage is a choice (`advantage_scale`), GRPO's standard deviation by default.
        - A branch that ends early, at depth d, stands for the N^(D - d) leaves it closes: its completion is handed to
          TRL so often, and TRL's mean reward of a prompt is the value of the root. Its tokens are in the loss once.
        - A token that several leaves share is in the loss once (`shared_tokens`), in the first of them; the paper's
          abstract does not say. The average over tokens is TRL's `loss_type`.
        - `max_completion_length` limits a path, `tree_step_tokens` a segment.
    """

    _tag_names = ["trl", "treerpo"]
    _name = "TreeRPO"
    _paper = {
        "title": "TreeRPO: Tree Relative Policy Optimization",
        "id": "2506.05183",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{yang2025treerpo,
                title        = {{TreeRPO: Tree Relative Policy Optimization}},
                author       = {Zhicheng Yang and Zhijiang Guo and Yinya Huang and Xiaodan Liang and Yiwei Wang and
                                Jing Tang},
                year         = 2025,
                eprint       = {arXiv:2506.05183},
            }"""),
    }
    _config_cls = TreeRPOConfig
    method_name = "treerpo"

    def _tree_rollout(self, args):
        return fixed_tree_rollout(args)

    def _credit_function(self):
        args = self.args
        return partial(sibling_credit, scale=args.advantage_scale, shared_tokens=args.shared_tokens)


class TreeRPOEntropyTrainer(TokenCreditTrainer):
    """
    Trainer for hierarchical TreeRPO ("TreeRPO: Hierarchical Credit Assignment for Reasoning in Language Models"),
    another method of the same name. Trees split in two where the policy is in doubt after a delimiter; a node's value
    is the mean of all leaves below it, and its advantage the difference from its siblings' mean, without a scale.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TreeRPOEntropyConfig`].

    Raises:
        ValueError: as [`TreeRPOTrainer`].

    Note:
        Where the text leaves a choice, or a batch of fixed shape does:

        - Every prompt hands TRL `num_generations` completions. A tree does not split beyond as many leaves; one with
          fewer hands over some leaves again, which neither count in a value nor stand in the loss twice.
        - Entropy is that of the distribution sampled from, after temperature and cuts, over its 20 likeliest tokens.
        - The alternative to a token is drawn from the same 20 tokens without it. It is not a sample of the policy:
          `forced_tokens` says what is done about that; by default nothing, as in the text.
        - A sibling grown for coverage is sampled freely and does not split. The text does not give the length from
          which on it is grown (`tree_coverage_tokens`).
        - Lengths are in tokens throughout. A token that several leaves share is in the loss once (`shared_tokens`);
          the average over tokens is TRL's `loss_type`, where the text adds up nodes.
    """

    _tag_names = ["trl", "treerpo-entropy"]
    _name = "TreeRPO_entropy"
    _paper = {
        "title": "TreeRPO: Hierarchical Credit Assignment for Reasoning in Language Models",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @misc{treerpo_hierarchical,
                title        = {{TreeRPO: Hierarchical Credit Assignment for Reasoning in Language Models}},
            }"""),
    }
    _config_cls = TreeRPOEntropyConfig
    method_name = "treerpo_entropy"

    def _tree_rollout(self, args):
        return entropy_tree_rollout(args)

    def _credit_function(self):
        args = self.args
        choices = {"shared_tokens": args.shared_tokens, "forced_tokens": args.forced_tokens}
        return partial(sibling_credit, average="leaves", scale="none", **choices)
