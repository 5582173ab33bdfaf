"""`--check`: a run is built as it would be, printed, and refused if it would fail. Nothing is trained or launched."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tempo_trl.launch import cli, train
from tempo_trl.launch.arguments import parse
from tests.data.rows import HUB_ROWS, write_file

MATH = "--config qwen3-1.7b/math/tempo"
TREES = "--config qwen3-1.7b/math/trees"


@pytest.fixture(autouse=True)
def nothing_is_trained_or_launched(monkeypatch):
    def forbidden(*args, **kwargs):
        pytest.fail("a check loads no weights and launches nothing")

    monkeypatch.setattr("accelerate.commands.launch.default_config_file", "nowhere")  # of this machine's user
    monkeypatch.setattr("accelerate.commands.launch.launch_command", forbidden)
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", forbidden)
    monkeypatch.setattr("torch.distributed.init_process_group", forbidden)
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """A file of 1,000 rows of MATH."""
    return write_file(tmp_path_factory.mktemp("rows") / "rows.jsonl", HUB_ROWS["math"][:1] * 1000)


def checked(flags: str, capsys, status: int = 0) -> str:
    """What `tempo-trl train --check` prints with these flags, on the stream that its status calls for."""
    assert cli.main(["train", "--check", *shlex.split(flags)]) == status
    out, err = capsys.readouterr()
    assert bool(out) == (status == 0)
    return out if status == 0 else err.strip().splitlines()[-1]


def line_of(output: str, name: str) -> str:
    return re.search(rf"^{name}  +(.*?) *$", output, re.MULTILINE)[1]


def test_the_hand_worked_sizes(rows, capsys):
    flags = (
        f"{MATH} --train_file {rows} --accelerate_config zero2 --num_processes 2 --per_device_train_batch_size 8 "
        "--gradient_accumulation_steps 6 --steps_per_generation 18 --num_generations 4 --num_iterations 2 "
        "--num_train_epochs 3"
    )
    output = checked(flags, capsys)
    # 2 processes x 8 x 18 = 288 completions = 72 prompts x 4; an update takes 2 x 8 x 6 = 96 of them, and 2 iterations
    # of 18 steps are 6 updates of 6. 1,000 = 13 x 72 + 64; 3 x 13 x 6 = 234 updates.
    assert line_of(output, "generation").startswith("72 prompts x 4 completions = 2 x 8 x 18 ")
    assert line_of(output, "optimizer step").startswith("96 completions = 2 x 8 x 6 ")
    assert line_of(output, "data") == "1,000 prompts"
    assert line_of(output, "run") == "3 epochs of 13 generations, 234 optimizer steps"
    assert HUB_ROWS["math"][0]["problem"] in line_of(output, "first prompt")


def test_an_epoch_ends_with_an_optimizer_step_as_trainer_counts(capsys):
    flags = "--per_device_train_batch_size 32 --gradient_accumulation_steps 2 --steps_per_generation 5"
    output = checked(f"--config sums/tempo {flags} --max_steps -1 --num_train_epochs 3", capsys)
    # 8,192 prompts = 409 x 20 + 12; 409 x 5 = 2,045 micro-batches are 1,023 steps, the last of one micro-batch.
    assert line_of(output, "run") == "3 epochs of 409 generations, 3,069 optimizer steps"


@pytest.mark.parametrize(
    ("flags", "processes"),
    [("", 1), ("--num_processes 2", 2), ("--accelerate_config ddp", 8), ("--accelerate_config multi_node", 16)],
)
def test_the_processes_are_those_that_accelerate_would_start(flags, processes, capsys):
    assert f"= {processes} x 128 x 2 " in line_of(checked(f"--config sums/tempo {flags}", capsys), "generation")
    assert parse(["--config", "sums/tempo"]).training.generation_batch_size == 256  # of this one process again


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        ("--num_generations 7", ["generation_batch_size (1920) must be divisible by num_generations (7)"]),
        ("--accelerate_config ddp", ["have 1,000 rows, expected at least the 2,560 prompts of a generation"]),
        ("--reward_funcs no.such", ["cannot import function 'no.such'"]),
        ("--output_dir /dev/null/run", ["`output_dir`", "/dev/null"]),
        ("--task medqa", ["medqa", "columns"]),
        ("--span_reward_funcs json_fields", ["`span_reward_funcs` must be None, got 1: TEMPOTrainer would not use"]),
        ("--step_reward_funcs os.getcwd", ["`step_reward_funcs` must be None, got 1: TEMPOTrainer would not use"]),
        ("--credit_func os.getcwd", ["`credit_func` must be None, got a function"]),
        ("--span_reward_weights 1 2", ["`span_reward_weights` must have 0 numbers, one per function, got 2"]),
        ("--resume_from_checkpoint nowhere", ["nowhere"]),
        ("--num_train_epochs 0 --max_steps -1", ["`num_train_epochs` is 0, which is no step"]),
    ],
)
def test_what_the_run_would_refuse_is_refused(flags, messages, rows, capsys):
    error = checked(f"{MATH} --train_file {rows} {flags}", capsys, status=2)
    assert error.startswith("tempo-trl train: error: ")
    assert all(message in error for message in messages), error


def too_few(prompts, completions): ...


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("grpo --span_reward_funcs json_fields", "PlainGRPOTrainer would not use them"),
        ("grpo --credit_func os.getcwd", "PlainGRPOTrainer has its own credit function"),
        ("token_credit", "`credit_func` must be a function"),
        ("tempo --reward_funcs json_fields_reward", "json_fields got no column 'truth'"),
        ("tempo --reward_funcs os.fsencode", "`reward_funcs` fsencode cannot be called with what it gets"),
        ("tempo --reward_funcs tests.launch.test_check.too_few", "too_few cannot be called with what it gets"),
        ("tempo --reward_weights 1 2", "`reward_weights` must have 1 numbers, one per function, got 2"),
        ("tempo --dataset_config x", "got dataset_config with `task` = 'sums', which does not read it"),
        ("tempo --dataset_train_split train[:10]", "got dataset_train_split with `task` = 'sums'"),
    ],
)
def test_what_the_method_or_the_data_do_not_read_is_refused(flags, message, capsys):
    assert message in checked(f"--config sums/base --output_dir x --method {flags}", capsys, status=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("treerpo --num_generations 16", "2 ** 3 = 8, got 16"),
        ("treerpo --vllm_mode colocate", "got vllm_mode='colocate'. Set vllm_mode='server'"),
        (
            "treerpo --num_processes 2 --per_device_train_batch_size 4 --steps_per_generation 3",
            "12 is not a multiple of 8",
        ),
        ("tempo --rollout iid --vllm_mode colocate", None),
        ("treerpo --use_vllm false", None),
    ],
)
def test_trees_that_cannot_grow_are_refused(flags, message, rows, capsys):
    output = checked(f"{TREES}/{flags} --train_file {rows}", capsys, status=0 if message is None else 2)
    assert message is None or message in output


@pytest.mark.parametrize("steps", ["", "--max_steps 3"])
def test_a_stream_is_refused_without_a_number_of_steps_as_trainer_does(steps, tmp_path, capsys):
    write_file(tmp_path / "train.jsonl", [{"prompt": f"{digit}+1?"} for digit in range(4)])
    data = f"--dataset_name {tmp_path} --dataset_streaming true --model_name_or_path some/model --method grpo"
    output = checked(f"{data} --reward_funcs format_reward {steps}", capsys, status=0 if steps else 2)
    assert ("3 optimizer steps (max_steps)" if steps else "max_steps is not set. Set it.") in output


def test_a_run_for_a_newer_gpu_is_checked_on_a_machine_without_one(capsys):
    assert checked("--config sums/tempo --tf32 true", capsys)


def test_private_data_are_loaded_with_the_token_of_the_run(monkeypatch, capsys):
    def load(arguments):
        raise ValueError(os.environ["HF_TOKEN"])

    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(train, "load_datasets", load)
    assert checked("--config sums/tempo --hub_token mine", capsys, status=2).endswith("error: mine")


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_two_real_ranks_have_the_sizes_that_the_check_prints(tmp_path, capsys):
    flags = ["--config", "sums/tempo", "--generation_batch_size", "512", "--steps_per_generation", "None"]
    foreseen = line_of(checked(f"{shlex.join(flags)} --num_processes 2", capsys), "generation")
    script = tmp_path / "rank.py"
    script.write_text(
        "import sys\nfrom tempo_trl.launch.arguments import parse\nargs = parse(sys.argv[1:]).training\n"
        "if args.process_index == 0:\n"
        "    print(args.world_size, args.per_device_train_batch_size, args.steps_per_generation, sep=' x ')\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    real = subprocess.run([*launcher, str(script), *flags], check=True, capture_output=True, text=True).stdout
    assert foreseen == f"64 prompts x 8 completions = {real.strip()} (processes x per device x steps_per_generation)"


def test_the_training_script_refuses_to_check_and_does_not_train(monkeypatch, capsys):
    monkeypatch.setattr(train, "run", lambda arguments: pytest.fail("it trains"))
    assert train.main(["--config", "sums/tempo", "--check"]) == 2
    assert "`check` is unknown" in capsys.readouterr().err
