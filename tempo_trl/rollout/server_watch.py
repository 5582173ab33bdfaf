"""Ends a run whose vLLM server died while weights were being sent to it."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from trl import GRPOConfig

from tempo_trl.rollout.vllm_server import health, server_url, stopped_message

INTERVAL = 5.0  # seconds between two checks of the server's health
PATIENCE = 60.0  # seconds of unhealthy answers after which the server counts as dead


@contextmanager
def end_if_server_dies(
    args: GRPOConfig, model: str, step: int, interval: float = INTERVAL, patience: float = PATIENCE
) -> Iterator[None]:
    """
    End this process, with advice, if the server's answers inside the block are unhealthy for `patience` seconds.

    If a server dies while it receives weights over NCCL, the sender stays in a call that never returns and that no
    exception can interrupt, and the other ranks wait in a collective. The launcher ends them after this process ends.

    Args:
        args ([`~trl.GRPOConfig`]), model (`str`), step (`int`):
            As for [`~tempo_trl.rollout.vllm_server.advice_if_server_stops`].
        interval (`float`, *optional*):
            Seconds between two checks of the server.
        patience (`float`, *optional*):
            Seconds after the first unhealthy answer, without a healthy one, after which the process ends.
    """
    done = threading.Event()

    def watch() -> None:
        failed = None  # since when; one answer that is late, or a process that stood still, does not end the run
        while not done.wait(interval):
            answer = health(server_url(args))
            if answer == 200:
                failed = None
            elif failed is None:
                failed = time.monotonic()
            elif time.monotonic() - failed >= patience and not done.is_set():
                print(stopped_message(args, model, step, f"its health was {answer}"), file=sys.stderr, flush=True)
                os._exit(1)

    thread = threading.Thread(target=watch, name="vLLM server watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
