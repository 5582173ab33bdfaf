"""A vLLM server that dies while weights are sent to it ends the run, from a call that no exception can reach."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from trl import GRPOConfig

from tempo_trl.rollout.server_watch import end_if_server_dies

from ..trainers.launching import REPOSITORY

# As rank 0 does while NCCL waits: in C, without the interpreter's lock, and for ever.
BLOCKED = """
import ctypes, sys
from trl import GRPOConfig
from tempo_trl.rollout.server_watch import end_if_server_dies
args = GRPOConfig(sys.argv[2], use_vllm=True, vllm_server_base_url=sys.argv[1], use_cpu=True, bf16=False)
with end_if_server_dies(args, "some/model", step=7, interval=0.05, patience=0.5):
    print("sending", flush=True)
    ctypes.CDLL(None).pause()
"""


class Healthy(BaseHTTPRequestHandler):
    asked = threading.Event()

    def do_GET(self):
        self.asked.set()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def url(server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_a_process_that_waits_for_a_dead_server_ends_and_says_what_to_do(server, tmp_path):
    (tmp_path / "checkpoint-5").mkdir()
    command = [sys.executable, "-c", BLOCKED, url(server), str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=REPOSITORY, **pipes) as process:
        try:
            assert process.stdout.readline() == "sending\n"
            Healthy.asked.clear()
            assert Healthy.asked.wait(60)  # it is watched, and goes on as long as the server is healthy
            assert process.poll() is None
            server.shutdown()
            server.server_close()
            _, printed = process.communicate(timeout=900)
        finally:
            process.kill()
    assert process.returncode == 1
    assert f"The vLLM server at {url(server)} stopped answering at step 7" in printed
    assert f"The last checkpoint is {tmp_path / 'checkpoint-5'}." in printed
    assert "vllm serve some/model" in printed


def test_an_unhealthy_answer_alone_does_not_end_the_run(tmp_path, monkeypatch):
    args = GRPOConfig(str(tmp_path), vllm_server_base_url="http://127.0.0.1:9", use_cpu=True, bf16=False)
    answers, are_over, ended = iter(["timed out", 200] * 20), threading.Event(), []

    def health(url):
        answer = next(answers, None)
        if answer is None:
            are_over.set()
        return answer or 200

    monkeypatch.setattr("tempo_trl.rollout.server_watch.health", health)
    monkeypatch.setattr("os._exit", ended.append)
    with end_if_server_dies(args, "some/model", step=0, interval=0.001, patience=0.0):
        assert are_over.wait(300)
    assert not ended


def test_a_block_that_ends_is_watched_no_longer(tmp_path):
    args = GRPOConfig(str(tmp_path), vllm_server_base_url="http://127.0.0.1:9", use_cpu=True, bf16=False)
    with end_if_server_dies(args, "some/model", step=0, interval=60.0, patience=0.0):
        (watch,) = (thread for thread in threading.enumerate() if thread.name == "vLLM server watch")
    watch.join(60)
    assert not watch.is_alive()
