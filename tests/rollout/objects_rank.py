"""One rank that passes objects to and from the main process, _ FOLDER. Saves what it got to FOLDER/rank{r}.pt."""

import torch
import torch.distributed as dist

from tempo_trl.rollout.ranks import gather_on_main, scatter_from_main, send_to_main


def main(_: str, folder: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    given = {"gathered": gather_on_main({"rank": rank})}
    given["scattered"] = scatter_from_main([f"for {r}" for r in range(3)] if rank == 0 else None)
    given["sent"] = send_to_main(bytes(10 * rank), senders=2) if rank < 2 else None  # no collective: it need not call
    torch.save(given, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()
