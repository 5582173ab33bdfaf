"""TEMPO on TRL: the prefix tree of each group turns GRPO's one advantage a completion into one a token."""

import textwrap

import torch

from tempo_trl.credit.advantages import credit_tokens, flat_groups, prefix_tree
from tempo_trl.report.metrics import credit_sums, tree_sums
from tempo_trl.trainers import checks
from tempo_trl.trainers.tempo_config import TEMPOConfig
from tempo_trl.trainers.token_credit_trainer import TokenCreditTrainer, loss_mask
from tempo_trl.trainers.whole_groups import gather_whole_groups


class TEMPOTrainer(TokenCreditTrainer):
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
        Three things of TRL would lose or bend token credit and are put right here. Sequence-level importance ratios
        (`importance_sampling_level="sequence"`) become GSPO-token's, which have the same value and keep each token's
        advantage. The off-policy mask looks at the sign of the outcome, not at that of each token. Groups whose
        rewards are all equal get exactly 0, not the rounding error of their mean. With `td_coef=0` nothing is
        touched: training is [`~trl.GRPOTrainer`]'s, bit for bit. Beside credit, a resumed run goes on with the prompts
        of the run that never stopped in later epochs too.
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

    def _credit(self, output: dict) -> None:
        lengths, outcome = self._outcome(output["advantages"])
        num_generations = self._group_size
        groups = gather_whole_groups(self.accelerator, output["completion_ids"], lengths, outcome, num_generations)

        tree = prefix_tree(groups.completion_ids, groups.lengths, num_generations)
        advantages, td = credit_tokens(tree, groups.outcome, groups.completion_ids.shape[1], self.args.td_coef)
        own_tokens = groups.own, slice(0, output["completion_ids"].shape[1])
        if self.args.td_coef > 0:
            self._use_advantages(output, advantages[own_tokens])

        flat = flat_groups(groups.outcome, num_generations)[groups.owned]
        sums = tree_sums(tree, groups.owned) | {"flat_groups": (flat.sum().item(), len(flat))}
        lone = num_generations == 1  # in evaluation only: a completion without a group is no tree
        self._log_credit(output, td[own_tokens].to(outcome.device), {} if lone else sums)

    def _outcome(self, advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """True lengths of this rank's completions and TRL's scalar advantages, NaN where no reward function scored."""
        completion_ids, rewards_per_func = self._scored
        rank, rows = self.accelerator.process_index, len(completion_ids)
        unscorable = rewards_per_func.isnan().all(dim=1)[rank * rows : (rank + 1) * rows]
        lengths = torch.tensor([len(ids) for ids in completion_ids], device=advantages.device)
        return lengths, advantages.masked_fill(unscorable, torch.nan)

    def _log_credit(self, output: dict, td: torch.Tensor, sums: dict) -> None:
        """Log the batch's `tempo/*` metrics over all ranks, and what trains into the completions table."""
        credit = credit_sums(output.get("outcome_advantages", output["advantages"]), td, loss_mask(output))
        sums = sums | {name: tuple(rows.sum(dim=0).tolist()) for name, rows in credit.items()}
        totals = self._log_sums("tempo", sums)
        if self.model.training and self.state.global_step == 0 and self.accelerator.is_main_process:
            checks.warn_of_a_first_batch_without_branches(totals)
        self._log_table(output, {n: rows[:, 0] / rows[:, 1].where(rows[:, 1] > 0, 1.0) for n, rows in credit.items()})
