"""The precision of log-probabilities when they leave a model."""

from dataclasses import replace

import torch
from accelerate import Accelerator


def keep_outputs_in_float32(accelerator: Accelerator) -> None:
    """
    Under FSDP2 with mixed precision, let log-probabilities leave the model in float32.

    accelerate's policy for FSDP2 casts what leaves the model to half precision, after accelerate's own conversion of
    outputs to float32. Log-probabilities are then rounded, by 0.008 nats on average on a small model in bfloat16, and
    so are all ratios, KL terms and entropies that are made of them. What is inside the model computes as before.

    Called before any model is prepared: the policy is read then, for the reference model as for the policy.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None or plugin.fsdp_version != 2 or plugin.mixed_precision_policy is None:
        return
    if plugin.mixed_precision_policy.output_dtype in (torch.bfloat16, torch.float16):
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, output_dtype=None)
