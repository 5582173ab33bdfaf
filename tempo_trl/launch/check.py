"""`tempo-trl train --check`: builds a run's configuration, functions and data as the run would, and trains nothing."""

import sys
from copy import deepcopy
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from accelerate.commands import launch
from trl import GRPOConfig

from tempo_trl.launch.arguments import RunArguments, launch_arguments, parse
from tempo_trl.launch.train import RunInputs, model_path, run_inputs
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.rollout.tree_requirements import check_trees_can_grow


def check(argv: list[str]) -> None:
    """
    Print the prompts, completions and optimizer steps of the run that `argv` would start.

    The batch sizes are those of the processes that accelerate would start. No model is loaded, and the configuration
    is built for a CPU, so that a machine without a GPU can check a run of another one.

    Raises:
        ValueError: the run would fail. The message says what was got, what was expected, and what to change.
    """
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, which launches the run
    launched = launch_arguments(argv)
    processes, flags = processes_of(launched), launched.training_script_args
    with patch.object(GRPOConfig, "world_size", processes):
        arguments = parse([*flags, "--use_cpu", "true"])
        on_this_machine = problem_here(flags)
    try:
        inputs = run_inputs(arguments)
    except (OSError, ImportError) as error:
        raise ValueError(f"cannot load the data or the functions of the run: {error}") from error
    refuse(arguments, inputs)
    print("\n".join(lines_of(arguments, inputs, processes)))
    if on_this_machine:
        print(f"\nNote: on this machine the run would stop at once: {on_this_machine}")
    _print_server(arguments)


def processes_of(launched) -> int:
    """The number of processes on all machines that `accelerate launch` would start."""
    try:
        with patch.object(launch.logger, "warning"):  # of its defaults
            return launch._validate_launch_command(deepcopy(launched))[0].num_processes or 1
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error


def problem_here(flags: list[str]) -> str | None:
    """Why this machine cannot start the run that is checked (bf16 without a GPU); None if it can."""
    try:
        parse(flags)
    except ValueError as error:
        return str(error)
    return None


def refuse(arguments: RunArguments, inputs: RunInputs) -> None:
    """Raise ValueError for what the trainer would refuse once it has loaded the model."""
    args = arguments.training
    folder = Path(args.output_dir).absolute()
    try:
        TemporaryDirectory(dir=next(path for path in (folder, *folder.parents) if path.exists())).cleanup()
    except OSError as error:
        raise ValueError(f"`output_dir` is {args.output_dir!r}, which cannot be made: {error}. Change it.") from error
    if grows_trees(args):
        check_trees_can_grow(args)
    given = {"reward_funcs": inputs.reward_funcs or ["the mean of the criteria"], **inputs.functions}
    for name in ("reward_funcs", "step_reward_funcs", "span_reward_funcs"):
        field = f"{name.removesuffix('_funcs')}_weights"
        weights, expected = getattr(args, field, None), len(given.get(name, []))
        if weights is not None and len(weights) != expected:
            raise ValueError(
                f"`{field}` has {len(weights)} numbers, expected {expected}: one per function of `{name}`, the "
                "reward model first. Change one of them."
            )


def grows_trees(args: GRPOConfig) -> bool:
    """Whether completions are grown as trees: always by the methods for trees, by TEMPO as its `rollout` says."""
    return isinstance(args, FixedTreeFields | EntropyTreeFields) and getattr(args, "rollout", None) != "iid"


def lines_of(arguments: RunArguments, inputs: RunInputs, processes: int) -> list[str]:
    """What the check prints: processes, a generation, an update, the data, the run."""
    args, rows = arguments.training, _length(inputs.train_dataset)
    prompts, per_device = args.generation_batch_size // args.num_generations, args.per_device_train_batch_size
    updates = args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps
    if rows is not None and rows < prompts:
        raise ValueError(
            f"the training data have {rows:,} rows, expected at least the {prompts:,} prompts of a generation. Lower "
            "`steps_per_generation` or `per_device_train_batch_size`."
        )
    run = "until the data end"
    if args.max_steps > 0:
        run = f"{ceil(args.max_steps / updates):,} generations, {args.max_steps:,} optimizer steps (max_steps)"
    elif rows is not None:  # as Trainer counts: an epoch ends with an optimizer step, if need be a smaller one
        epochs, generations = args.num_train_epochs, rows // prompts
        steps = ceil(epochs * ceil(generations * updates))
        run = f"{epochs:g} epochs of {generations:,} generations, {steps:,} optimizer steps"
    devices = f"{processes} x {per_device} x"
    return [
        f"generation      {prompts:,} prompts x {args.num_generations} completions = {devices} "
        f"{args.steps_per_generation} (processes x per device x steps_per_generation)",
        f"optimizer step  {processes * per_device * args.gradient_accumulation_steps:,} completions = {devices} "
        f"{args.gradient_accumulation_steps} (processes x per device x gradient_accumulation_steps)",
        f"data            {'a stream' if rows is None else f'{rows:,} prompts'}",
        f"run             {run}",
        f"first prompt    {next(iter(inputs.train_dataset)).get('prompt')!r}",
    ]


def _length(dataset) -> int | None:
    return len(dataset) if hasattr(dataset, "__len__") else None


def _print_server(arguments: RunArguments) -> None:
    args = arguments.training
    if args.use_vllm and args.vllm_mode == "server":
        from tempo_trl.rollout.vllm_server import server_command, server_url

        print(f"\nBefore the run, start a vLLM server that answers at {server_url(args)}, on GPUs of its own:\n")
        print(f"    {server_command(model_path(arguments), args.vllm_max_model_length)}")
