"""Fields of public recipes that TRL or transformers 5 renamed or dropped, or that are a script's own."""

from tempo_trl.removed import FORMER

RENAMED = {
    "dataset_id_or_path": "dataset_name",
    "epsilon_low": "epsilon",
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "reward_model_path": "reward_model_name_or_path",
    "torch_dtype": "dtype",
    "use_liger_loss": "use_liger_kernel",
    "vllm_guided_decoding_regex": "vllm_structured_outputs_regex",
    "vllm_max_model_len": "vllm_max_model_length",
    "wandb_log_unique_prompts": "log_unique_prompts",
}
# What to do instead.
DROPPED = {
    "adafactor": "set `optim: adafactor`",
    "fp16_backend": "remove it",
    "group_by_length": "remove it: GRPO has its own order of prompts",
    "half_precision_backend": "remove it",
    "include_tokens_per_second": "remove it: TRL logs `num_tokens`",
    "jit_mode_eval": "remove it",
    "logging_dir": "set `TENSORBOARD_LOGGING_DIR` under `env`",
    "max_prompt_length": "filter long prompts out of the dataset",
    "overwrite_output_dir": "remove it; `resume_from_checkpoint: last` resumes a run",
    "save_safetensors": "remove it: weights are always saved so",
    "tokenizer_name_or_path": "remove it: the tokenizer is that of the model",
    "use_mps_device": "remove it",
    "vllm_device": "set `vllm_mode` to colocate or server",
    "vllm_dtype": "remove it",
    "vllm_enable_prefix_caching": "remove it",
    "warmup_ratio": "set `warmup_steps` to the share, such as 0.03",
}


def renamed_hint(name: str) -> str | None:
    """What to write instead of a field that is gone; None for any other name."""
    if name in RENAMED | FORMER:
        return f"`{name}` is called `{(RENAMED | FORMER)[name]}` now"
    return f"`{name}` is gone: {DROPPED[name]}" if name in DROPPED else None
