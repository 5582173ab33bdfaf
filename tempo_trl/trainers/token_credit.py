"""One advantage a token on TRL's loss: the seam that every method with token-level credit shares."""

import torch
from trl import GRPOTrainer

from tempo_trl.credit.importance import gspo_token_reference
from tempo_trl.trainers.base_trainer import BaseTrainer


class TokenCreditTrainer(BaseTrainer):
    """
    A trainer whose advantages are `(B, T)`. A subclass overrides [`_credit`], which sees each scored batch.

    Three things of TRL would lose or bend token credit and are put right here. Sequence-level importance ratios
    (`importance_sampling_level="sequence"`) become GSPO-token's, which have the same value and keep each token's
    advantage; a KL term that TRL weighs by the ratio (`beta` with `use_bias_correction_kl`) keeps its value, too, and
    then has the gradient of each token's own ratio. The off-policy mask looks at the sign of the outcome, not at that
    of each token. The table of completions shows the mean over tokens of what trains.
    """

    _loss_inputs = None  # the micro-batch at hand, while its loss is computed

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self._credit(output)
        self._scored = None
        return output

    def _credit(self, output: dict) -> None:
        """Replace the scalar advantages of a scored batch, in place, with [`_use_advantages`]."""
        raise NotImplementedError

    def _use_advantages(self, output: dict, advantages: torch.Tensor) -> None:
        """Train on `(B, T)` advantages; keep the scalar ones as the outcome."""
        output["outcome_advantages"] = output["advantages"]
        output["advantages"] = advantages.to(output["advantages"].device)

    def _own_rewards(self) -> torch.Tensor:
        """TRL's weighted sum of the rewards of this rank's completions, `(B,)`, NaN where no function scored one."""
        _, completion_ids, rewards_per_func = self._scored
        begin = self.accelerator.process_index * len(completion_ids)
        return self._weighted(rewards_per_func[begin : begin + len(completion_ids)])

    def _weighted(self, rewards_per_func: torch.Tensor) -> torch.Tensor:
        """TRL's weighted sum of the rewards of each row, `(R,)`, NaN where no function scored it."""
        rewards = (rewards_per_func * self.reward_weights.to(rewards_per_func.device)).nansum(dim=1)
        return rewards.masked_fill(rewards_per_func.isnan().all(dim=1), torch.nan)

    def _count_loss_tokens(self, output: dict) -> None:
        """Tell TRL's loss how many tokens the batch has, on all ranks, after some were taken out by `tool_mask`."""
        output["num_items_in_batch"] = self.accelerator.gather(loss_mask(output).sum()).sum()

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    @property
    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def _log_sums(self, prefix: str, sums: dict[str, tuple[float, float]]) -> dict[str, float]:
        """Log `{prefix}/{name}` as the ratio of two sums over all ranks, and return the summed numerators.

        Every rank calls this with the same names. What has nothing to divide by is not logged: no branch node has no
        depth, and no credit has no share.
        """
        device = self.accelerator.device
        totals = self.accelerator.reduce(torch.tensor(list(sums.values()), device=device), reduction="sum").tolist()
        metrics = self._metrics[self._mode]
        for name, (numerator, denominator) in zip(sums, totals, strict=True):
            if denominator:
                metrics[f"{prefix}/{name}"].append(numerator / denominator)
        return {name: numerator for name, (numerator, _) in zip(sums, totals, strict=True)}

    def _log_table(self, output: dict, columns: dict[str, torch.Tensor] | None = None) -> None:
        """Put what trains, and `(B,)` columns of the same rows, beside what TRL has just added to its table."""
        mask = loss_mask(output)
        advantages = output["advantages"].view(len(mask), -1)
        mean_advantage = (advantages * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        columns = columns or {}
        rows = self.accelerator.gather(torch.stack([mean_advantage, *columns.values()], dim=1)).T.tolist()
        scalar = self._logs["advantages"]  # TRL has logged GRPO's there
        for _ in range(min(len(rows[0]), len(scalar))):
            scalar.pop()
        scalar.extend(rows[0])
        for name, values in zip(columns, rows[1:], strict=True):
            self._logs["extra"][name].extend(values)

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
            inputs["old_per_token_logps"] = gspo_token_reference(
                logps, inputs["old_per_token_logps"], loss_mask(inputs)
            )
        return logps, entropies, aux_loss

    def get_off_policy_mask(self, advantages, *args, **kwargs):
        """TRL's off-policy sequence mask, `(B, 1)`: decided by the sign of a completion's outcome, as in GRPO."""
        if self._loss_inputs is not None:
            advantages = self._loss_inputs["outcome_advantages"].unsqueeze(1)
        return GRPOTrainer.get_off_policy_mask(advantages, *args, **kwargs)


def loss_mask(inputs: dict) -> torch.Tensor:
    """1 on the tokens of the loss, `(B, T)`: inside a completion, and sampled by the policy."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)
