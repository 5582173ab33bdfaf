"""A real vLLM server on loopback: started, watched and ended by its process id, bounded in time."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import requests

from ..quick_python import REPOSITORY, quick_python
from ..trainers.launching import free_port

PATIENCE = 900  # seconds to start


class Server(NamedTuple):
    url: str
    process: subprocess.Popen
    log: Path

    def end(self) -> None:
        """Kill the server and every process that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=300)


def plugin_folder(folder: Path) -> Path:
    """A folder that makes gloo_transfer a plugin of vLLM for who has it on PYTHONPATH."""
    info = folder / "plugins" / "gloo_transfer-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gloo_transfer\nVersion: 1\n")
    entry = f"[vllm.general_plugins]\ngloo = {__package__}.gloo_transfer:register\n"
    (info / "entry_points.txt").write_text(entry)
    return info.parent


def start(model: str, folder: Path) -> Server:
    """Start `vllm serve` for TRL with weights over gloo; return at once. Its three processes are forked."""
    port = free_port()
    command = [quick_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "256", "--enforce-eager"]
    command += ["--weight-transfer-config", '{"backend": "gloo"}', "--logprobs-mode", "processed_logprobs"]
    command += ["--max-logprobs", "-1"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(plugin_folder(folder)), str(REPOSITORY)]),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    log = folder / f"server-{port}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Server(f"http://127.0.0.1:{port}", process, log)


def wait_until_healthy(server: Server) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert server.process.poll() is None, server.log.read_text()[-5000:]
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{server.url}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise TimeoutError(server.log.read_text()[-5000:])


@contextlib.contextmanager
def running(model: str, folder: Path) -> Iterator[Server]:
    server = start(model, folder)
    try:
        wait_until_healthy(server)
        yield server
    finally:
        server.end()
