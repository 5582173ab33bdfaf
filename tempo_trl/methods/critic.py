"""PPO's critic: a value function with its own optimizer, replicated on every rank.

It is separate from the policy: TRL, DDP, DeepSpeed and vLLM never see it, and it is not saved in the policy's files.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate.utils import broadcast
from safetensors.torch import load_model, save_model
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedModel, get_scheduler
from trl import GRPOTrainer
from trl.trainer.utils import disable_dropout_in_model

MODEL, OPTIMIZER, SCHEDULER = "model.safetensors", "optimizer.pt", "scheduler.pt"


class Critic:
    """
    The parameters of a value function and their training, with AdamW and the actor's schedule and clipping.

    Parameters are float32, even if the actor's are not: at learning rates of 1e-6 to 1e-5 bfloat16 would round an
    update away. All gradients are views of one flat tensor, so ranks reduce a single tensor.

    Args:
        module (`torch.nn.Module`):
            The module to train, on its device.
        trainer ([`~trl.GRPOTrainer`]):
            The trainer whose arguments it uses.
    """

    def __init__(self, module: torch.nn.Module, trainer: GRPOTrainer):
        self.module, self.args = module.train(), trainer.args
        for parameter in module.parameters():
            broadcast(parameter.data)  # as DDP does: ranks may have made new weights, such as those of added tokens
        decayed = trainer.get_decay_parameter_names(module)
        named = list(module.named_parameters())
        self._groups = [
            {"params": [p for n, p in named if n in decayed], "weight_decay": self.args.weight_decay},
            {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
        ]
        self._gradients = torch.zeros(sum(p.numel() for _, p in named), device=trainer.accelerator.device)
        for (_, parameter), gradient in zip(named, self._gradients.split([p.numel() for _, p in named]), strict=True):
            parameter.grad = gradient.view_as(parameter)
        self.optimizer = self.scheduler = None

    def start(self, max_steps: int) -> None:
        """
        Begin a run of `max_steps` steps with a new schedule and without gradients, which a run that was stopped within
        a step leaves. Keep an optimizer that exists, as Trainer does.
        """
        args = self.args
        self._gradients.zero_()
        if self.optimizer is None:
            betas, groups = (args.adam_beta1, args.adam_beta2), [group for group in self._groups if group["params"]]
            # On a GPU torch would take the kernels that hold one more copy of all parameters during a step.
            fused = self._gradients.is_cuda or None
            rate, epsilon = args.critic_learning_rate, args.adam_epsilon
            self.optimizer = torch.optim.AdamW(groups, rate, betas, epsilon, fused=fused)
        self.scheduler = get_scheduler(
            args.lr_scheduler_type,
            self.optimizer,
            num_warmup_steps=args.get_warmup_steps(max_steps),
            num_training_steps=max_steps,
            scheduler_specific_kwargs=args.lr_scheduler_kwargs,
        )

    def step(self) -> float:
        """Average the gradients over all ranks, clip them, step and zero them. Returns the norm before clipping."""
        gradients = self._gradients
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(gradients)
            gradients /= dist.get_world_size()
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.args.max_grad_norm or torch.inf)
        self.optimizer.step()
        self.scheduler.step()
        gradients.zero_()
        return norm.item()

    def save(self, folder: Path, only_model: bool) -> None:
        """Write the critic to `folder`, with the state of optimizer and schedule unless `only_model`."""
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.module, str(folder / MODEL), metadata={"format": "pt"})
        if isinstance(self.module, PreTrainedModel):
            self.module.config.save_pretrained(folder)
        if not only_model:
            torch.save(self.optimizer.state_dict(), folder / OPTIMIZER)
            torch.save(self.scheduler.state_dict(), folder / SCHEDULER)

    def load(self, folder: Path) -> None:
        """Resume from the files that `save` wrote. They must be of a critic of this kind: torch names what is not."""
        if not (folder / MODEL).is_file():
            raise ValueError(
                f"{folder.parent} has no {folder.name}/{MODEL}, expected the critic of a run of PPO. Start a new run "
                "whose model is the checkpoint."
            )
        load_model(self.module, folder / MODEL)  # through the host's memory: the device holds one critic
        for part, file in ((self.optimizer, OPTIMIZER), (self.scheduler, SCHEDULER)):
            if (folder / file).is_file():  # not with `save_only_model`
                part.load_state_dict(torch.load(folder / file, map_location="cpu", weights_only=True))


class SeparateCritic(Critic):
    """A critic with its own model: a token classifier with one label, whose logit is the value."""

    def __init__(self, trainer: GRPOTrainer):
        model = critic_model(trainer).to(trainer.accelerator.device)
        if trainer.args.gradient_checkpointing:
            model.gradient_checkpointing_enable(trainer.args.gradient_checkpointing_kwargs)
        super().__init__(model, trainer)

    def values(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Value of the state after each position, `(B, P + T)` in float32."""
        # Not accelerate's autocast, which is off with DeepSpeed: DeepSpeed casts the policy only.
        with torch.autocast(input_ids.device.type, torch.bfloat16, enabled=self.args.bf16):
            logits = self.module(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        return logits[..., 0].float()


class SharedTrunkCritic(Critic):
    """A linear value head on the policy's last hidden state. Its loss is part of the policy's."""

    def __init__(self, trainer: GRPOTrainer):
        model = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
        self._trunk = model.base_model
        head = torch.nn.Linear(model.config.get_text_config().hidden_size, 1, device=trainer.accelerator.device)
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
        super().__init__(head, trainer)

    @contextmanager
    def watch(self) -> Iterator[list[torch.Tensor]]:
        """Collect the values of every position, `(B, P + T)` in float32, one tensor per forward pass of the policy."""
        seen = []
        handle = self._trunk.register_forward_hook(lambda module, args, output: seen.append(self._of(output)))
        try:
            yield seen
        finally:
            handle.remove()

    def _of(self, output) -> torch.Tensor:
        hidden = output.last_hidden_state
        with torch.autocast(hidden.device.type, enabled=False):
            return self.module(hidden.float()).squeeze(2)


def critic_model(trainer: GRPOTrainer) -> PreTrainedModel:
    """
    A token classifier with one label, in float32, without dropout: the policy as it is in memory, or the model in
    `critic_model_name_or_path`. Its value head is zeros if it is new.

    Raises:
        ValueError: if the model is quantized, has no token classifier, lacks weights, or has too small a vocabulary.
    """
    args, path, policy = trainer.args, trainer.args.critic_model_name_or_path, trainer.model
    remote = {"trust_remote_code": (args.model_init_kwargs or {}).get("trust_remote_code", args.trust_remote_code)}
    config = copy.deepcopy(policy.config) if path is None else AutoConfig.from_pretrained(path, **remote)
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            f"{path or 'the policy'} is quantized, expected full weights: all parameters of the critic are trained. "
            "Set `critic_model_name_or_path` to the model before quantization, or `shared_trunk=True`."
        )
    classifier = AutoModelForTokenClassification
    if path is None:  # the automatic class needs files
        classifier = classifier._model_mapping.get(type(config), None)
    if classifier is None:
        raise ValueError(
            f"transformers has no token classifier for {config.model_type}, which the critic needs. Set "
            "`critic_model_name_or_path` to a model with the same tokenizer that has one, or `shared_trunk=True`."
        )
    config.num_labels = 1
    for name, value in vars(config).items():
        if name.endswith(("dropout", "_pdrop")) and isinstance(value, float):
            setattr(config, name, 0.0)
    model, info = classifier.from_pretrained(
        path,
        config=config,
        state_dict=_weights_in_memory(policy) if path is None else None,
        dtype=torch.float32,
        attn_implementation=policy.config._attn_implementation,
        output_loading_info=True,
        **remote,
    )
    disable_dropout_in_model(model)
    _refuse_a_smaller_vocabulary(model, policy, path)
    _start_the_head_at_zero(model, set(info["missing_keys"]), path)
    return model


def _weights_in_memory(policy: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A copy of the policy's weights, with its adapters merged into them."""
    if hasattr(policy, "merge_and_unload"):  # of PEFT
        return copy.deepcopy(policy).merge_and_unload().state_dict()
    return {name: value.clone() for name, value in policy.state_dict().items()}


def _refuse_a_smaller_vocabulary(critic: PreTrainedModel, policy: PreTrainedModel, path: str) -> None:
    known, needed = (model.get_input_embeddings().weight.shape[0] for model in (critic, policy))
    if known < needed:
        raise ValueError(
            f"The critic of {path} has {known} token embeddings, expected at least the policy's {needed}. Unset "
            "`critic_model_name_or_path`, or set it to a model with the policy's tokenizer."
        )


def _start_the_head_at_zero(model: PreTrainedModel, missing: set[str], path: str) -> None:
    lost = sorted(name for name in missing if name.startswith(f"{model.base_model_prefix}."))
    if lost:
        raise ValueError(
            f"{path or 'the policy'} lacks weights that the critic needs: {', '.join(lost[:3])}, ... Set "
            "`critic_model_name_or_path` to a folder with all weights of the model, also for a policy with an adapter "
            "that cannot be merged into its weights, such as prompt tuning."
        )
    for name, parameter in model.named_parameters():
        if name in missing:
            torch.nn.init.zeros_(parameter)


def refuse_engines_without_a_critic(trainer: GRPOTrainer) -> None:
    """Raise ValueError for engines that shard the policy, what replaces arguments, and policies that read images."""
    plugin = trainer.accelerator.state.deepspeed_plugin
    if plugin is not None and plugin.zero_stage == 3:
        raise ValueError(
            "PPO does not support ZeRO-3, because every rank needs the whole critic. Use ZeRO-2 (zero_stage: 2) or "
            "DDP, with `shared_trunk=True` if memory is short."
        )
    scheduled = plugin is not None and "scheduler" in plugin.deepspeed_config
    if scheduled or trainer.optimizer is not None or trainer.lr_scheduler is not None:
        raise ValueError(
            f"{'the configuration of DeepSpeed has a `scheduler`' if scheduled else '`optimizers` is given'}, which "
            "PPO does not support: the critic follows the arguments. Remove it, and set them (`learning_rate`, "
            "`lr_scheduler_type`, `warmup_steps`, ...) instead."
        )
    if trainer.is_fsdp_enabled:
        raise ValueError(
            "PPO does not support FSDP, because every rank needs the whole critic. Use DDP or DeepSpeed ZeRO-2, with "
            "`shared_trunk=True` if memory is short."
        )
    if trainer._is_vlm:
        raise ValueError("PPO does not support vision-language models: its critic reads text only. Use a text model.")
