"""The precision of the log-probabilities that a model returns."""

from dataclasses import replace

import torch
from accelerate import Accelerator


def keep_outputs_in_float32(accelerator: Accelerator) -> None:
    """
    Keep the log-probabilities that a model returns in float32 under FSDP2 with mixed precision.

    accelerate's mixed-precision policy for FSDP2 casts the outputs of the model to half precision, after accelerate's
    own conversion to float32. That rounds the log-probabilities (by 0.008 nats on average on a small model in
    bfloat16), and with them all ratios, KL terms and entropies. The computation inside the model does not change.

    Call this before any model is prepared: accelerate reads the policy then, for the reference model, too.
    """
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is None or plugin.fsdp_version != 2 or plugin.mixed_precision_policy is None:
        return
    if plugin.mixed_precision_policy.output_dtype in (torch.bfloat16, torch.float16):
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, output_dtype=None)
