"""One training run: `python -m tempo_trl.train --config RECIPE [--FIELD VALUE ...]`.

This is the script behind `tempo-trl train`; `accelerate launch -m tempo_trl.train` starts it on every rank. Its fields
are TRL's (the method's config, `ModelConfig`) and those of [`~tempo_trl.launch.fields.TrainArguments`].
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import trl

from tempo_trl.data import BENCHMARKS
from tempo_trl.demo.language_model import HUB_ID, base_model, language_model
from tempo_trl.launch.arguments import LAUNCHED_WITH, RunArguments, class_of, named_first, parse, recipe_parser
from tempo_trl.launch.datasets import load_datasets, refuse_functions_that_fail
from tempo_trl.launch.fields import BUILT_IN, TrainArguments
from tempo_trl.launch.functions import load_functions, load_rewards
from tempo_trl.runs.log import STATE, checkpoints, refuse_a_torn_checkpoint
from tempo_trl.runs.printing import replace_unprintable
from tempo_trl.runs.recipes import recipe_path
from tempo_trl.runs.redaction import move_token_to_environment

if TYPE_CHECKING:
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer


def build_trainer(
    arguments: RunArguments, callbacks: "list[TrainerCallback] | None" = None, inputs: dict | None = None
) -> "GRPOTrainer":
    """The trainer of a parsed run ([`~tempo_trl.launch.arguments.parse`]), with model, data and rewards loaded.

    `inputs` are the run's [`run_inputs`], if they are loaded already.
    """
    script_args, training_args, model_args, _ = arguments
    inputs = inputs or run_inputs(arguments)
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    } | (training_args.model_init_kwargs or {})
    trainer = class_of(script_args.method, "Trainer")(
        model=model_path(arguments),
        args=training_args,
        callbacks=callbacks,
        quantization_config=trl.get_quantization_config(model_args),
        peft_config=trl.get_peft_config(model_args),
        **inputs,
    )
    for index, reward in enumerate(trainer.reward_funcs):
        if hasattr(reward, "with_tokenizer"):  # a `mean_reward`, which then judges the texts that span credit judges
            trainer.reward_funcs[index] = reward.with_tokenizer(trainer._tokenizer)
    return trainer


def checkpoint_and_inputs(arguments: RunArguments) -> tuple[str | None, dict]:
    """
    What a run loads before its model: its [`checkpoint_to_resume`] and its [`run_inputs`].

    Raises:
        ValueError: from these, or something cannot be loaded.
    """
    from datasets.exceptions import DatasetsError

    move_token_to_environment(arguments.training)  # first: the data may be private
    try:
        refuse_missing_places(arguments)
        return checkpoint_to_resume(arguments.training), run_inputs(arguments)
    except (OSError, ImportError, DatasetsError) as error:  # some name only their cause
        why = ": ".join(str(each) for each in (error, error.__cause__) if each)
        name = arguments.script.dataset_name
        here = f". There is no folder {name!r} here" if name and not Path(name).exists() else ""
        raise ValueError(f"cannot load what the run needs: {why}{here}") from error


def refuse_missing_places(arguments: RunArguments) -> None:
    """
    Raise ValueError for a path of the model, which no id on the Hub is, without a folder, for data that are a file,
    and for an output folder that cannot be made or written to.
    """
    model = arguments.model.model_name_or_path or ""
    if model.startswith(("/", "./", "../")) and not Path(model).is_dir():
        raise ValueError(f"model_name_or_path is {model!r}, and there is no such folder. Correct it.")
    for data in (arguments.script.dataset_name, *(each.path for each in arguments.mixture.datasets)):
        if data and Path(data).is_file():
            raise ValueError(f"{data} is a file, expected a folder or a name on the Hub. Give its folder.")
    folder = Path(arguments.training.output_dir).absolute()
    try:
        TemporaryDirectory(dir=next(path for path in (folder, *folder.parents) if path.exists())).cleanup()
    except OSError as error:
        raise ValueError(f"cannot make `output_dir`, or write to it: {error}. Set another one.") from error


def run_inputs(arguments: RunArguments) -> dict:
    """
    The trainer's arguments that are functions or data. They are loaded before the model, so that what is missing is
    met early.

    Raises:
        ImportError: the package that a reward function needs is not installed.
        ValueError: a function cannot be imported, the method does not read it or lacks one, has more or fewer weights,
            or a reward function needs a column that the data do not have, or cannot be called as TRL calls it; the
            data have no prompts.
    """
    # Here, because `--help-fields` must not wait for torch.
    from tempo_trl.trainers.datasets import by_argument, check_datasets
    from tempo_trl.trainers.reward_functions import checked_functions
    from tempo_trl.trainers.run import refuse_missing_extras

    functions = {"reward_funcs": load_rewards(arguments.script), **load_functions(arguments.script)}
    of_places = class_of(arguments.script.method, "Trainer").check_functions(arguments.training, **functions)
    refuse_missing_extras(functions["reward_funcs"])
    if "environment_factory" not in functions:  # which may bring a reward of its own
        checked_functions("reward_funcs", functions["reward_funcs"], arguments.training.reward_weights, True, "")
    train_dataset, eval_dataset = load_datasets(arguments)
    if not hasattr(train_dataset, "__len__") and arguments.training.max_steps <= 0:
        raise ValueError("the training data are a stream, whose length is unknown, and max_steps is not set. Set it.")
    called, data = by_argument(functions["reward_funcs"], *of_places), (train_dataset, eval_dataset)
    check_datasets(arguments.training, *data, called, "environment_factory" in functions)
    refuse_functions_that_fail(filter(callable, chain(*called.values())), *data)
    return functions | {"train_dataset": train_dataset, "eval_dataset": eval_dataset}


def model_path(arguments: RunArguments) -> str:
    """Folder or Hub id of the model to train: task sums has a built-in model."""
    task = arguments.script.task
    if task in BUILT_IN and arguments.model.model_name_or_path in (None, task):
        from tempo_trl.demo.task import policy_path

        return str(policy_path())
    name = arguments.model.model_name_or_path
    if name != HUB_ID:
        return name
    source = language_model()  # also in a package, for machines without the Hub
    print(f"Model: {source.origin}", file=sys.stderr)
    return source.path


def checkpoint_to_resume(training_args: "GRPOConfig") -> str | None:
    """The checkpoint folder to resume from: `last` (or `true`) means the last whole one in the output folder.

    None if the run starts from the beginning. `last` without any checkpoint also returns None, so that a job that its
    scheduler restarts can always use the same command.

    Raises:
        ValueError: a path is given that has no whole checkpoint, or the last one is not whole on every rank.
    """
    from accelerate.utils import broadcast_object_list

    asked = str(training_args.resume_from_checkpoint)
    if asked.lower() in ("none", "false"):
        return None
    if asked.lower() in ("last", "true"):
        # The main process looks for all ranks: on disks that are not shared each would resume from another one.
        main = training_args.process_index == 0
        [asked] = broadcast_object_list([last_whole_checkpoint(training_args.output_dir) if main else None])
    if asked is not None:
        refuse_a_torn_checkpoint(Path(asked))
    return asked


def last_whole_checkpoint(output_dir: str) -> str | None:
    """The last checkpoint folder of the recorded run that is whole, or None. Those after it are named on stderr."""
    from tempo_trl.runs.record import refuse_a_file_of_an_earlier_run

    for folder in checkpoints(Path(output_dir)):
        try:
            refuse_a_torn_checkpoint(folder)
            refuse_a_file_of_an_earlier_run(folder / STATE, Path(output_dir))
            return str(folder)
        except ValueError as error:
            print(f"Skipping a checkpoint: {error}", file=sys.stderr)
    return None


def run(arguments: RunArguments, trainer: "GRPOTrainer", checkpoint: str | None, argv: Sequence[str]) -> None:
    """Train and save. Evaluate at the end if `do_eval` is set; push to the Hub if `push_to_hub` is set.

    Before training, a record of the run (including `argv`) is written to `OUTPUT_DIR/tempo`.
    """
    from tempo_trl.hub.pushing import begin_pushing, push, try_to_write_card
    from tempo_trl.runs.record import record_run

    training_args, output_dir = arguments.training, Path(arguments.training.output_dir)
    if checkpoint is None and trainer.is_world_process_zero():
        tell_of_an_earlier_run(output_dir)
    base, named = base_model(trainer.model.config.name_or_path), named_first(argv)[0].config
    recipe = recipe_path(named) if named else None
    settings = {name: asdict(getattr(arguments, name)) for name in ("script", "model", "mixture")}
    record_run(trainer, argv, recipe, _dataset_name(arguments.script), settings, checkpoint is not None, base)
    if trainer.is_world_process_zero():
        tell_of_changed_settings(output_dir)
    if trainer.hub_model_id is not None:  # the main process of a run that pushes
        begin_pushing(trainer)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    trainer.save_model(_internal_call=True)  # without a push, which would end the run if the Hub is unreachable
    if trainer.is_world_process_zero():
        try_to_write_card(output_dir, training_args.hub_model_id or output_dir.resolve().name)
    if training_args.do_eval:
        metrics = last_evaluation(trainer)
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
        trainer.save_state()  # again, with the evaluation in the log
    if training_args.push_to_hub:
        push(trainer)
    end(trainer)


def last_evaluation(trainer: "GRPOTrainer") -> dict[str, float]:
    """Metrics of the trained weights: of the evaluation after the last step, if there was one, else of a new one."""
    state = trainer.state
    done = [entry for entry in state.log_history if entry["step"] == state.global_step and "eval_runtime" in entry]
    if not done or trainer.args.load_best_model_at_end:
        return trainer.evaluate()
    return {name: value for name, value in done[-1].items() if name != "step"}


def tell_of_an_earlier_run(folder: Path) -> None:
    """Name files in the output folder that a run which starts from the beginning does not replace at once."""
    left = sorted(path.name for path in (*folder.glob("checkpoint-*"), *folder.glob("tempo/*trees_*.parquet")))
    if left:
        print(
            f"{folder} has {', '.join(left[:3])}{', ...' * (len(left) > 3)} of an earlier run, which a resume and the "
            "report would mix with this one. Remove them, or set another `output_dir`.",
            file=sys.stderr,
        )


def tell_of_changed_settings(folder: Path) -> None:
    """Name the settings of a resumed run that differ from those that it had before."""
    from tempo_trl.runs.record import changed_settings, read_record

    record = read_record(folder)
    changed = [changed_settings(before["config"], record["config"]) for before in record["earlier"][-1:]]
    if any(changed):
        print(
            f"Resuming with another {', '.join(changed[0])} than before. The optimizer and the schedule of the "
            "learning rate go on as the checkpoint has them.",
            file=sys.stderr,
        )


def end(trainer: "GRPOTrainer") -> None:
    """Finish the trackers and the process group, and avoid a deadlock of gloo at the end of a process.

    The destructor of a gloo process group waits for its threads while it holds the GIL, which a thread may need to
    release the tensors of the last collective (https://github.com/pytorch/pytorch/issues/56297). A short sleep gives
    the threads time to release them first.
    """
    if trainer.accelerator.num_processes > 1:
        time.sleep(0.2)
    trainer.accelerator.end_training()  # `trainer.end()`, which transformers has from 5.18 on


def _dataset_name(script_args: TrainArguments) -> str | None:
    """Name of the training data for the record, which keeps it if it is on the Hub; None for a file of rows."""
    is_hubs = script_args.task in BENCHMARKS and not script_args.train_file
    return BENCHMARKS[script_args.task].hub_id or None if is_hubs else script_args.dataset_name


def main(argv: list[str] | None = None, callbacks: "Sequence[TrainerCallback]" = ()) -> int:
    """Run `argv` (by default the process's arguments). Returns 2 if the trainer cannot be built from them, else 0.

    Errors of training itself are raised. `callbacks` are added to the trainer's own.
    """
    argv = sys.argv[1:] if argv is None else argv
    replace_unprintable()
    try:
        if {"-h", "--help", "--help-fields"} & {*argv}:
            parser = recipe_parser(argv)[0]
            parser.usage = "tempo-trl train [--config RECIPE] [--FIELD VALUE ...]"  # argparse's has all fields twice
            parser.print_help()
            return 0
        arguments = parse(argv)
        checkpoint, inputs = checkpoint_and_inputs(arguments)
        trainer = build_trainer(arguments, [*callbacks], inputs)
    except (OSError, ImportError, ValueError) as error:
        print(f"tempo-trl train: error: {error}", file=sys.stderr)
        return 2
    named = os.environ.pop(LAUNCHED_WITH, "")
    run(arguments, trainer, checkpoint, [*argv, "--accelerate_config", named] if named and "/" not in named else argv)
    return 0
