"""TEMPO on TRL: the prefix tree of each group turns GRPO's one advantage a completion into one a token."""

import json
import textwrap
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object

from tempo_trl.credit.advantages import credit_tokens, flat_groups, prefix_tree
from tempo_trl.credit.metrics import credit_sums, tree_sums
from tempo_trl.credit.prefix_baseline import baseline_tokens
from tempo_trl.credit.prefix_covariance import PairStatistics, PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import PrefixTree
from tempo_trl.methods.tempo_config import TEMPOConfig
from tempo_trl.rollout.forced_tokens import treat_forced_tokens
from tempo_trl.rollout.tree import GrownTree, branches, repeated_rows, row_weights
from tempo_trl.rollout.tree_rollout import TreeRollout, entropy_tree_rollout, fixed_tree_rollout
from tempo_trl.trainers import checks
from tempo_trl.trainers.prompts import images_in, prompt_keys
from tempo_trl.trainers.recorder import LoggedTrees
from tempo_trl.trainers.token_credit import TokenCreditTrainer, loss_mask
from tempo_trl.trainers.whole_groups import WholeGroups, gather_whole_groups

COVARIANCE_DEPTHS = np.array([1, 4, 16, 64, 256])  # tokens at which the covariance of the prefix baseline is logged
COVARIANCE_FILE = "prefix_covariance.json"  # in a checkpoint


class TEMPOTrainer(LoggedTrees, TokenCreditTrainer):
    """
    Trainer for TEMPO (https://huggingface.co/papers/2509.18314). The only change with respect to
    [`~trl.GRPOTrainer`] is the advantage: TRL's scalar per completion plus, on every token, the TD error of the prefix
    values of its group, `(B, T)` instead of `(B,)`. Generation, rewards, loss, logging and saving are TRL's.

    Example:

    ```python
    from datasets import load_dataset
    from tempo_trl import TEMPOConfig, TEMPOTrainer
    from trl.rewards import accuracy_reward

    trainer = TEMPOTrainer(
        model="Qwen/Qwen3-0.6B",
        reward_funcs=accuracy_reward,
        args=TEMPOConfig(output_dir="Qwen3-0.6B-TEMPO"),
        train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    )
    trainer.train()
    ```

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TEMPOConfig`].

    Raises:
        ValueError: if `args` is not a [`TEMPOConfig`].

    Note:
        With sequence-level importance ratios (`importance_sampling_level="sequence"`) tokens keep their own advantage
        by GSPO-token's ratio, and the off-policy mask looks at the sign of the outcome ([`TokenCreditTrainer`]).
        Groups whose rewards are all equal get exactly 0, not the rounding error of their mean. A state is the prompt
        and what was sampled after it: where an environment or a `rollout_func` gives the completions of a group
        different prompts, only those with the same one share credit, and such groups are not recorded. With
        `td_coef=0` nothing is touched: training is [`~trl.GRPOTrainer`]'s, bit for bit. Beside credit, a resumed run
        goes on with the prompts of the run that never stopped in later epochs too.

        On grown trees (`rollout` other than `"iid"`) P2T reads the tree off the token ids. With the weights w of the
        leaves (`leaf_weights`) in every mean and every sum over completions, what TEMPO guarantees for independent
        ones goes on to hold: the TD errors of a completion add up to r - V(root), and the completions through an edge
        together give it W(edge) (V(after) - V(root)) as outcome and W(edge) (V(after) - V(before)) as TD, W their
        weight. A weighted sum over completions has the expectation of one independent sample where every child is
        sampled alike and weighs alike (`"by_branch"` on fixed trees, whatever ends early). What is lost: completions
        that share a sampled token are dependent, so a group of them is worth fewer than as many independent ones;
        `"uniform"` leans to bushy branches; and a forced token is no sample of the policy (`forced_tokens`). The
        prefix baseline leaves a token's whole branch out instead of its completion alone.
    """

    _tag_names = ["trl", "tempo"]
    _name = "TEMPO"
    _paper = {
        "title": "Exploiting Tree Structure for Credit Assignment in RL Training of LLMs",
        "id": "2509.18314",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{tran2025exploiting,
                title        = {{Exploiting Tree Structure for Credit Assignment in RL Training of LLMs}},
                author       = {Hieu Tran and Zonghai Yao and Hong Yu},
                year         = 2025,
                eprint       = {arXiv:2509.18314},
            }"""),
    }

    _config_cls = TEMPOConfig

    @cached_property
    def _covariance(self) -> PrefixCovariance:
        """How alike rewards are that share a prefix: the learned shrinkage, and in every run what prefixes explain."""
        return PrefixCovariance()

    @property
    def _learns_shrinkage(self) -> bool:
        return self.args.advantage_estimator == "prefix_baseline" and self.args.prefix_shrinkage == "auto"

    def _tree_rollout(self, args):
        grow = {"fixed": fixed_tree_rollout, "entropy": entropy_tree_rollout}.get(args.rollout)
        return grow and grow(args)

    @property
    def _trees(self) -> list[GrownTree] | None:
        """The trees of the batch at hand; None where completions were sampled independently, as in evaluation."""
        return self.rollout_func.trees if isinstance(self.rollout_func, TreeRollout) else None

    def _credit(self, output: dict) -> None:
        lengths, outcome = self._outcome(output["advantages"])
        num_generations, width = self._group_size, output["completion_ids"].shape[1]
        own_rows = output["completion_ids"], lengths, outcome, self._prompt_keys(output)
        groups = gather_whole_groups(self.accelerator, *own_rows, num_generations)
        tree = prefix_tree(groups.completion_ids, groups.lengths, num_generations, groups.prompts)
        weights = None if self._trees is None else row_weights(self._trees, self.args.leaf_weights)
        columns = groups.completion_ids.shape[1]
        advantages, td = credit_tokens(tree, groups.outcome, columns, self.args.td_coef, weights)
        own_tokens = groups.own, slice(0, width)
        if self.args.advantage_estimator == "prefix_baseline":
            self._use_advantages(output, self._over_baseline(tree, groups, weights)[own_tokens])
        elif self.args.td_coef > 0 or self._trees is not None:
            self._use_advantages(output, advantages[own_tokens])
        if self.model.training:
            self._learn_covariance(tree, groups)  # after its use: a baseline may not look at the rewards it is for
        self._treat_trees(output)
        own_weights = None if weights is None else weights[groups.own]
        self._log_trees(output, td[own_tokens], groups.prompts[groups.own], own_weights)

        flat = flat_groups(groups.outcome, num_generations)[groups.owned]
        sums = tree_sums(tree, groups.owned) | {"flat_groups": (flat.sum().item(), len(flat))}
        lone = num_generations == 1  # in evaluation only: a completion without a group is no tree
        self._log_credit(output, td[own_tokens].to(outcome.device), {} if lone else sums)

    def _over_baseline(self, tree: PrefixTree, groups: WholeGroups, weights: torch.Tensor | None) -> torch.Tensor:
        columns = groups.completion_ids.shape[1]
        shrinkage = self._covariance if self._learns_shrinkage else self.args.prefix_shrinkage
        segments = None if self._trees is None else branches(self._trees, columns).segment
        advantages = baseline_tokens(tree, groups.outcome, columns, shrinkage, segments)
        return advantages if weights is None else advantages * (tree.num_generations * weights.float())[:, None]

    def _learn_covariance(self, tree: PrefixTree, groups: WholeGroups) -> None:
        owned = torch.full_like(groups.outcome, torch.nan)  # a group that lies on several ranks counts once
        rows = slice(groups.owned.start * tree.num_generations, groups.owned.stop * tree.num_generations)
        owned[rows] = groups.outcome[rows]
        if self._trees is not None:
            owned[repeated_rows(self._trees)] = torch.nan  # one sample twice: no pair
        statistics = gather_object([pair_statistics(tree, owned)])
        self._covariance.update(sum(statistics, PairStatistics()))
        metrics = self._metrics["train"]
        metrics["tempo/prefix_explained"].append(self._covariance.explained)
        if not self._learns_shrinkage:
            return
        for depth, covariance in zip(COVARIANCE_DEPTHS, self._covariance(COVARIANCE_DEPTHS).tolist(), strict=True):
            metrics[f"tempo/prefix_covariance_{depth}"].append(covariance)

    def _treat_trees(self, output: dict) -> None:
        if self._trees is not None:
            grown = branches(self._trees, output["completion_ids"].shape[1])
            treat_forced_tokens(output, grown, self.args.forced_tokens)
            self._count_loss_tokens(output)
            self._log_sums("rollout", self.rollout_func.statistics())

    def _outcome(self, advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """True lengths of this rank's completions and TRL's scalar advantages, NaN where no reward function scored."""
        _, completion_ids, rewards_per_func = self._scored
        rank, rows = self.accelerator.process_index, len(completion_ids)
        unscorable = rewards_per_func.isnan().all(dim=1)[rank * rows : (rank + 1) * rows]
        lengths = torch.tensor([len(ids) for ids in completion_ids], device=advantages.device)
        return lengths, advantages.masked_fill(unscorable, torch.nan)

    def _prompt_keys(self, output: dict) -> torch.Tensor:
        """A number for each completion's prompt: an environment, or a rollout of the user's, may alter it."""
        observed = self.environments or ()  # the images of a dataset are alike in a group
        images = [list(images_in(prompt)) for prompt in self._scored.prompts] if observed else ()
        return prompt_keys(output["prompt_ids"], output["prompt_mask"], images)

    def _log_credit(self, output: dict, td: torch.Tensor, sums: dict) -> None:
        """Log the batch's `tempo/*` metrics over all ranks, and what trains into the completions table."""
        credit = credit_sums(output.get("outcome_advantages", output["advantages"]), td, loss_mask(output))
        sums = sums | {name: tuple(rows.sum(dim=0).tolist()) for name, rows in credit.items()}
        totals = self._log_sums("tempo", sums)
        if self.model.training and self.state.global_step == 0 and self.accelerator.is_main_process:
            checks.warn_of_a_first_batch_without_branches(totals)
        self._log_table(output, {n: rows[:, 0] / rows[:, 1].where(rows[:, 1] > 0, 1.0) for n, rows in credit.items()})

    def _save_rng_state(self, output_dir):
        if self.args.should_save:
            Path(output_dir, COVARIANCE_FILE).write_text(json.dumps(self._covariance.state_dict()))
        super()._save_rng_state(output_dir)

    def _load_rng_state(self, checkpoint):
        super()._load_rng_state(checkpoint)
        saved = Path(checkpoint, COVARIANCE_FILE) if checkpoint is not None else None
        if saved is not None and saved.exists():
            self._covariance.load_state_dict(json.loads(saved.read_text()))
