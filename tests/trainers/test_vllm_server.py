"""What the trainer says of a vLLM server that it cannot use. tests/vllm_server/ has the real one."""

import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from tempo_trl.rollout import vllm_server
from tempo_trl.rollout.vllm_server import advice_if_server_stops, server_command, wait_for_server
from tempo_trl.trainers.checks import refuse_one_seed_for_single_completions

from .launching import free_port
from .recording import config


@pytest.fixture
def vllm_is_here(monkeypatch):
    monkeypatch.setattr(vllm_server, "is_vllm_available", lambda: True)


def server_config(folder, url: str, **overrides):
    on_server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url, "vllm_server_timeout": 1.0}
    return config(folder, **(on_server | overrides))


@pytest.mark.usefixtures("vllm_is_here")
@pytest.mark.parametrize("status", [404, 503])
def test_an_address_that_answers_without_a_healthy_server_ends_the_wait_within_the_time_out(status, tmp_path):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(ConnectionError, match=rf"{url}: the last answer within .*=1 seconds was {status}"):
            wait_for_server(server_config(tmp_path, url), "Qwen/Qwen3-1.7B")
        server.shutdown()


@pytest.mark.usefixtures("vllm_is_here")
def test_an_address_without_anybody_is_told_with_the_command_that_starts_a_server(tmp_path):
    args = server_config(tmp_path, f"http://127.0.0.1:{free_port()}", vllm_max_model_length=4096)
    with pytest.raises(ConnectionError, match="Connection refused") as error:
        wait_for_server(args, "Qwen/Qwen3-1.7B")
    assert server_command("Qwen/Qwen3-1.7B", 4096) in str(error.value)


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


@pytest.mark.parametrize(
    ("mode", "tools", "seed", "refused"),
    [
        ("colocate", [], 7, "with vllm_mode='colocate'"),
        ("server", [len], 7, "in the turns of an agent"),
        ("server", [], 7, None),
        ("colocate", [len], None, None),
    ],
)
def test_one_seed_is_refused_where_vllm_is_asked_for_one_completion_at_a_time(mode, tools, seed, refused):
    args = SimpleNamespace(use_vllm=True, vllm_mode=mode, generation_kwargs={"seed": seed})
    trainer = SimpleNamespace(args=args, tools=tools, environment_factories=None)
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        refuse_one_seed_for_single_completions(trainer)
