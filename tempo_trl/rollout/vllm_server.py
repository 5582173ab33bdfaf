"""TRL's vLLM server: the command that starts it, and advice in errors if it does not answer."""

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

# TRL needs a server whose weights can be replaced, and that returns log-probabilities of the sampling distribution.
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
            Id or folder of the trained model.
        max_model_len (`int`, *optional*):
            Maximum length of prompt and completion together, in tokens. Defaults to the model's own context.
    """
    limit = ["--max-model-len", str(max_model_len)] if max_model_len else []
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(['vllm', 'serve', model, *limit, *SERVER_FLAGS])}"


def server_url(args: GRPOConfig) -> str:
    """URL at which the trainer expects the server."""
    return args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"


def samples_on_server(args: GRPOConfig) -> bool:
    """Whether completions come from a vLLM server."""
    return args.use_vllm and args.vllm_mode == "server"


def wait_for_server(args: GRPOConfig, model: str) -> None:
    """Wait until the server is healthy. Only the main process waits, as in TRL.

    TRL's own check never ends if something other than a healthy vLLM answers at the URL.

    Raises:
        ConnectionError: the server is not healthy within `args.vllm_server_timeout` seconds.
    """
    if not samples_on_server(args) or args.process_index != 0 or not is_vllm_available():  # TRL refuses the last
        return
    deadline = time.monotonic() + args.vllm_server_timeout
    while (answer := health(server_url(args))) != 200:
        if time.monotonic() >= deadline:
            raise ConnectionError(
                f"No vLLM server is ready at {server_url(args)}: the last answer within vllm_server_timeout="
                f"{args.vllm_server_timeout:g} seconds was {answer}. The run had not begun, so nothing was lost. "
                f"{_start(model, args)}Then start the run again."
            )
        time.sleep(1)


def health(url: str) -> int | str:
    """HTTP status of the server's `/health`, or the error of the request."""
    try:
        with urlopen(f"{url}/health", timeout=5) as response:
            return response.status
    except HTTPError as error:
        return error.code
    except (OSError, HTTPException) as error:
        return str(error)


class ServerStoppedError(ConnectionError):
    """The vLLM server stopped answering. The message says what to do."""


@contextlib.contextmanager
def advice_if_server_stops(args: GRPOConfig, model: str, step: int) -> Iterator[None]:
    """Raise a `ConnectionError` with advice if the server cannot be reached inside the block.

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
    except OSError as error:  # raised by sockets and requests
        if not samples_on_server(args) or isinstance(error, ServerStoppedError):
            raise
        raise ServerStoppedError(stopped_message(args, model, step, error)) from error


def stopped_message(args: GRPOConfig, model: str, step: int, reason: object) -> str:
    """A message that says what happened, what was saved, and how to resume."""
    return (
        f"The vLLM server at {server_url(args)} stopped answering at step {step}: {reason}. {_saved(args)}"
        f"{_start(model, args)}Then resume with `--resume_from_checkpoint last`, or "
        "`trainer.train(resume_from_checkpoint=True)`."
    )


def _start(model: str, args: GRPOConfig) -> str:
    return f"Start the server, on GPUs of its own:\n\n    {server_command(model, args.vllm_max_model_length)}\n\n"


def _saved(args: GRPOConfig) -> str:
    checkpoint = get_last_checkpoint(args.output_dir) if Path(args.output_dir).is_dir() else None
    if checkpoint is None:
        return "No checkpoint had been written yet (see save_steps). "
    return f"The last checkpoint is {checkpoint}. "
