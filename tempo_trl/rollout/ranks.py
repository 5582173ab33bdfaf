"""Objects that pass between the main process and the other ranks: to those that need them, and to nobody else."""

import torch.distributed as dist


def gather_on_main(own: object) -> list | None:
    """The objects of all ranks, in their order, on the main process; None elsewhere. Every rank calls this."""
    if _ranks() == 1:
        return [own]
    parts = [None] * _ranks() if dist.get_rank() == 0 else None
    dist.gather_object(own, parts, dst=0)
    return parts


def scatter_from_main(parts: list | None) -> object:
    """Of one object per rank, which the main process has, that of this rank. Every rank calls this."""
    if _ranks() == 1:
        return parts[0]
    received = [None]
    dist.scatter_object_list(received, parts, src=0)
    return received[0]


def send_to_main(own: object, senders: int) -> list | None:
    """
    The objects of the first ranks, in their order, on the main process; None elsewhere.

    The first `senders` ranks call this, the main process among them; for the others it does nothing. A collective
    would pad what each of them has to the size of the largest.
    """
    rank = dist.get_rank() if _ranks() > 1 else 0
    if rank:
        if rank < senders:
            dist.send_object_list([own], dst=0)
        return None
    parts = [own]
    for sender in range(1, min(senders, _ranks())):
        received = [None]
        dist.recv_object_list(received, src=sender)
        parts += received
    return parts


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
