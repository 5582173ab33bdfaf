"""One rank that samples from a vLLM server, MODEL FOLDER URL full|lora [key=value ...].

Writes the rank's batches, its own log-probabilities of what the server sampled, and the weights to FOLDER/rank{r}.pt.
Started by the tests beside it.
"""

import contextlib
import os
import signal
import time
from functools import partial

import requests
import torch
from peft import LoraConfig
from transformers import TrainerCallback

from tempo_trl.rollout.server_watch import end_if_server_dies
from tempo_trl.trainers import faults

from ..trainers.one_rank import finish, parsed
from ..trainers.recording import RecordingTrainer, config, parity, questions
from .gloo_transfer import replace_transport


class ServerTrainer(RecordingTrainer):
    """Beside each batch, the trainer's own log-probabilities of its completions, at the weights of that moment."""

    def __init__(self, *args, **kwargs):
        self.own_logps = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            length = output["completion_ids"].shape[1]
            logps, _, _ = self._get_per_token_logps_and_entropies(self.model, ids, mask, length)
        self.own_logps.append(logps * output["completion_mask"])
        return output


class KillServer(TrainerCallback):
    """Kill the server, with every process that it started, once `step` steps are done, and wait until it is gone."""

    def __init__(self, pid: int, step: int):
        self.pid, self.step = pid, step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step and state.is_world_process_zero:
            os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(requests.ConnectionError):  # a busy machine takes its time to end the processes
                while requests.get(f"{args.vllm_server_base_url}/health", timeout=300):
                    time.sleep(0.05)


def build(model: str, folder: str, url: str, weights: str, options: tuple[str, ...]) -> ServerTrainer:
    overrides = parsed(options)
    replace_transport(killed := overrides.pop("kill_server_within_update", None))  # (process id, number of the update)
    if killed:  # a minute would be waited
        faults.end_if_server_dies = partial(end_if_server_dies, interval=0.2, patience=2.0)
    kill = overrides.pop("kill_server", None)  # (process id, step)
    defaults = {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": url,
        "vllm_server_timeout": 300.0,
        "per_device_train_batch_size": 12,
        "num_generations": 8,  # a group lies across both of two ranks
        "max_completion_length": 16,
        "max_steps": 4,
        "top_k": 0,  # the server's log-probabilities are of what it sampled from, the trainer's of the whole softmax
        "generation_kwargs": {"seed": 7},
        "optim": "sgd",  # linear in the gradient: rounding stays rounding
        "learning_rate": 0.1,
        "max_grad_norm": 1.0,
    }
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights="gaussian")
    return ServerTrainer(
        model,
        parity,
        config(folder, **(defaults | overrides)),
        questions(8),
        peft_config=lora if weights == "lora" else None,
        callbacks=[KillServer(*kill)] if kill else None,
    )


def main(model: str, folder: str, url: str, weights: str, *options: str) -> None:
    trainer = build(model, folder, url, weights, options)
    trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    trainer.save_model(folder)
    state = {
        "batches": [tuple(batch) for batch in trainer.batches],
        "own_logps": trainer.own_logps,
        "engine": str(trainer.accelerator.distributed_type),
        "resident": sum(p.numel() for p in trainer.accelerator.unwrap_model(trainer.model).parameters()),
    }
    finish(trainer, folder, state)
