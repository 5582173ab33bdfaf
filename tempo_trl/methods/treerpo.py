"""The two methods called TreeRPO on TRL: completions grown as a tree, and advantages among siblings."""

import textwrap

import torch

from tempo_trl.credit.siblings import count_once, sibling_advantages
from tempo_trl.methods.treerpo_config import TreeRPOConfig, TreeRPOEntropyConfig
from tempo_trl.rollout.forced_tokens import treat_forced_tokens
from tempo_trl.rollout.tree import branches
from tempo_trl.rollout.tree_rollout import entropy_tree_rollout, fixed_tree_rollout
from tempo_trl.trainers.token_credit import TokenCreditTrainer, loss_mask


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

    def _tree_rollout(self, args):
        return fixed_tree_rollout(args)

    def _credit(self, output: dict) -> None:
        trees = self.rollout_func.trees
        if trees is None:  # evaluation
            return
        grown = branches(trees, output["completion_ids"].shape[1])
        rewards = self._own_rewards()
        advantages = self._sibling_advantages(grown, rewards)
        self._use_advantages(output, advantages)
        treat_forced_tokens(output, grown, getattr(self.args, "forced_tokens", "keep"))
        if self.args.shared_tokens == "once":
            segment = grown.segment.to(rewards.device)
            output["tool_mask"] = count_once(segment, loss_mask(output)).to(output["completion_mask"].dtype)
        self._count_loss_tokens(output)
        self._log_tree(output)

    def _sibling_advantages(self, grown, rewards: torch.Tensor) -> torch.Tensor:
        scale = self.args.advantage_scale
        return sibling_advantages(grown.segment, grown.parent, grown.leaf, rewards, average="children", scale=scale)

    def _log_tree(self, output: dict) -> None:
        mask = loss_mask(output)
        silent = (output["advantages"] == 0) & (mask > 0)
        sums = {"silent_tokens": (silent.sum().item(), mask.sum().item())}
        self._log_sums("treerpo", sums)
        self._log_sums("rollout", self.rollout_func.statistics())
        self._log_table(output)


class TreeRPOEntropyTrainer(TreeRPOTrainer):
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

    def _tree_rollout(self, args):
        return entropy_tree_rollout(args)

    def _sibling_advantages(self, grown, rewards: torch.Tensor) -> torch.Tensor:
        return sibling_advantages(grown.segment, grown.parent, grown.leaf, rewards, average="leaves", scale="none")
