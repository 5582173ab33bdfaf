"""Send Python objects between the main process and other ranks, only to those that need them."""

import torch.distributed as dist


def gather_on_main(own: object) -> list | None:
    """The objects of all ranks, in rank order, on the main process; None elsewhere. Every rank must call this."""
    if _ranks() == 1:
        return [own]
    parts = [None] * _ranks() if dist.get_rank() == 0 else None
    dist.gather_object(own, parts, dst=0)
    return parts


def scatter_from_main(parts: list | None) -> object:
    """This rank's object from the main process's list of one per rank. Every rank must call this."""
    if _ranks() == 1:
        return parts[0]
    received = [None]
    dist.scatter_object_list(received, parts, src=0)
    return received[0]


def send_to_main(own: object, senders: int) -> list | None:
    """
    The objects of the first ranks, in their order, on the main process; None elsewhere.

    The first `senders` ranks must call this, including the main process; on other ranks it does nothing. A collective
    would pad every object to the size of the largest instead.
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
