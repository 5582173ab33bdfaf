"""TRL's vLLM server, seen from the trainer: the command that starts it, and what to do when it does not answer."""

import contextlib
import shlex
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig
from trl.import_utils import is_vllm_available

# What TRL needs of a server: its weights can be replaced, and its log-probabilities are of what it sampled from.
SERVER_FLAGS = (
    "--weight-transfer-config",
    '{"backend": "nccl"}',
    "--logprobs-mode",
    "processed_logprobs",
    "--max-logprobs",
    "-1",
)


def server_command(model: str, max_model_len: int | None = None) -> str:
    """Shell command that starts a vLLM server for TRL 1.16.

    Args:
        model (`str`):
            Model id or folder: the one that is trained.
        max_model_len (`int`, *optional*):
            Longest prompt and completion together, in tokens; the model's own context if unset.
    """
    limit = ["--max-model-len", str(max_model_len)] if max_model_len else []
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(['vllm', 'serve', model, *limit, *SERVER_FLAGS])}"


def server_url(args: GRPOConfig) -> str:
    """Address at which the trainer looks for the server."""
    return args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"


def samples_on_server(args: GRPOConfig) -> bool:
    """Whether completions come from a vLLM server."""
    return args.use_vllm and args.vllm_mode == "server"


def wait_for_server(args: GRPOConfig, model: str) -> None:
    """Return once the server says that it is healthy. Only the main process waits, as in TRL.

    TRL's own check goes on for ever where something answers at the address that is not a healthy vLLM.

    Raises:
        ConnectionError: it did not within `args.vllm_server_timeout` seconds.
    """
    if not samples_on_server(args) or args.process_index != 0 or not is_vllm_available():  # TRL refuses the last
        return
    deadline = time.monotonic() + args.vllm_server_timeout
    while (answer := health(server_url(args))) != 200:
        if time.monotonic() >= deadline:
            raise ConnectionError(
                f"No vLLM server is ready at {server_url(args)}: the last answer within vllm_server_timeout="
                f"{args.vllm_server_timeout:g} seconds was {answer}. Nothing was lost, since the run had not begun. "
                f"{_start(model, args)}and then the run again."
            )
        time.sleep(1)


def health(url: str) -> int | str:
    """HTTP status of the server's `/health`, or why there is none."""
    try:
        with urlopen(f"{url}/health", timeout=5) as response:
            return response.status
    except HTTPError as error:
        return error.code
    except (OSError, HTTPException) as error:
        return str(error)


class ServerStoppedError(ConnectionError):
    """The vLLM server stopped answering; the message says what to do."""


@contextlib.contextmanager
def advice_if_server_stops(args: GRPOConfig, model: str, step: int) -> Iterator[None]:
    """Raise `ConnectionError` with what to do, for any failure to reach the server inside the block.

    Args:
        args ([`~trl.GRPOConfig`]):
            The run's configuration.
        model (`str`):
            Model id or folder, for the command that starts a server.
        step (`int`):
            Optimizer steps done so far.
    """
    try:
        yield
    except OSError as error:  # what sockets raise, and requests
        if not samples_on_server(args) or isinstance(error, ServerStoppedError):
            raise
        raise ServerStoppedError(stopped_message(args, model, step, error)) from error


def stopped_message(args: GRPOConfig, model: str, step: int, reason: object) -> str:
    """What happened, what is safe, and how to go on."""
    return (
        f"The vLLM server at {server_url(args)} stopped answering at step {step}: {reason}. {_saved(args)}"
        f"{_start(model, args)}and go on with `--resume_from_checkpoint last`, or "
        "`trainer.train(resume_from_checkpoint=True)`."
    )


def _start(model: str, args: GRPOConfig) -> str:
    return f"Start the server, on GPUs of its own:\n\n    {server_command(model, args.vllm_max_model_length)}\n\n"


def _saved(args: GRPOConfig) -> str:
    checkpoint = get_last_checkpoint(args.output_dir) if Path(args.output_dir).is_dir() else None
    if checkpoint is None:
        return "No checkpoint had been written yet: see save_steps. "
    return f"What was trained up to {checkpoint} is safe. "
