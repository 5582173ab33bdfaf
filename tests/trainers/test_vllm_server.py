"""What the trainer says of a vLLM server that it cannot use. tests/vllm_server/ has the real one."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tempo_trl.rollout import vllm_server
from tempo_trl.rollout.vllm_server import advice_if_server_stops, server_command, wait_for_server

from .launching import free_port
from .recording import config


@pytest.fixture
def web_server(monkeypatch):
    """Start a server that answers every request with the given status, and return its address."""
    monkeypatch.setattr(vllm_server, "is_vllm_available", lambda: True)
    running = []

    def start(status: int) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()

            def log_message(self, *args):
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Answer))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def server_config(folder, url: str, **overrides):
    on_server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url, "vllm_server_timeout": 1.0}
    return config(folder, **(on_server | overrides))


@pytest.mark.parametrize("status", [404, 503])
def test_an_address_that_answers_without_a_healthy_server_ends_the_wait_within_the_time_out(
    status, web_server, tmp_path
):
    url = web_server(status)
    with pytest.raises(ConnectionError, match=rf"{url}: the last answer within .*=1 seconds was {status}"):
        wait_for_server(server_config(tmp_path, url), "Qwen/Qwen3-1.7B")


def test_an_address_without_anybody_is_told_with_the_command_that_starts_a_server(web_server, tmp_path):
    args = server_config(tmp_path, f"http://127.0.0.1:{free_port()}", vllm_max_model_length=4096)
    with pytest.raises(ConnectionError, match="Connection refused") as error:
        wait_for_server(args, "Qwen/Qwen3-1.7B")
    assert server_command("Qwen/Qwen3-1.7B", 4096) in str(error.value)


def test_a_healthy_server_ends_the_wait(web_server, tmp_path):
    wait_for_server(server_config(tmp_path, web_server(200)), "Qwen/Qwen3-1.7B")


def test_a_run_that_samples_without_a_server_waits_for_none(web_server, tmp_path):
    silent = f"http://127.0.0.1:{free_port()}"
    wait_for_server(server_config(tmp_path, silent, use_vllm=False), "Qwen/Qwen3-1.7B")
    wait_for_server(server_config(tmp_path, silent, vllm_mode="colocate"), "Qwen/Qwen3-1.7B")


@pytest.mark.parametrize(
    ("saved", "said"), [(True, "The last checkpoint is {last}."), (False, "No checkpoint had been")]
)
def test_a_server_that_stops_answering_is_told_with_what_was_saved(saved, said, tmp_path):
    args = server_config(tmp_path, "http://sampler:8000")
    last = tmp_path / "checkpoint-20"
    if saved:
        for step in (5, 20):
            (tmp_path / f"checkpoint-{step}").mkdir()
    with (
        pytest.raises(ConnectionError, match="http://sampler:8000 stopped answering at step 23: refused") as error,
        advice_if_server_stops(args, "Qwen/Qwen3-1.7B", step=23),
    ):
        raise ConnectionRefusedError("refused")
    assert said.format(last=last) in str(error.value)
    assert "--resume_from_checkpoint last" in str(error.value)


def test_other_errors_and_those_of_other_samplers_pass_unchanged(tmp_path):
    with pytest.raises(ValueError, match="mine"), advice_if_server_stops(server_config(tmp_path, "http://a"), "m", 1):
        raise ValueError("mine")
    with pytest.raises(OSError, match=r"^disk$"), advice_if_server_stops(config(tmp_path), "m", 1):
        raise OSError("disk")
