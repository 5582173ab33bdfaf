"""The estimate of `--check` against the peak that torch's profiler measures while a small model trains on the CPU."""

from pathlib import Path

import pytest
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3ForCausalLM

from tempo_trl.demo.policy import character_tokenizer
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.check import memory_rows
from tempo_trl.launch.memory import needs
from tempo_trl.launch.plan import Engine, LaunchPlan
from tempo_trl.launch.train import build_trainer

from ..tiny import tiny_model_config

PROMPT, COMPLETION = 12, 64  # tokens: a problem of sums, and completions that never end
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "head_dim": 32,
}
FLAGS = f"""
    --task sums --reward_funcs tempo_trl.demo.task.correct_answer --use_cpu true --bf16 false
    --num_generations 8 --steps_per_generation 1 --gradient_accumulation_steps 1
    --max_completion_length {COMPLETION} --max_steps 2 --save_strategy no --report_to none --disable_tqdm true
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model whose weights, state and activations are all of several megabytes, with the characters of sums."""
    folder, room = tmp_path_factory.mktemp("model"), PROMPT + COMPLETION
    tokenizer = character_tokenizer(room)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    sizes = SIZES | {"num_key_value_heads": 4, "max_position_embeddings": room}
    Qwen3ForCausalLM(tiny_model_config(512, **sizes, **ends)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measured_peak(trainer) -> int:
    """The weights, and the most bytes that tensors held beside them during the training."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        trainer.train()
    changes = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak + sum(parameter.nbytes for parameter in trainer.model.parameters())


@pytest.mark.matrix
@pytest.mark.parametrize(
    "flags",
    [
        "--method tempo --per_device_train_batch_size 8 --gradient_checkpointing false",
        "--method grpo --per_device_train_batch_size 16 --gradient_checkpointing false",
        "--method tempo --per_device_train_batch_size 24 --gradient_checkpointing true",
    ],
)
def test_the_estimate_is_within_a_tenth_of_the_measured_peak(flags, model, tmp_path):
    run = parse([*FLAGS.split(), *flags.split(), "--model_name_or_path", str(model), "--output_dir", str(tmp_path)])
    prompt, rows = memory_rows(LaunchPlan(1, 1, Engine("one process", "single"), "no"), run)
    assert prompt == PROMPT
    assert measured_peak(build_trainer(run)) == pytest.approx(max(needs(rows, run.training)), rel=0.1)
