"""Which processes `accelerate launch` would start for a run, and what its engine shards. Starts nothing."""

import copy
import json
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tempo_trl.launch.arguments import launcher, option_names, recipe_parser, refuse_unknown
from tempo_trl.runs.recipes import accelerate_config_path

SCRIPT = "tempo_trl.train"  # the module that accelerate starts on every rank
WEIGHTS, GRADIENTS, OPTIMIZER = "weights", "gradients", "optimizer state"
ALL = (WEIGHTS, GRADIENTS, OPTIMIZER)
ZERO_SHARDS = {0: (), 1: (OPTIMIZER,), 2: (GRADIENTS, OPTIMIZER), 3: ALL}
ACCELERATE_ZERO_STAGE = 2  # accelerate's default


class Engine(NamedTuple):
    """
    How the state of a training run is distributed over its devices.

    Args:
        name (`str`):
            Name to display.
        kind (`str`):
            `"single"`, `"DDP"`, `"DeepSpeed"` or `"FSDP"`: the part that casts and copies the weights.
        sharded (`tuple[str, ...]`):
            What is sharded: some of `"weights"`, `"gradients"` and `"optimizer state"`. Each device holds all of the
            rest.
        shards (`int`):
            Number of devices that share it.
        offloaded (`tuple[str, ...]`):
            What is stored in the machine's memory (or on its disk) instead of the device's, named as in `sharded`.
        gathers_all (`bool`):
            Whether all sharded weights are gathered at once for a forward and backward pass, not layer by layer.
        activation_checkpointing (`bool`):
            Whether FSDP recomputes activations, independently of the recipe's `gradient_checkpointing`.
    """

    name: str
    kind: str
    sharded: tuple[str, ...] = ()
    shards: int = 1
    offloaded: tuple[str, ...] = ()
    gathers_all: bool = False
    activation_checkpointing: bool = False


class LaunchPlan(NamedTuple):
    """
    The processes that `accelerate launch` would start.

    Args:
        num_processes (`int`):
            Number of processes on all machines together, one device each.
        num_machines (`int`):
            Number of machines.
        engine ([`Engine`]):
            DDP, DeepSpeed, FSDP, or a single process.
        mixed_precision (`str`):
            accelerate's setting: `"no"`, `"bf16"`, ... The recipe's `bf16` and `fp16` take precedence.
        notes (`tuple[str, ...]`):
            Assumptions, and how to change them.
    """

    num_processes: int
    num_machines: int
    engine: Engine
    mixed_precision: str
    notes: tuple[str, ...] = ()


def launch_arguments(argv: list[str]) -> Namespace:
    """Arguments of `accelerate launch` for those of `tempo-trl train`.

    A flag that both the run and accelerate know is passed to the run.

    Raises:
        ValueError: neither the run nor accelerate knows a flag, a number of processes is below 1, or
            [`~tempo_trl.launch.arguments.recipe_parser`] raises it.
    """
    parser, flags, recipe_flags = recipe_parser(argv)
    own_flags, of_launcher = parser.parse_known_args(flags)[1], launcher()
    given = [flag for flag in own_flags if flag.startswith("--")]
    refuse_unknown(given, option_names(parser) | option_names(of_launcher), parser.method)

    launch = [*recipe_flags, *own_flags]  # flags come last, and win
    arguments = of_launcher.parse_args(["--module", *launch, SCRIPT, *_without(argv, own_flags)])
    if arguments.training_script != SCRIPT:
        raise ValueError(f"got {arguments.training_script!r} without a flag. Remove it, or put its flag before it.")
    for name in ("num_processes", "num_machines"):
        if (count := getattr(arguments, name)) is not None and count < 1:
            raise ValueError(f"`{name}` is {count}, expected at least 1. Raise it.")
    if arguments.accelerate_config:
        arguments.config_file = str(accelerate_config_path(arguments.accelerate_config))
    return arguments


def _without(arguments: list[str], taken: list[str]) -> list[str]:
    """`arguments` without those in `taken`, which occur among them in the same order."""
    waiting = list(reversed(taken))
    return [argument for argument in arguments if not (waiting and argument == waiting[-1] and waiting.pop())]


def launch_plan(arguments: Namespace, use_cpu: bool) -> LaunchPlan:
    """
    What accelerate does with the arguments of [`launch_arguments`]. Flags override its configuration.

    `use_cpu` comes from the recipe. Without a configuration accelerate counts the GPUs of the machine, but the machine
    that checks may not be the one that trains: `--num_processes` is then assumed to be right.

    Raises:
        ValueError: accelerate rejects its configuration, the launcher is not supported here, or the number of
            processes is not a multiple of the number of machines.
    """
    asked = arguments.num_processes
    arguments, configured = _resolved(arguments)
    several = _starts_several(arguments)
    believed = not (several or configured or use_cpu or arguments.cpu) and (asked or 1) > 1
    if not (several or believed):
        notes = _notes_on_one(arguments, asked, configured, use_cpu)
        return LaunchPlan(1, 1, Engine("one process", "single"), arguments.mixed_precision, notes)
    machines = arguments.num_machines or 1
    processes = arguments.num_processes or 1
    if processes % machines:
        raise ValueError(
            f"`num_processes` is {processes}, expected a multiple of `num_machines` = {machines}. Change one of them: "
            "`num_processes` counts the processes of all machines together."
        )
    notes = []
    if believed:
        notes.append(f"No accelerate configuration is given: the check assumes {processes} GPUs on the run's machine.")
    if arguments.use_parallelism_config:
        notes.append("accelerate's parallelism_config is not read here: the check assumes FSDP over all devices.")
    engine = _engine(arguments, processes, machines)
    return LaunchPlan(processes, machines, engine, arguments.mixed_precision, tuple(notes))


def _resolved(arguments: Namespace) -> tuple[Namespace, bool]:
    """The arguments as accelerate completes them before it launches, and whether it read a configuration."""
    from accelerate.commands import launch

    try:
        with patch.object(launch.logger, "warning"):  # accelerate warns of its defaults, which the check prints
            # Private, but the one place where accelerate combines flags, configuration and machine: see test_check.py.
            completed, configuration, _ = launch._validate_launch_command(copy.deepcopy(arguments))
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    return completed, configuration is not None


def _starts_several(arguments: Namespace) -> bool:
    other = [name for name in ("tpu", "use_megatron_lm", "mpirun_hostfile") if getattr(arguments, name, None)]
    if other:
        raise ValueError(
            f"accelerate would launch with {other[0]}, expected one process, DDP, DeepSpeed or FSDP. Unset it."
        )
    return not arguments.cpu and bool(arguments.use_deepspeed or arguments.use_fsdp or arguments.multi_gpu)


def _notes_on_one(arguments: Namespace, asked: int | None, configured: bool, use_cpu: bool) -> tuple[str, ...]:
    if (arguments.num_processes or 1) > 1:
        return (
            f"num_processes is {arguments.num_processes}, but accelerate starts one process. For several GPUs pass "
            "`--accelerate_config ddp` (or zero2, zero3, ...); for several CPU processes pass `--multi_gpu`.",
        )
    if not (asked or configured or use_cpu or arguments.cpu):
        return ("The check assumes one process. Without `--num_processes` the run starts one per GPU of its machine.",)
    return ()


def _engine(arguments: Namespace, processes: int, machines: int) -> Engine:
    if arguments.use_deepspeed:
        return _deepspeed(arguments, processes)
    if arguments.use_fsdp:
        return _fsdp(arguments, processes, machines)
    return Engine("DDP", "DDP")


def _deepspeed(arguments: Namespace, processes: int) -> Engine:
    zero = {  # with the keys of DeepSpeed's own configuration
        "stage": ACCELERATE_ZERO_STAGE if arguments.zero_stage is None else arguments.zero_stage,
        "offload_optimizer": {"device": arguments.offload_optimizer_device},
        "offload_param": {"device": arguments.offload_param_device},
    }
    if arguments.deepspeed_config_file:  # replaces the flags, as in accelerate
        zero = _zero_optimization(Path(arguments.deepspeed_config_file))
    stage = zero.get("stage", 0)
    if stage not in ZERO_SHARDS:
        raise ValueError(f"DeepSpeed's ZeRO stage is {stage!r}, expected 0, 1, 2 or 3. Change `zero_stage`.")
    where = {name: (zero.get(f"offload_{name}") or {}).get("device") or "none" for name in ("optimizer", "param")}
    offloaded = (WEIGHTS,) if stage == 3 and where["param"] != "none" else ()
    if stage and where["optimizer"] != "none":
        offloaded += (GRADIENTS, OPTIMIZER)  # an offloaded optimizer needs its gradients beside it
    name = f"DeepSpeed ZeRO-{stage}" + (" with offload" if offloaded else "")
    return Engine(name, "DeepSpeed", ZERO_SHARDS[stage], processes, offloaded)


def _zero_optimization(path: Path) -> dict:
    try:
        return json.loads(path.read_text()).get("zero_optimization", {})
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(
            f"`deepspeed_config_file` is {str(path)!r}, expected a readable JSON file: {error}. Correct it."
        ) from error


def _fsdp(arguments: Namespace, processes: int, machines: int) -> Engine:
    version = int(arguments.fsdp_version)
    offloaded = ALL if _is_true(arguments.fsdp_offload_params) else ()
    strategy = "FULL_SHARD" if _is_true(arguments.fsdp_reshard_after_forward) else "SHARD_GRAD_OP"
    if version == 1:
        strategy = str(arguments.fsdp_sharding_strategy).upper()
    return Engine(
        name=f"FSDP{version}" + (" with offload" if offloaded else ""),
        kind="FSDP",
        sharded=() if strategy in ("NO_SHARD", "3") else ALL,
        shards=processes // machines if strategy.startswith("HYBRID") else processes,
        offloaded=offloaded,
        gathers_all=strategy in ("SHARD_GRAD_OP", "2", "HYBRID_SHARD_ZERO2"),
        activation_checkpointing=_is_true(arguments.fsdp_activation_checkpointing),
    )


def _is_true(value: bool | str) -> bool:
    return str(value).lower() == "true"
