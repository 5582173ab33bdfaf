"""PPO: a learned critic in the place of GRPO's group, and TRL's own rollout, rewards and clipped loss."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import SchedulerType
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from tempo_trl.credit.gae import at_last_token, gae, mean_and_variance, moments, value_loss, whiten
from tempo_trl.methods.critic import SeparateCritic, SharedTrunkCritic, refuse_engines_without_a_critic
from tempo_trl.trainers.batch import Batch, Credit
from tempo_trl.trainers.config import TokenCreditConfig
from tempo_trl.trainers.credit_log import log_sums
from tempo_trl.trainers.replaced import recorded_calls, replaced
from tempo_trl.trainers.token_credit import TokenCreditTrainer
from tempo_trl.trainers.whole_groups import Place, loss_mask
from tempo_trl.tree_forward.stopwatch import Stopwatch

CRITIC_FOLDER = "critic"

KL_PLACES = ("loss", "reward")
READ_METRICS = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)  # schedules that wait for an evaluation


@dataclass
class PPOConfig(TokenCreditConfig):
    r"""
    Configuration class for the [`PPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    except for those below. Tables are those of the TEMPO paper (https://huggingface.co/papers/2509.18314), whose
    baseline this is.

    Args:
        gae_gamma (`float`, *optional*, defaults to `1.0`):
            Discount of a token, from 0 to 1 (table 2).
        gae_lambda (`float`, *optional*, defaults to `1.0`):
            Lambda of generalised advantage estimation, from 0 to 1 (table 2). 1 is return minus value.
        whiten_advantages (`bool`, *optional*, defaults to `True`):
            Whether to give the advantages of a generation batch, over all ranks, mean 0 and variance 1. The paper
            does not say; verl, which it trained with, does.
        critic_model_name_or_path (`str`, *optional*):
            Model that the critic starts from, with its value head where it has one of a single label. Unset it is the
            actor's, with a value head of zeros.
        shared_trunk (`bool`, *optional*, defaults to `False`):
            Whether the critic is a linear value head on the policy's last hidden state instead of a model of its own.
            The paper has a critic of the actor's size.
        critic_learning_rate (`float`, *optional*, defaults to `1e-5`):
            Learning rate of the critic, or of the value head. Table 2 has one learning rate, 1e-6, and does not say
            whose; 1e-5 is verl's for critics. Schedule, warmup, Adam's parameters, weight decay and `max_grad_norm`
            are the actor's.
        value_coef (`float`, *optional*, defaults to `0.1`):
            Coefficient of the value loss beside the policy's with `shared_trunk`; without it nothing is shared and
            the coefficient has no say.
        value_clip_range (`float`, *optional*):
            How far a value may move from the one at sampling time before it earns nothing more; `None` for any.
        kl_in (`str`, *optional*, defaults to `"loss"`):
            Where the KL penalty acts: `"loss"` adds TRL's term to the policy's loss, `"reward"` takes beta (log old -
            log reference) off each token's reward.
        beta (`float`, *optional*, defaults to `1e-4`):
            Coefficient of the KL penalty (table 2); TRL's default is 0.
        num_iterations (`int`, *optional*, defaults to `2`):
            Inner epochs over a generation batch (table 2); TRL's default is 1.
    """

    gae_gamma: float = field(default=1.0, metadata={"help": "Discount of a token, from 0 to 1."})
    gae_lambda: float = field(
        default=1.0, metadata={"help": "Lambda of generalised advantage estimation, from 0 to 1: 1 is return - value."}
    )
    whiten_advantages: bool = field(
        default=True,
        metadata={"help": "Whether to whiten the advantages over all tokens of a generation batch, of all ranks."},
    )
    critic_model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Model that the critic starts from. Unset it is the actor's, with a value head of zeros."},
    )
    shared_trunk: bool = field(
        default=False,
        metadata={"help": "Whether the critic is a value head on the policy itself instead of a model of its own."},
    )
    critic_learning_rate: float = field(
        default=1e-5,
        metadata={"help": "Learning rate of the critic, or of the value head with `shared_trunk`."},
    )
    value_coef: float = field(
        default=0.1, metadata={"help": "Coefficient of the value loss beside the policy's; only with `shared_trunk`."}
    )
    value_clip_range: float | None = field(
        default=None,
        metadata={"help": "How far a value may usefully move from the one at sampling time; None for no clipping."},
    )
    kl_in: str = field(
        default="loss",
        metadata={"help": "Where the KL penalty acts: `loss` (TRL's term) or `reward` (of each token)."},
    )
    beta: float = field(
        default=1e-4,
        metadata={"help": "KL coefficient. The TEMPO paper's PPO has 1e-4. If 0, no reference model is loaded."},
    )
    num_iterations: int = field(
        default=2, metadata={"help": "Inner epochs over a generation batch. The TEMPO paper's PPO has 2."}
    )

    def check(self) -> None:
        """Raise ValueError for what is no PPO, and for what of TRL would be silently without effect."""
        super().check()
        self._check_numbers()
        if self.kl_in not in KL_PLACES:
            raise ValueError(f"`kl_in` must be one of {KL_PLACES}, got {self.kl_in!r}.")
        if self.shared_trunk and self.critic_model_name_or_path is not None:
            raise ValueError(
                "`shared_trunk` makes the policy itself the critic's trunk, so `critic_model_name_or_path`="
                f"{self.critic_model_name_or_path!r} would not be read. Unset one of the two."
            )
        self._refuse_what_belongs_to_groups()
        if self.lr_scheduler_type in READ_METRICS:
            raise ValueError(
                f"`lr_scheduler_type` is {SchedulerType(self.lr_scheduler_type).value!r}, which waits for a metric, "
                "and the critic's schedule has none. Take one that counts steps: 'linear', 'cosine', 'constant', ..."
            )
        if self.fp16:
            raise ValueError(
                "`fp16` scales the policy's loss against underflow, and the critic's gradients have no such scaling. "
                "Take `bf16=True`, or neither."
            )

    def _check_numbers(self) -> None:
        for name in ("gae_gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must lie between 0 and 1, got {getattr(self, name)!r}.")
        for name in ("critic_learning_rate", "value_coef"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {getattr(self, name)!r}.")
        if self.value_clip_range is not None and not self.value_clip_range > 0.0:
            raise ValueError(f"`value_clip_range` must be above 0, or None, got {self.value_clip_range!r}.")

    def _refuse_what_belongs_to_groups(self) -> None:
        if self.scale_rewards not in ("group", True):
            raise ValueError(
                f"`scale_rewards`={self.scale_rewards!r} would do nothing: PPO's advantages come from the critic, not "
                "from the group. Leave it unset; `whiten_advantages` is PPO's scaling."
            )
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"`multi_objective_aggregation`={self.multi_objective_aggregation!r} normalizes rewards within "
                "groups, of which PPO knows none: its reward is the weighted sum. Leave it unset."
            )


class PPOTrainer(TokenCreditTrainer):
    """
    Trainer for PPO (https://huggingface.co/papers/1707.06347) with a learned critic: the baseline of the TEMPO paper
    (https://huggingface.co/papers/2509.18314, table 2). With respect to [`~trl.GRPOTrainer`] the advantage of a token
    comes from generalised advantage estimation over a critic's values instead of from the group, and the critic is
    trained beside the policy. Generation, rewards, clipped loss, KL term, logging and saving are TRL's.

    The critic is a model of the actor's size (`shared_trunk=False`), held in float32 with AdamW, gradient and all on
    every rank: 16 bytes a parameter beside the policy's memory. Or it is a linear value head on the policy
    (`shared_trunk=True`), which costs next to nothing. Each checkpoint has it in `checkpoint-N/critic`, from which a
    run resumes exactly; the final model and what is pushed of it do not.

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`PPOConfig`].

    Raises:
        ValueError: if `args` is not one or holds what PPO cannot go with (group scaling of rewards, fp16), under
            ZeRO-3 and FSDP, for a vision-language model, and where no critic can be made of the model that is named.

    Note:
        Where the papers leave a choice:

        - The reward is TRL's weighted sum of reward functions, on a completion's last sampled token, and the value
          after that token is 0, for truncated completions too. A completion that no function scored (all `None`)
          trains neither policy nor critic; TRL's KL term still holds it to the reference.
        - Tokens of tools are part of the state and no step of time.
        - The KL penalty is TRL's term of the loss (k3). With `kl_in="reward"` it is beta (log old - log reference)
          off each token's reward (k1), and the loss has none.
        - Clipping is symmetric, at TRL's `epsilon` 0.2: table 2 names 0.28 for GRPO, HEPO and TEMPO alone.
        - Advantages are whitened over the tokens of a whole generation batch, of all ranks, before it is split.
        - The critic's loss is 0.5 (V - return)^2, averaged over the tokens of an optimizer step. With more than one
          step a generation the number of tokens in a step is that of the mean step, as in TRL's "dapo".
        - Values and returns are those at the time of sampling in all inner epochs.
        - The critic's dropout is 0. With `peft_config` the actor alone has adapters; a separate critic is trained in
          full, and a shared trunk learns values through the adapters.
        - Groups of `num_generations` are only how TRL samples; the off-policy mask looks at the mean advantage of a
          completion's tokens. In evaluation nothing is learned and the advantages are GRPO's.

        Logged as `ppo/*`: the values' mean, the share of the returns' variance that they explain and, with
        `kl_in="reward"`, the mean `kl` (k1) when a batch was sampled; the critic's loss, gradient norm before clipping
        and time in seconds (which TRL's `step_time` lacks) each step. With `shared_trunk` the logged loss has
        `value_coef` times the critic's in it.
    """

    _tag_names = ["trl", "ppo"]
    _name = "PPO"
    _paper = {
        "title": "Proximal Policy Optimization Algorithms",
        "id": "1707.06347",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{schulman2017proximal,
                title        = {{Proximal Policy Optimization Algorithms}},
                author       = {John Schulman and Filip Wolski and Prafulla Dhariwal and Alec Radford and Oleg Klimov},
                year         = 2017,
                eprint       = {arXiv:1707.06347},
            }"""),
    }

    _config_cls = PPOConfig

    method_name = "ppo"

    def _credit_function(self):
        """Nothing of a [`Batch`] alone: credit needs the critic, TRL's prompts and all ranks. Makes the critic."""
        refuse_engines_without_a_critic(self)
        self.critic = (SharedTrunkCritic if self.args.shared_trunk else SeparateCritic)(self)
        self._loss_sums = torch.zeros(2, device=self.accelerator.device)  # value loss and tokens since the last step
        self._watch = Stopwatch(self.accelerator.device)
        return None

    def _tree_obstacle(self):
        if self.args.shared_trunk:
            return "with shared_trunk the critic reads the policy's hidden states row by row (shared_trunk=False)"
        return None

    # Credit: when a batch has been sampled and scored

    def _own_credit(self, batch: Batch, place: Place, output: dict) -> Credit:
        outcome = batch.outcome[place.own].nan_to_num(0.0)
        td = torch.zeros(output["completion_ids"].shape)
        if not batch.training:
            return Credit(outcome, td)  # nothing is learned from an evaluation, and TRL's advantages serve its loss
        advantages = self._advantages(batch.rewards[place.own].to(self.accelerator.device), output).cpu()
        return Credit(advantages, advantages - outcome[:, None])

    def _advantages(self, rewards: torch.Tensor, output: dict) -> torch.Tensor:
        """GAE over the critic's values, `(B, T)`; what the critic is to learn goes into the batch."""
        mask = loss_mask(output) * ~rewards.isnan().unsqueeze(1)  # what no function scored trains nothing
        token_rewards = at_last_token(rewards, mask)
        if self.args.kl_in == "reward" and self.beta != 0.0:
            token_rewards = token_rewards - self.beta * self._kl(output, mask)
        values = self._values(output)
        advantages, returns = gae(token_rewards, values, mask, self.args.gae_gamma, self.args.gae_lambda)
        number, mean, variance = self._log_batch(advantages, returns, values, mask)
        if self.args.whiten_advantages:
            advantages = whiten(advantages, mask, mean, variance)
        output |= {"values": values, "returns": returns, "value_mask": mask, "num_value_tokens": number}
        return advantages

    def _use(self, output, credit, recount):
        super()._use(output, credit, recount)
        if "value_mask" in output:  # the off-policy mask reads the sign of a completion's mean advantage
            mask = output["value_mask"]
            output["outcome_advantages"] = output["advantages"].sum(dim=1) / mask.sum(dim=1).clamp(min=1)

    def _kl(self, output: dict, mask: torch.Tensor) -> torch.Tensor:
        """log old - log reference of each token, `(B, T)`; logs its mean."""
        old = output.get("old_per_token_logps")
        if old is None:  # TRL leaves them out where the first update is on policy and there is no second
            old = self._policy_forward(output)
        kl = old - output["ref_per_token_logps"]
        log_sums(self, "ppo", {"kl": ((kl * mask).sum().item(), mask.sum().item())})
        return kl

    @torch.no_grad()
    def _policy_forward(self, output: dict) -> torch.Tensor:
        """Log-probabilities of the completions under the policy as it is, in micro-batches."""
        input_ids, attention_mask = (
            torch.cat([output[f"prompt_{kind}"], output[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask")
        )
        width, rows = output["completion_ids"].shape[1], self.args.per_device_train_batch_size
        return self._get_per_token_logps_and_entropies(self.model, input_ids, attention_mask, width, rows)[0]

    @torch.no_grad()
    def _values(self, output: dict) -> torch.Tensor:
        """What the critic says before each token, `(B, T)`."""
        if self.args.shared_trunk:
            with self.critic.watch() as seen:
                self._policy_forward(output)
            return _before_each_token(torch.cat(seen), output)
        rows, names = self.args.per_device_train_batch_size, ("prompt_ids", "prompt_mask")
        names += ("completion_ids", "completion_mask")
        parts = zip(*(output[name].split(rows) for name in names), strict=True)
        return torch.cat([self.critic.values(dict(zip(names, part, strict=True))) for part in parts])

    def _log_batch(self, advantages, returns, values, mask) -> tuple[torch.Tensor, ...]:
        """Log the batch's `ppo/*` over all ranks; number, mean and variance of its advantages."""
        local = torch.stack([moments(x, mask) for x in (advantages, returns, returns - values, values)])
        totals = self.accelerator.reduce(local, reduction="sum")
        (mean, variance), (_, spread), (_, error), (value_mean, _) = map(mean_and_variance, totals)
        metrics = self._metrics["train"]
        metrics["ppo/value_mean"].append(value_mean.item())
        metrics["ppo/explained_variance"].append((1 - error / spread).item() if spread else 0.0)
        return totals[0, 0], mean, variance

    # Learning: the policy's loss, and the critic's

    def _loss(self, model, inputs: dict, compute_loss: Callable) -> torch.Tensor:
        # In the reward the penalty has been taken already.
        with replaced(self, beta=0.0 if self.args.kl_in == "reward" else self.beta):
            if not (self.args.shared_trunk and "returns" in inputs):
                return super()._loss(model, inputs, compute_loss)
            with self.critic.watch() as seen:
                loss = super()._loss(model, inputs, compute_loss)
        return loss + self.args.value_coef * self._value_loss(_before_each_token(seen[-1], inputs), inputs)

    def _value_loss(self, values: torch.Tensor, inputs: dict) -> torch.Tensor:
        """This micro-batch's part of the mean over the tokens of an optimizer step, normalized as TRL's "dapo"."""
        mask = inputs["value_mask"]
        loss = value_loss(values, inputs["returns"], inputs["values"], mask, self.args.value_clip_range).sum()
        self._loss_sums += torch.stack([loss.detach(), mask.sum()])
        steps = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        return loss * self.accelerator.num_processes * steps / inputs["num_value_tokens"].clamp(min=1).to(loss.dtype)

    def training_step(self, model, inputs, num_items_in_batch):
        """TRL's step on a micro-batch of the policy, then the critic's: the policy's activations are gone by then."""
        with recorded_calls(self, "_compute_loss") as calls:
            loss = super().training_step(model, inputs, num_items_in_batch)
        with self._watch.running():
            for call in calls["_compute_loss"]:
                micro_batch = call.arguments[1]
                if not self.args.shared_trunk and "returns" in micro_batch:
                    self._value_loss(self.critic.values(micro_batch), micro_batch).backward()
            norm = self.critic.step() if self.accelerator.sync_gradients else None
        if norm is not None:
            self._log_step(norm)
        return loss

    def _log_step(self, norm: float) -> None:
        log_sums(self, "ppo", {"value_loss": tuple(self._loss_sums.tolist())})
        self._loss_sums.zero_()
        self._metrics["train"]["ppo/critic_grad_norm"].append(norm)
        self._metrics["train"]["ppo/critic_time"].append(self._watch.pop())

    # Beginning, saving, going on

    def create_scheduler(self, num_training_steps, optimizer=None):
        """The policy's schedule, as transformers makes it; the critic's run begins with it."""
        self.critic.start(num_training_steps)
        return super().create_scheduler(num_training_steps, optimizer)

    def _save_checkpoint(self, model, trial):
        # First: the checkpoint is whole, and may be pushed, once TRL's part of it is there.
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            self.critic.save(folder / CRITIC_FOLDER, self.args.save_only_model)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.critic.load(Path(checkpoint, CRITIC_FOLDER))


def _before_each_token(values: torch.Tensor, inputs: dict) -> torch.Tensor:
    """Of the values after each position, `(B, P + T)`, those before each token of the completion, `(B, T)`."""
    return values[:, -inputs["completion_ids"].shape[1] - 1 : -1]
