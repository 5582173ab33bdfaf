"""One rank that passes objects to and from the main process, _ FOLDER.

Saves what it was given to FOLDER/rank{r}.pt, with the bytes of each tensor that it handed to torch.distributed.
"""

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tempo_trl.rollout.ranks import gather_on_main, scatter_from_main, send_to_main

LARGE = 100_000


def count(name: str, sent: list) -> None:
    """Count the bytes of the tensors that a function of torch.distributed is called with."""
    plain = getattr(distributed_c10d, name)

    def counting(*args, **kwargs):
        tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        sent.append((name, sum(x.numel() * x.element_size() for x in tensors)))
        return plain(*args, **kwargs)

    setattr(distributed_c10d, name, counting)


def main(_: str, folder: str) -> None:
    dist.init_process_group("gloo")
    rank, sent = dist.get_rank(), []
    for name in ("send", "recv", "all_gather", "gather", "scatter", "broadcast", "all_reduce"):
        count(name, sent)
    given = {"gathered": gather_on_main({"rank": rank})}
    given["scattered"] = scatter_from_main([f"for {r}" for r in range(3)] if rank == 0 else None)
    sent.clear()
    given["sent"] = send_to_main(bytes(LARGE if rank == 0 else 10 * rank), senders=2)
    torch.save(given | {"bytes": list(sent)}, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()
