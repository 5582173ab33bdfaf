"""`tempo-trl train --check`: builds a run's configuration, functions and data as the run would, and trains nothing."""

import sys
from copy import deepcopy
from math import ceil
from pathlib import Path
from unittest.mock import patch

from accelerate.commands import launch
from transformers.integrations import get_reporting_integration_callbacks
from trl import GRPOConfig

from tempo_trl.launch.arguments import launch_arguments, parse
from tempo_trl.launch.train import checkpoint_and_inputs
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields
from tempo_trl.rollout.tree_requirements import check_trees_can_grow


def check(argv: list[str]) -> None:
    """
    Print the prompts, completions and optimizer steps of the run that `argv` would start.

    The configuration, the functions and the data are built, the checkpoint is read, and a folder is made where the
    run's would be. The batch sizes are those of the processes that accelerate would start. No model is loaded or
    looked for, and the configuration is built for a CPU, so that a machine without a GPU can check a run of another.

    Raises:
        ValueError: one of these cannot be built. The message says what was got, what was expected, and what to change.
    """
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, which launches the run
    launched = launch_arguments(argv)
    try:
        with patch.object(launch.logger, "warning"):  # of its defaults
            processes = launch._validate_launch_command(deepcopy(launched))[0].num_processes or 1
        with patch.object(GRPOConfig, "world_size", processes):
            arguments = parse([*launched.training_script_args, "--use_cpu", "true", "--tf32", "false"])
        get_reporting_integration_callbacks(arguments.training.report_to)
        train_dataset = checkpoint_and_inputs(arguments)[1]["train_dataset"]
    except (OSError, ImportError) as error:
        raise ValueError(f"cannot configure the run: {error}") from error
    if grows_trees(arguments.training):
        check_trees_can_grow(arguments.training)
    print("\n".join(lines_of(arguments.training, train_dataset, processes)))


def grows_trees(args: GRPOConfig) -> bool:
    """Whether completions are grown as trees: always by the methods for trees, by TEMPO as its `rollout` says."""
    return isinstance(args, FixedTreeFields | EntropyTreeFields) and getattr(args, "rollout", None) != "iid"


def lines_of(args: GRPOConfig, train_dataset, processes: int) -> list[str]:
    """What the check prints: a generation, an update, the data, the run."""
    rows = len(train_dataset) if hasattr(train_dataset, "__len__") else None
    prompts, per_device = args.generation_batch_size // args.num_generations, args.per_device_train_batch_size
    if rows is not None and rows < prompts:
        raise ValueError(f"the data have {rows:,} rows, expected at least the {prompts:,} prompts of a generation.")
    updates = args.steps_per_generation * args.num_iterations / args.gradient_accumulation_steps
    if args.max_steps > 0:
        run = f"{ceil(args.max_steps / updates):,} generations, {args.max_steps:,} optimizer steps (max_steps)"
    else:  # as Trainer counts: an epoch ends with an optimizer step, if need be a smaller one
        epochs, generations = args.num_train_epochs, rows // prompts
        steps = ceil(epochs * ceil(generations * updates))
        if steps < 1:
            raise ValueError(f"`num_train_epochs` is {epochs:g}, which is no step. Raise it, or `max_steps`.")
        run = f"{epochs:g} epochs of {generations:,} generations, {steps:,} optimizer steps"
    devices = f"{processes} x {per_device} x"
    return [
        f"generation      {prompts:,} prompts x {args.num_generations} completions = {devices} "
        f"{args.steps_per_generation} (processes x per device x steps_per_generation)",
        f"optimizer step  {processes * per_device * args.gradient_accumulation_steps:,} completions = {devices} "
        f"{args.gradient_accumulation_steps} (processes x per device x gradient_accumulation_steps)",
        f"data            {'a stream' if rows is None else f'{rows:,} prompts'}",
        f"run             {run}",
        f"first prompt    {next(iter(train_dataset)).get('prompt')!r}",
    ]
