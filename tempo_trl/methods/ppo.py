"""PPO: a learned critic instead of GRPO's group baseline, with TRL's own rollout, rewards and clipped loss."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from transformers import SchedulerType
from trl.extras.profiling import profiling_context

from tempo_trl.config_help import with_help
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_number, refuse
from tempo_trl.credit.gae import at_last_token, gae, mean_and_variance, moments, value_loss, whiten
from tempo_trl.methods.critic import SeparateCritic, SharedTrunkCritic, refuse_engines_without_a_critic
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.report import log_sums
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask
from tempo_trl.trainers.settings import refuse_rewards_that_are_normalized_first
from tempo_trl.trainers.token_credit import TokenCreditTrainer

CRITIC_FOLDER = "critic"

READ_METRICS = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)  # schedules that depend on an evaluation


@with_help
@dataclass
class PPOConfig(TokenCreditConfig):
    r"""
    Configuration class for the [`PPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    except for those below. Table numbers are those of the TEMPO paper (https://huggingface.co/papers/2509.18314),
    which uses PPO as a baseline.

    Args:
        gae_gamma (`float`, *optional*, defaults to `1.0`):
            Discount of a token, from 0 to 1 (table 2).
        gae_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of generalised advantage estimation, from 0 to 1 (table 2). 1 is return minus value.
        whiten_advantages (`bool`, *optional*, defaults to `True`):
            Whether to scale the advantages of a generation batch, over all ranks, to mean 0 and variance 1. The paper
            does not specify it; verl, the paper's framework, does it.
        critic_model_name_or_path (`str`, *optional*):
            Model that the critic starts from, with its value head if it has one with a single label. Defaults to the
            policy as it is in memory, adapters merged, with a value head of zeros.
        shared_trunk (`bool`, *optional*, defaults to `False`):
            Whether the critic is a linear value head on the policy's last hidden state instead of a separate model.
            The paper has a critic of the actor's size.
        critic_learning_rate (`float`, *optional*, defaults to `1e-5`):
            Learning rate of the critic, or of the value head. Table 2 has one learning rate, 1e-6, and does not say
            whether it is the actor's or the critic's; verl uses 1e-5 for critics. Schedule, warmup, Adam's
            parameters, weight decay and `max_grad_norm` are the actor's.
        value_coef (`float`, *optional*, defaults to `0.1`):
            Coefficient of the value loss, which is added to the policy's loss with `shared_trunk`. Not used without.
        beta (`float`, *optional*, defaults to `1e-4`):
            Coefficient of the KL penalty (table 2); TRL's default is 0.
        num_iterations (`int`, *optional*, defaults to `2`):
            Inner epochs over a generation batch (table 2); TRL's default is 1.
    """

    gae_gamma: float = 1.0
    gae_lambda: float = 1.0
    whiten_advantages: bool = True
    critic_model_name_or_path: str | None = None
    shared_trunk: bool = False
    critic_learning_rate: float = 1e-5
    value_coef: float = 0.1
    beta: float = 1e-4
    num_iterations: int = 2

    def check(self) -> None:
        """Validate PPO's settings and reject TRL options that would silently have no effect."""
        super().check()
        check_number("gae_gamma", self.gae_gamma, 1)
        check_number("gae_lambda", self.gae_lambda, 1)
        check_number("critic_learning_rate", self.critic_learning_rate)
        check_number("value_coef", self.value_coef)
        refuse_rewards_that_are_normalized_first(self, "PPO's reward is the weighted sum")
        other_model = self.shared_trunk and self.critic_model_name_or_path is not None
        reads_metrics, groups = self.lr_scheduler_type in READ_METRICS, self.scale_rewards not in ("group", True)
        compiled = self.torch_compile and self.shared_trunk
        refused = {
            "torch_compile": (
                compiled,
                "a compiled trunk may not show its hidden states to the critic. Unset it or `shared_trunk`",
            ),
            "critic_model_name_or_path": (other_model, "`shared_trunk` reads no other model. Unset one of the two"),
            "scale_rewards": (groups, "PPO compares no groups. Leave it unset; `whiten_advantages` is its scaling"),
            "skip_zero_advantages": (self.skip_zero_advantages, "the critic learns from all rows. Leave it unset"),
            "lr_scheduler_type": (reads_metrics, "the critic has no metric. Use 'linear' or 'cosine'"),
            "fp16": (self.fp16, "the critic has no loss scaling. Use `bf16=True`, or full precision"),
        }
        refuse(self, refused)


class PPOTrainer(TokenCreditTrainer):
    """
    Trainer for PPO (https://huggingface.co/papers/1707.06347) with a learned critic: the baseline of the TEMPO paper
    (https://huggingface.co/papers/2509.18314, table 2). With respect to [`~trl.GRPOTrainer`] the advantage of a token
    comes from generalised advantage estimation over a critic's values instead of from the group, and the critic is
    trained beside the policy. Generation, rewards, clipped loss, KL term, logging and saving are TRL's.

    By default the critic is a model of the actor's size. Every rank holds its float32 weights, gradients and AdamW
    state: 16 bytes per parameter in addition to the policy's memory. With `shared_trunk=True` it is a linear value
    head on the policy, which costs almost nothing. Each checkpoint saves the critic in `checkpoint-N/critic`, and runs
    resume from it exactly. The final model and the Hub do not contain it.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`PPOConfig`].

    Raises:
        ValueError: if `args` is not a [`PPOConfig`] or has options that PPO does not support (fp16, another scaling
            of rewards than the group's), with ZeRO-3 and FSDP, for a vision-language model, and if no critic can be
            loaded; in training, on every rank, if an advantage is NaN or infinite.

    Note:
        What the papers do not specify:

        - The reward is TRL's weighted sum of reward functions, on a completion's last sampled token, and the value
          after that token is 0, for truncated completions too. A completion that no function scored (all `None`)
          trains neither policy nor critic, but TRL's KL term still applies to it.
        - Tokens of tools are part of the state, but not time steps.
        - The KL penalty is TRL's term of the loss (k3).
        - Clipping is symmetric, at TRL's `epsilon` 0.2: table 2 has 0.28 for GRPO, HEPO and TEMPO only.
        - Advantages are whitened over the tokens of a whole generation batch, of all ranks, before it is split.
        - The critic's loss is 0.5 (V - return)^2, averaged over the tokens of an optimizer step. With more than one
          step per generation the loss is divided by the mean number of tokens of a step, as in TRL's "dapo".
        - All inner epochs use the values and returns computed at sampling time.
        - The critic's dropout is 0. With `peft_config` only the actor has adapters: a separate critic is trained in
          full, and a shared trunk learns values through the adapters.
        - Groups of `num_generations` affect sampling only. The off-policy mask uses the mean advantage of a
          completion's tokens. In evaluation nothing is learned, and the advantages are GRPO's.

        Logged as `ppo/*`. For each sampled batch: the mean of the values, the share of the returns' variance that they
        explain. For each step: the critic's loss, and its gradient norm before clipping. With `shared_trunk` the
        logged loss includes `value_coef` times the critic's. TRL's `step_time` does not include the critic's time,
        which trackers get as TRL's `profiling/Time taken: PPOTrainer.critic`.
    """

    _tag_names = ["trl", "ppo"]
    _name = "PPO"
    _paper = arxiv_paper(
        "1707.06347",
        "schulman2017proximal",
        "Proximal Policy Optimization Algorithms",
        "John Schulman and Filip Wolski and Prafulla Dhariwal and Alec Radford and Oleg Klimov",
    )

    _config_cls = PPOConfig

    method_name = "ppo"

    def _prepare_credit(self):
        refuse_engines_without_a_critic(self)
        self.critic = (SharedTrunkCritic if self.args.shared_trunk else SeparateCritic)(self)
        self._loss_sums = torch.zeros(2, device=self.accelerator.device)  # value loss and tokens since the last step
        self._micro_batches: list[dict] = []  # of the policy's training step, for the critic's

    @classmethod
    def _has_own_credit(cls):
        return True  # from the critic, TRL's prompts and all ranks, not from a Batch: see [`_own_credit`]

    def _tree_obstacle(self):
        if self.args.shared_trunk:
            return "with shared_trunk the critic needs the policy's hidden states row by row (set shared_trunk=False)"
        return None

    # Credit: when a batch has been sampled and scored

    def _kept(self, report):
        # Keeps none: after an error within the credit's collectives this rank would meet the others in another one.
        return nullcontext()

    def _own_credit(self, batch: Batch, rows: ScoredRows) -> Credit:
        own = rows.place.own
        outcome, reference = batch.advantages[own].nan_to_num(0.0), batch.outcome[own].float().nan_to_num(0.0)
        if not batch.training:  # an evaluation trains nothing, and logs its loss with TRL's advantages
            return Credit(outcome, torch.zeros(rows.output["completion_ids"].shape), reference=reference)
        advantages = self._advantages(batch.rewards[own].to(self.accelerator.device), rows.output).cpu()
        return Credit(advantages, advantages - reference[:, None], reference=reference)

    def _advantages(self, rewards: torch.Tensor, output: dict) -> torch.Tensor:
        """GAE over the critic's values, `(B, T)`. Adds the critic's targets to the batch `output`."""
        mask = loss_mask(output) * ~rewards.isnan().unsqueeze(1)  # unscored completions train nothing
        token_rewards = at_last_token(rewards, mask)
        values = self._values(output)
        advantages, returns = gae(token_rewards, values, mask, self.args.gae_gamma, self.args.gae_lambda)
        number, mean, variance = self._log_batch(advantages, returns, values, mask)
        if not (mean.isfinite() and variance.isfinite()):  # sums over all ranks, so that all of them raise
            raise ValueError(
                "PPO's advantages must be finite, got NaN or infinity: a reward is infinite, or the critic has "
                "diverged. Bound the rewards, or lower `critic_learning_rate`."
            )
        if self.args.whiten_advantages:
            advantages = whiten(advantages, mask, mean, variance)
        output |= {"values": values, "returns": returns, "value_mask": mask, "num_value_tokens": number}
        return advantages

    def _use(self, output, credit):
        super()._use(output, credit)
        if "value_mask" in output:  # the off-policy mask reads the sign of a completion's mean advantage
            mask = output["value_mask"]
            output["outcome"] = output["advantages"].sum(dim=1) / mask.sum(dim=1).clamp(min=1)

    @torch.no_grad()
    def _values(self, output: dict) -> torch.Tensor:
        """The critic's value before each token, `(B, T)`, in micro-batches."""
        texts, rows = _whole(output), self.args.per_device_train_batch_size
        if self.args.shared_trunk:
            width = output["completion_ids"].shape[1]
            with self.critic.watch() as values:
                self._get_per_token_logps_and_entropies(self.model, *texts, width, rows)
        else:
            parts = zip(*(tensor.split(rows) for tensor in texts), strict=True)
            values = [self.critic.values(*part) for part in parts]
        return _before_each_token(torch.cat(values), output)

    def _log_batch(self, advantages, returns, values, mask) -> tuple[torch.Tensor, ...]:
        """Log the batch's `ppo/*` over all ranks. Returns number, mean and variance of its advantages."""
        local = torch.stack([moments(x, mask) for x in (advantages, returns, returns - values, values)])
        totals = self.accelerator.reduce(local, reduction="sum")
        (mean, variance), (_, spread), (_, error), (value_mean, _) = map(mean_and_variance, totals)
        metrics = self._metrics["train"]
        metrics["ppo/value_mean"].append(value_mean.item())
        metrics["ppo/explained_variance"].append((1 - error / spread).item() if spread else 0.0)
        return totals[0, 0], mean, variance

    # Learning: the policy's loss, and the critic's

    def _loss(self, model, inputs: dict, compute_loss: Callable) -> torch.Tensor:
        if model.training and "returns" in inputs:
            self._micro_batches.append(inputs)
        if not (self.args.shared_trunk and "returns" in inputs):
            return super()._loss(model, inputs, compute_loss)
        with self.critic.watch() as seen:
            loss = super()._loss(model, inputs, compute_loss)
        return loss + self.args.value_coef * self._value_loss(seen[-1], inputs)

    def _value_loss(self, values: torch.Tensor, inputs: dict) -> torch.Tensor:
        """
        Value loss of a micro-batch from the values after each position: its part of the mean over an optimizer step's
        tokens, as in TRL's "dapo".
        """
        mask = inputs["value_mask"]
        loss = value_loss(_before_each_token(values, inputs), inputs["returns"], mask).sum()
        self._loss_sums += torch.stack([loss.detach(), mask.sum()])
        steps = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        return loss * self.accelerator.num_processes * steps / inputs["num_value_tokens"].clamp(min=1).to(loss.dtype)

    def _after_backward(self):
        """The critic's step on a micro-batch, after the policy's activations are freed."""
        micro_batches, self._micro_batches = self._micro_batches, []
        with profiling_context(self, "critic"):  # which TRL's `step_time` leaves out
            for micro_batch in [] if self.args.shared_trunk else micro_batches:
                self._value_loss(self.critic.values(*_whole(micro_batch)), micro_batch).backward()
            norm = self.critic.step() if self.accelerator.sync_gradients else None
        if norm is not None:
            self._log_step(norm)

    def _log_step(self, norm: float) -> None:
        log_sums(self, "ppo", {"value_loss": tuple(self._loss_sums.tolist())})
        self._loss_sums.zero_()
        self._metrics["train"]["ppo/critic_grad_norm"].append(norm)

    # Starting, saving, resuming

    def create_scheduler(self, num_training_steps, optimizer=None):
        """The policy's schedule, as transformers creates it. The critic's run starts here, too."""
        self.critic.start(num_training_steps)
        self._loss_sums.zero_()
        self._micro_batches.clear()
        return super().create_scheduler(num_training_steps, optimizer)

    def _save_method(self, checkpoint):
        super()._save_method(checkpoint)
        self.critic.save(checkpoint / CRITIC_FOLDER, self.args.save_only_model)

    def _load_method(self, checkpoint):
        super()._load_method(checkpoint)
        self.critic.load(checkpoint / CRITIC_FOLDER)


def _whole(inputs: dict) -> Iterator[torch.Tensor]:
    """Token ids and attention mask of prompts and their completions, `(B, P + T)` each."""
    return (torch.cat([inputs[f"prompt_{kind}"], inputs[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask"))


def _before_each_token(values: torch.Tensor, inputs: dict) -> torch.Tensor:
    """Values before each token of the completion, `(B, T)`, from the values after each position, `(B, P + T)`."""
    return values[:, -inputs["completion_ids"].shape[1] - 1 : -1]
