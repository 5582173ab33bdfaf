"""TEMPO on TRL: the prefix tree of each group turns GRPO's one advantage a completion into one a token."""

import textwrap

import torch
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.trainer.utils import get_config_model_id

from tempo_trl.credit.advantages import credit_tokens, flat_groups, prefix_tree
from tempo_trl.credit.importance import gspo_token_reference
from tempo_trl.report.metrics import credit_sums, tree_sums
from tempo_trl.trainers import checks, faults
from tempo_trl.trainers.resumable_sampler import ResumableSampler
from tempo_trl.trainers.tempo_config import TEMPOConfig
from tempo_trl.trainers.vllm_server import explain_a_silent_server, wait_for_server
from tempo_trl.trainers.whole_groups import gather_whole_groups


class TEMPOTrainer(GRPOTrainer):
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

    def __init__(
        self,
        model: str | PreTrainedModel,
        reward_funcs=None,
        args: TEMPOConfig | None = None,
        *positional,
        **keywords,
    ):
        model_name = model if isinstance(model, str) else get_config_model_id(model.config)
        if args is None:
            args = TEMPOConfig(f"{model_name.split('/')[-1]}-TEMPO")
        if not isinstance(args, TEMPOConfig):
            raise ValueError(
                f"`args` must be a TEMPOConfig, got {type(args).__name__}. It takes every field of GRPOConfig: change "
                "the name where you build it."
            )
        checks.check_settings(args)
        wait_for_server(args, model_name)
        super().__init__(model, reward_funcs, args, *positional, **keywords)
        self._model_name = model_name  # for messages
        checks.check_trainer(self)
        self._room = checks.room_for_prompts(self)  # None once a prompt did not fit: that is said once
        self._told_of_the_disk = False
        self._scored = None  # (completion ids, rewards) of the batch at hand, between scoring and crediting
        self._loss_inputs = None  # the micro-batch at hand, while its loss is computed

    def _get_train_sampler(self, dataset=None):
        # The epoch counts in fractions: 1.9999999 is two whole ones.
        return ResumableSampler(super()._get_train_sampler(dataset), lambda: int((self.state.epoch or 0) + 1e-6))

    def _generate_single_turn(self, *args, **kwargs):
        with explain_a_silent_server(self.args, self._model_name, self.state.global_step):
            return super()._generate_single_turn(*args, **kwargs)

    def _tokenize_prompts(self, prompts):
        tokenized = super()._tokenize_prompts(prompts)
        if self._room is not None and checks.warn_of_long_prompts(tokenized[0], self._room):
            self._room = None
        return tokenized

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        patience = self.args.ddp_timeout / 2
        with faults.watch_rewards(patience, self.accelerator.process_index, self.reward_func_names):
            rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._scored = completion_ids_list, rewards_per_func
        return rewards_per_func

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        lengths, outcome = self._outcome(output["advantages"])
        num_generations = self.num_generations if self.model.training else self.num_generations_eval
        groups = gather_whole_groups(self.accelerator, output["completion_ids"], lengths, outcome, num_generations)

        tree = prefix_tree(groups.completion_ids, groups.lengths, num_generations)
        advantages, td = credit_tokens(tree, groups.outcome, groups.completion_ids.shape[1], self.args.td_coef)
        own_tokens = groups.own, slice(0, output["completion_ids"].shape[1])
        if self.args.td_coef > 0:
            output["outcome_advantages"] = output["advantages"]
            output["advantages"] = advantages[own_tokens].to(outcome.device)

        flat = flat_groups(groups.outcome, num_generations)[groups.owned]
        sums = tree_sums(tree, groups.owned) | {"flat_groups": (flat.sum().item(), len(flat))}
        lone = num_generations == 1  # in evaluation only: a completion without a group is no tree
        self._log_credit(output, td[own_tokens].to(outcome.device), {} if lone else sums)
        return output

    def _outcome(self, advantages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """True lengths of this rank's completions and TRL's scalar advantages, NaN where no reward function scored."""
        completion_ids, rewards_per_func = self._scored
        self._scored = None
        rank, rows = self.accelerator.process_index, len(completion_ids)
        unscorable = rewards_per_func.isnan().all(dim=1)[rank * rows : (rank + 1) * rows]
        lengths = torch.tensor([len(ids) for ids in completion_ids], device=advantages.device)
        return lengths, advantages.masked_fill(unscorable, torch.nan)

    def _log_credit(self, output: dict, td: torch.Tensor, sums: dict) -> None:
        """Log the batch's `tempo/*` metrics over all ranks, and what trains into the completions table."""
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        credit = credit_sums(output.get("outcome_advantages", output["advantages"]), td, mask)
        sums = sums | {name: tuple(rows.sum(dim=0).tolist()) for name, rows in credit.items()}
        totals = self.accelerator.reduce(torch.tensor(list(sums.values()), device=td.device), reduction="sum")
        if self.model.training and self.state.global_step == 0 and self.accelerator.is_main_process:
            checks.warn_of_a_first_batch_without_branches(dict(zip(sums, totals[:, 0].tolist(), strict=True)))
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name, (numerator, denominator) in zip(sums, totals.tolist(), strict=True):
            if denominator:  # no branch node has no depth, and no credit has no share
                metrics[f"tempo/{name}"].append(numerator / denominator)

        advantages = output["advantages"].view(len(mask), -1)
        mean_advantage = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        shares = [rows[:, 0] / rows[:, 1].where(rows[:, 1] > 0, 1.0) for rows in credit.values()]
        columns = self.accelerator.gather(torch.stack([mean_advantage, *shares], dim=1)).T.tolist()
        self._log_columns(dict(zip(["advantage", *credit], columns, strict=True)))

    def _log_columns(self, columns: dict[str, list[float]]) -> None:
        """Put per-completion columns beside the rows that TRL has just added to its table of completions."""
        scalar = self._logs["advantages"]  # TRL has logged GRPO's there: replace them by the mean of what trains
        values = columns.pop("advantage")
        for _ in range(min(len(values), len(scalar))):
            scalar.pop()
        scalar.extend(values)
        for name, values in columns.items():
            self._logs["extra"][name].extend(values)

    def log(self, logs, start_time=None):
        """Log metrics and the table of completions, as TRL does. A disk that refuses the table does not end a run."""
        try:
            super().log(logs, start_time)
        except OSError as error:
            if not faults.is_of_the_completions_table(error):
                raise
            path = faults.completions_path(self.args, self.state.global_step)
            faults.remove_if_torn(path)
            if not self._told_of_the_disk:
                faults.warn_of_a_refused_table(path, error)
            self._told_of_the_disk = True

    def _save_rng_state(self, output_dir):
        super()._save_rng_state(output_dir)
        # Rank 0 now writes trainer_state.json, which makes the checkpoint a whole one: only with every rank's files.
        self.accelerator.wait_for_everyone()

    def _compute_loss(self, model, inputs):
        if inputs["advantages"].dim() == 1:
            return super()._compute_loss(model, inputs)
        level = self.importance_sampling_level
        if level == "sequence":
            self.importance_sampling_level = "token"  # of GSPO-token's ratio: see the next method
        self._loss_inputs = dict(inputs)  # a copy: TRL reuses the buffered micro-batch over num_iterations
        try:
            return super()._compute_loss(model, self._loss_inputs)
        finally:
            self.importance_sampling_level = level
            self._loss_inputs = None

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        inputs = self._loss_inputs or {}
        if self.args.importance_sampling_level == "sequence" and "old_per_token_logps" in inputs:
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            inputs["old_per_token_logps"] = gspo_token_reference(logps, inputs["old_per_token_logps"], mask)
        return logps, entropies, aux_loss

    def get_off_policy_mask(self, advantages, *args, **kwargs):
        """TRL's off-policy sequence mask, `(B, 1)`: decided by the sign of a completion's outcome, as in GRPO."""
        if self._loss_inputs is not None:
            advantages = self._loss_inputs["outcome_advantages"].unsqueeze(1)
        return GRPOTrainer.get_off_policy_mask(advantages, *args, **kwargs)
