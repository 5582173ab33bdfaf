"""`--check`: what would be launched, what its batches come to, and what cannot be."""

import json
import re
import shlex
import subprocess
import sys
from argparse import Namespace

import pytest
from trl import GRPOConfig

from tempo_trl.data import BENCHMARKS
from tempo_trl.launch import cli, train
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.batch_sizes import TRAIN_PROMPTS
from tempo_trl.launch.check import parse_as_launched
from tempo_trl.launch.plan import ALL, GRADIENTS, OPTIMIZER, Engine, LaunchPlan, launch_arguments, launch_plan
from tempo_trl.runs.recipes import recipe_names, recipe_path

RECIPE = "qwen3-1.7b/math/tempo"


@pytest.fixture(autouse=True)
def nothing_is_started_or_loaded(monkeypatch):
    def forbidden(*args, **kwargs):
        pytest.fail("a check loads no weights, reads no data and launches nothing")

    monkeypatch.setattr("accelerate.commands.launch.default_config_file", "nowhere")  # of this machine's user
    monkeypatch.setattr("accelerate.commands.launch.launch_command", forbidden)
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", forbidden)
    monkeypatch.setattr("datasets.load_dataset", forbidden)
    monkeypatch.setattr("torch.distributed.init_process_group", forbidden)


def checked(flags: str, capsys, status: int = 0) -> str:
    """What `tempo-trl train --check` prints with these flags, on the stream that its status calls for."""
    assert cli.main(["train", "--check", *shlex.split(flags)]) == status
    out, err = capsys.readouterr()
    assert bool(out) == (status == 0)
    return out if status == 0 else err.strip().splitlines()[-1]


def line_of(output: str, name: str) -> str:
    return re.search(rf"^{name}  +(.*?) *$", output, re.MULTILINE)[1]


def plan_of(flags: str, use_cpu: bool = False) -> LaunchPlan:
    return launch_plan(launch_arguments(["--config", RECIPE, *flags.split()]), use_cpu)


def header_flags(name: str) -> str:
    """Flags of the `tempo-trl train` command in the comment at the head of a recipe."""
    header = re.match("(#.*\n)+", recipe_path(name).read_text())[0].replace("\\\n#", " ")
    return re.search(r"tempo-trl train (.*)", header)[1]


@pytest.mark.matrix
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_s_own_command_passes_with_the_equation_it_has_to_meet(name, tiny_model, capsys):
    model = "" if name.startswith(("sums/", "rooms/")) else f"--model_name_or_path {tiny_model}"
    output = checked(f"{header_flags(name)} {model}", capsys)
    verdict = r"The batch sizes work: (\S+) prompts x (\d+) generations = (\d+) devices? x (\d+) completions x (\d+) "
    numbers = [int(number.replace(",", "")) for number in re.match(verdict, output).groups()]
    prompts, generations, devices, per_device, steps = numbers
    assert prompts * generations == devices * per_device * steps
    assert "estimated for prompts of" in output
    assert max(map(len, output.split("\n\n    VLLM_SERVER")[0].splitlines()[1:])) <= 100


@pytest.mark.parametrize(
    ("flags", "processes", "machines", "engine"),
    [
        ("", 1, 1, Engine("one process", "single")),
        ("--num_processes 2", 2, 1, Engine("DDP", "DDP")),
        ("--multi_gpu --num_processes 2", 2, 1, Engine("DDP", "DDP")),
        ("--accelerate_config ddp", 8, 1, Engine("DDP", "DDP")),
        ("--accelerate_config single_gpu", 1, 1, Engine("one process", "single")),
        ("--accelerate_config ddp --cpu", 1, 1, Engine("one process", "single")),
        ("--accelerate_config zero2 --num_processes 2", 2, 1, Engine("DeepSpeed ZeRO-2", "DeepSpeed", ALL[1:], 2)),
        ("--accelerate_config zero1", 8, 1, Engine("DeepSpeed ZeRO-1", "DeepSpeed", (OPTIMIZER,), 8)),
        ("--accelerate_config zero3", 8, 1, Engine("DeepSpeed ZeRO-3", "DeepSpeed", ALL, 8)),
        ("--accelerate_config multi_node", 16, 2, Engine("DeepSpeed ZeRO-3", "DeepSpeed", ALL, 16)),
        ("--accelerate_config fsdp2 --num_processes 4", 4, 1, Engine("FSDP2", "FSDP", ALL, 4)),
        ("--accelerate_config fsdp1", 8, 1, Engine("FSDP1", "FSDP", ALL, 8)),
        (
            "--accelerate_config zero3_offload",
            8,
            1,
            Engine("DeepSpeed ZeRO-3 with offload", "DeepSpeed", ALL, 8, (GRADIENTS, OPTIMIZER)),
        ),
        (
            "--accelerate_config zero3 --offload_param_device cpu --offload_optimizer_device nvme",
            8,
            1,
            Engine("DeepSpeed ZeRO-3 with offload", "DeepSpeed", ALL, 8, ALL),
        ),
        (
            "--accelerate_config fsdp2 --fsdp_reshard_after_forward false --fsdp_offload_params true",
            8,
            1,
            Engine("FSDP2 with offload", "FSDP", ALL, 8, ALL, gathers_all=True),
        ),
        (
            "--use_fsdp --fsdp_sharding_strategy HYBRID_SHARD --num_processes 16 --num_machines 2 "
            "--machine_rank 0 --main_process_ip host",
            16,
            2,
            Engine("FSDP1", "FSDP", ALL, 8),
        ),
    ],
)
def test_flags_and_configurations_of_accelerate_become_devices_and_engines(flags, processes, machines, engine):
    assert plan_of(flags)[:3] == (processes, machines, engine)


def test_deepspeed_s_own_file_comes_before_its_flags(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}))
    engine = plan_of(f"--use_deepspeed --num_processes 2 --zero_stage 1 --deepspeed_config_file {file}").engine
    assert engine == Engine("DeepSpeed ZeRO-3 with offload", "DeepSpeed", ALL, 2, ("weights",))


@pytest.mark.parametrize(
    ("flags", "use_cpu", "note"),
    [
        ("", False, "The check assumes one process"),
        ("", True, None),
        ("--accelerate_config single_gpu", False, None),
        ("--accelerate_config single_gpu --num_processes 4", False, "num_processes is 4, but accelerate starts one"),
        ("--cpu --num_processes 2", False, "num_processes is 2, but accelerate starts one"),
        ("--num_processes 2", False, "assumes 2 GPUs"),
        ("--accelerate_config ddp", False, None),
    ],
)
def test_what_is_assumed_about_the_launch_is_said(flags, use_cpu, note):
    notes = plan_of(flags, use_cpu).notes
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_two_real_ranks_arrive_at_the_geometry_that_one_process_foresees(tmp_path):
    flags = ["--config", "sums/tempo", "--generation_batch_size", "512", "--steps_per_generation", "None"]
    asked = Namespace(**vars(GRPOConfig(use_cpu=True, bf16=False, output_dir=str(tmp_path))))
    foreseen = parse_as_launched(flags, asked, devices=2).training
    script = tmp_path / "rank.py"
    script.write_text(
        "import sys\nfrom tempo_trl.launch.arguments import parse\nargs = parse(sys.argv[1:]).training\n"
        "if args.process_index == 0:\n"
        "    print(args.world_size, args.generation_batch_size, args.steps_per_generation)\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    real = subprocess.run([*launcher, str(script), *flags], check=True, capture_output=True, text=True).stdout
    assert real.split() == ["2", str(foreseen.generation_batch_size), str(foreseen.steps_per_generation)]
    assert foreseen.steps_per_generation == 2


def test_foreseeing_leaves_trl_s_config_as_it_was(tmp_path):
    asked = Namespace(**vars(GRPOConfig(use_cpu=True, bf16=False, output_dir=str(tmp_path))))
    assert parse_as_launched(["--config", "sums/tempo"], asked, devices=3).training.generation_batch_size == 768
    assert parse(["--config", "sums/tempo"]).training.generation_batch_size == 256


def test_the_hand_worked_geometry(tiny_model, capsys):
    flags = (
        f"--config {RECIPE} --model_name_or_path {tiny_model} --accelerate_config zero2 --num_processes 2 "
        "--per_device_train_batch_size 8 --gradient_accumulation_steps 6 --steps_per_generation 18 "
        "--num_generations 4 --num_iterations 2 --num_train_epochs 3 --eval_strategy steps "
        "--per_device_eval_batch_size 6 --num_generations_eval 3"
    )
    output = checked(flags, capsys)
    # 2 devices x 8 x 18 = 288 completions = 72 prompts x 4; an update takes 2 x 8 x 6 = 96 of them, and 2 iterations
    # of 18 steps are 6 updates of 6. 7,500 = 104 x 72 + 12; 3 x 104 = 312 generations, 312 x 6 = 1,872 updates.
    assert output.splitlines()[0] == (
        "The batch sizes work: 72 prompts x 4 generations = 2 devices x 8 completions x 18 steps_per_generation."
    )
    assert line_of(output, "launch") == "2 devices on 1 machine, DeepSpeed ZeRO-2"
    assert line_of(output, "sharded") == "gradients, optimizer state: over 2"
    assert line_of(output, "generation") == "288 completions of 72 prompts, for 6 optimizer steps (num_iterations 2)"
    assert "6 micro-batches x 2 devices x 8 = 96 completions, the equivalent of 24 prompts" in output
    assert line_of(output, "groups") == "each on one device"
    assert line_of(output, "epoch") == "7,500 prompts: 104 generations; 12 random prompts are left out"
    assert line_of(output, "run") == "3 epochs: 312 generations, 1,872 optimizer steps"
    assert line_of(output, "evaluation") == "batches of 2 devices x 6 = 12 completions of 4 prompts (3 each)"


def test_an_epoch_ends_with_an_optimizer_step_as_trainer_counts(capsys):
    flags = "--per_device_train_batch_size 32 --gradient_accumulation_steps 2 --steps_per_generation 5"
    output = checked(f"--config sums/tempo {flags} --max_steps -1 --num_train_epochs 3", capsys)
    # 8,192 prompts = 409 x 20 + 12; 409 x 5 = 2,045 micro-batches are 1,023 steps, the last of one micro-batch.
    assert line_of(output, "run") == "3 epochs: 1,227 generations, 3,069 optimizer steps"


def test_groups_that_lie_on_two_devices_are_told_from_whole_ones(tiny_model, capsys):
    flags = f"--config {RECIPE} --model_name_or_path {tiny_model} --num_processes 2 --gradient_accumulation_steps 1 "
    split = checked(flags + "--per_device_train_batch_size 4 --steps_per_generation 1 --num_generations 8", capsys)
    assert "some are split over two devices" in line_of(split, "groups")
    whole = checked(flags + "--per_device_train_batch_size 4 --steps_per_generation 2 --num_generations 8", capsys)
    assert line_of(whole, "groups") == "each on one device"


@pytest.mark.parametrize(
    ("task", "epoch"),
    [
        ("math", "7,500 prompts: 23 generations; 140"),  # 23 x 320 + 140
        ("medqa", "10,178 prompts: 31 generations; 258"),  # 31 x 320 + 258
        ("medmcqa", "182,822 prompts: 571 generations; 102"),  # 571 x 320 + 102
    ],
)
def test_an_epoch_of_each_benchmark_that_has_rows_to_train_on_is_known(task, epoch, tiny_model, capsys):
    output = checked(f"--config {RECIPE} --model_name_or_path {tiny_model} --task {task}", capsys)
    assert line_of(output, "epoch") == f"{epoch} random prompts are left out"


def test_no_benchmark_to_train_on_is_forgotten():
    assert set(TRAIN_PROMPTS) == {name for name, benchmark in BENCHMARKS.items() if benchmark.train_split == "train"}
    assert all(benchmark.train_split in (None, "train") for benchmark in BENCHMARKS.values())


@pytest.mark.parametrize(
    "flags", ["--train_file rows.jsonl", "--dataset_train_split train[:100]", "--drop_leaked_rows true"]
)
def test_an_epoch_is_left_out_where_only_loading_would_tell_its_length(flags, tiny_model, capsys):
    output = checked(f"--config {RECIPE} --model_name_or_path {tiny_model} {flags}", capsys)
    assert not re.search(r"^(epoch|run) ", output, re.MULTILINE)


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        ("--num_generations 7", ["size (1920)", "num_generations (7)", "--steps_per_generation 168` works"]),
        (
            "--accelerate_config ddp --num_processes 5 --per_device_train_batch_size 4 --steps_per_generation 25 "
            "--gradient_accumulation_steps 2",
            ["(500) must be divisible by num_generations (6)", "`--steps_per_generation 27` works"],
        ),
        (
            "--steps_per_generation None --generation_batch_size 100",
            ["(100) must be divisible by the global batch size (16)", "`--generation_batch_size 144` works"],
        ),
        ("--generation_batch_size 96", ["can not be both configured", "`--generation_batch_size None`"]),
        ("--num_generations 1", ["at least 2 generations", "You provided 1"]),
        ("--per_device_train_batch_size 0", ["`per_device_train_batch_size` is 0, expected at least 1"]),
        ("--temperature 0", ["`temperature` must be above 0, got 0.0"]),
        ("--max_completion_length None", ["`max_completion_length` is None, expected a number"]),
        ("--max_completion_length 0", ["`max_completion_length` must be at least 1, got 0"]),
        ("--accelerate_config ddp --per_device_train_batch_size 64", ["the training data have only 7,500"]),
        (
            "--eval_strategy epoch --per_device_eval_batch_size 8",
            ["(8 * 1) must be divisible by", "`--per_device_eval_batch_size 12` works"],
        ),
        (
            "--num_processes 2 --eval_strategy epoch --per_device_eval_batch_size 8",
            ["(8 * 2) must be divisible by", "`--per_device_eval_batch_size 9` works"],
        ),
        ("--do_eval true --per_device_eval_batch_size 8", ["1 device x 8", "`--per_device_eval_batch_size 12` works"]),
        (
            "--accelerate_config ddp --vllm_tensor_parallel_size 3",
            ["`vllm_tensor_parallel_size` is 3, expected a divisor of the 8 processes", "one of 1, 2, 4, 8"],
        ),
        ("--vllm_mode colocated", ["`vllm_mode` is 'colocated', expected colocate or server"]),
        ("--vllm_gpu_memory_utilization 1.0", ["`vllm_gpu_memory_utilization` is 1.0, expected a number"]),
        ("--vllm_max_model_length 1024", ["`vllm_max_model_length` is 1024, expected", "_length` = 1024"]),
        ("--use_cpu true", ["colocate on a CPU, expected GPUs"]),
        (
            "--accelerate_config fsdp2 --fsdp_activation_checkpointing true",
            ["both on, expected at most one", "`--gradient_checkpointing false`"],
        ),
        ("--accelerate_config zero3 --num_machines 3", ["`num_processes` is 8, expected a multiple", "= 3"]),
        ("--accelerate_config zero3 --zero_stage 4", ["ZeRO stage is 4, expected 0, 1, 2 or 3"]),
        ("--use_deepspeed --deepspeed_config_file nowhere.json", ["'nowhere.json', expected a readable JSON file"]),
        ("--num_processes 0", ["`num_processes` is 0, expected at least 1."]),
        ("--accelerate_config zero2 --num_machines -1", ["`num_machines` is -1, expected at least 1."]),
        ("--use_megatron_lm", ["use_megatron_lm, expected one process, DDP, DeepSpeed or FSDP"]),
        ("--learning_rate fast", ["invalid float value: 'fast'"]),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_change(flags, messages, capsys):
    error = checked(f"--config {RECIPE} {flags}", capsys, status=2)
    assert error.startswith("tempo-trl train: error: ")
    assert all(message in error for message in messages), error


@pytest.mark.parametrize(
    "flags",
    ["--num_generations 7 --steps_per_generation 168", "--steps_per_generation None --generation_batch_size 144"],
)
def test_what_a_refusal_proposes_is_accepted(flags, tiny_model, capsys):
    checked(f"--config {RECIPE} --model_name_or_path {tiny_model} {flags}", capsys)


def test_a_server_is_started_with_the_command_that_is_printed(tiny_model, capsys):
    flags = f"--config {RECIPE} --model_name_or_path {tiny_model} --vllm_mode server --vllm_server_port 8123"
    output = checked(flags, capsys)
    assert "http://0.0.0.0:8123" in output
    command = next(line for line in output.splitlines() if "vllm serve" in line)
    assert f" {tiny_model} --max-model-len 4096 " in command
    assert "vllm serve" not in checked(f"--config {RECIPE} --model_name_or_path {tiny_model}", capsys)


def test_without_the_model_s_config_the_rest_stands_and_says_why(tmp_path, capsys):
    output = checked(f"--config {RECIPE} --model_name_or_path {tmp_path}", capsys)
    assert output.startswith("The batch sizes work")
    assert re.search(r"Memory: no estimate, .*config\.json", output)
    assert "weights " not in output


@pytest.mark.parametrize("flags", [["--check"], ["--num_processes", "2", "--check"]])
def test_the_training_script_refuses_to_check_and_does_not_train(flags, monkeypatch, capsys):
    monkeypatch.setattr(train, "run", lambda arguments: pytest.fail("it trains"))
    assert train.main(["--config", "sums/tempo", *flags]) == 2
    assert "Run `tempo-trl train --check`" in capsys.readouterr().err
