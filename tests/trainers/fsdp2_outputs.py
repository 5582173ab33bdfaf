"""Log-probabilities of a model under FSDP2 in bfloat16, with accelerate's policy and with ours: a process of its own.

accelerate does not apply FSDP2 on a CPU, so the plug-in's policy is applied here as accelerate does: outputs are
converted to float32 by a wrapper of `forward`, and then the layers and the model are sharded.
"""

import json
import os
from types import MethodType, SimpleNamespace

import torch
from accelerate.utils import FullyShardedDataParallelPlugin, convert_outputs_to_fp32
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from trl.trainer.utils import add_fused_lm_head

from tempo_trl.trainers.run import keep_outputs_in_float32

from ..tree_forward.models import model_of


def log_probs(plugin: FullyShardedDataParallelPlugin | None) -> torch.Tensor:
    torch.manual_seed(0)
    model = model_of("qwen3").eval()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.randint(3, 200, (2, 40), generator=torch.Generator().manual_seed(0))
    model.forward = MethodType(
        convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(model.forward.__func__)), model
    )
    if plugin is not None:
        mesh = init_device_mesh("cpu", (1,))
        for module in (*model.model.layers, model):
            fully_shard(module, mesh=mesh, mp_policy=plugin.mixed_precision_policy)
    with torch.no_grad():
        return model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs


def main() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    theirs = log_probs(plugin)
    keep_outputs_in_float32(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))
    ours = log_probs(plugin)
    difference = (theirs.float() - ours.float()).abs()
    print(json.dumps({"theirs": str(theirs.dtype), "ours": str(ours.dtype), "rounding": difference.mean().item()}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
