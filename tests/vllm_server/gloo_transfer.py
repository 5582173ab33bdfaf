"""Weights to a vLLM server over gloo, for machines without a GPU: TRL and vLLM carry them over NCCL.

The HTTP messages, the order of the tensors and the loading are TRL's and vLLM's; only the broadcast is replaced. vLLM
finds the engine as a plugin (see server.py), the trainer gets its side by `replace_transport`.
"""

import ctypes
import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

PATIENCE = timedelta(seconds=300)


def register() -> None:
    """Entry point of vLLM's plugins, called in each of its processes."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if "gloo" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("gloo", f"{__package__}.gloo_engine", "GlooWeightTransferEngine")


def join(address: str, port: int, rank: int, world_size: int) -> ProcessGroupGloo:
    """The group of trainer (rank 0) and server workers."""
    # A store of its own: under torchrun, `init_process_group` would take the launcher's and wait for ever.
    store = TCPStore(address, port, world_size, rank == 0, PATIENCE, wait_for_workers=False)
    return ProcessGroupGloo(PrefixStore("weights", store), rank, world_size, PATIENCE)


def replace_transport(kill: tuple[int, int] | None = None) -> None:
    """Let TRL's client send weights over gloo; `kill` has a process id and the update in which it dies."""
    updates = itertools.count(1)
    import trl.generation.vllm_client as client_module
    import trl.generation.vllm_generation as generation_module

    class GlooClient(client_module.VLLMClient):
        def init_communicator(self, device=0):
            init_info = {
                "master_address": "127.0.0.1",
                "master_port": self.group_port,
                "rank_offset": 1,
                "world_size": self.get_world_size() + 1,
            }
            url = f"{self.base_url}/init_weight_transfer_engine"
            with ThreadPoolExecutor(max_workers=1) as executor:  # the server answers once both have joined
                answer = executor.submit(self._post, url, json={"init_info": init_info})
                self.communicator = join("127.0.0.1", self.group_port, 0, init_info["world_size"])
                answer.result()

        def close_communicator(self):
            self.communicator = None

    def broadcast(iterator, group, src, post_iter_func):
        number = next(updates)
        for item in iterator:
            group.broadcast(post_iter_func(item).contiguous(), src).wait()
            if kill and number == kill[1]:
                os.killpg(kill[0], signal.SIGKILL)
                ctypes.CDLL(None).pause()  # for ever and in C, as NCCL would

    generation_module.VLLMClient = GlooClient
    client_module.packed_nccl_broadcast_producer = broadcast
