"""The server's side of gloo_transfer.py: vLLM's NCCL engine with another broadcast."""

import torch
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

from .gloo_transfer import join


class GlooWeightTransferEngine(NCCLWeightTransferEngine):
    def init_transfer_engine(self, init_info):
        parallel = self.parallel_config
        rank = parallel.data_parallel_index * parallel.world_size + parallel.rank + init_info.rank_offset
        self.group = join(init_info.master_address, init_info.master_port, rank, init_info.world_size)

    def receive_weights(self, update_info):
        announced = zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True)
        self.model.load_weights((name, self._receive(dtype, shape)) for name, dtype, shape in announced)

    def _receive(self, dtype: str, shape: list[int]) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        self.group.broadcast(tensor, 0).wait()
        return tensor

    def shutdown(self):
        self.group = None
