"""The arguments of a training run: the fields of a recipe, overridden by flags. Unknown names raise an error."""

import contextlib
import os
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, NamedTuple, get_args, get_type_hints

from trl import DatasetMixtureConfig, ModelConfig, TrlParser

from tempo_trl.launch.fields import BUILT_IN, TrainArguments, expect_one_of
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import accelerate_config_path, read_recipe, recipe_path

if TYPE_CHECKING:
    from trl import GRPOConfig

SCRIPT = "tempo_trl.train"  # the module that accelerate starts on every rank
SIZES = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
SIZES += ("steps_per_generation", "generation_batch_size", "num_iterations", "num_generations", "num_generations_eval")
OF_THE_COMMAND = ("accelerate_config", "check", "show")
NUMBERS = {"int": "a whole number", "float": "a number"}  # by the name of a flag's type, optional ones included


class RunArguments(NamedTuple):
    """The result of [`parse`]: our own fields, the method's config, and TRL's model and dataset-mixture configs."""

    script: TrainArguments
    training: "GRPOConfig"
    model: ModelConfig
    mixture: DatasetMixtureConfig


class TrainParser(TrlParser):
    """TRL's parser for the fields of one method. It raises ValueError where argparse would exit."""

    def __init__(self, method: str):
        types = [TrainArguments, class_of(method, "Config"), ModelConfig, DatasetMixtureConfig]
        super().__init__(types, prog="tempo-trl train", allow_abbrev=False)
        self.set_defaults(**METHODS[method].defaults)
        self.method = method

    def error(self, message: str):
        raise ValueError(message)


def class_of(method: str, kind: str) -> type:
    """The class of a method's trainer (`kind="Trainer"`) or config (`kind="Config"`)."""
    expect_one_of("method", method, METHODS)
    module, _, name = getattr(METHODS[method], kind.lower()).rpartition(".")
    return getattr(import_module(module), name)


def parse(argv: list[str]) -> RunArguments:
    """The arguments of a run. Flags override the recipe given by `--config`, which overrides the defaults.

    The training config is that of the `method`: a [`~trl.GRPOConfig`] or a subclass. Keys of the recipe that are
    meant for `accelerate launch` are skipped, since the launcher has read them. The recipe's `env` is set in this
    process, as in TRL.

    Raises:
        ValueError: an unknown flag or key (the message suggests the nearest known name), a repeated key, a value that
            its field rejects or no run can train with, or a run without data, reward or model.
    """
    parser, flags, _ = recipe_parser(argv)
    asked, unknown = parser.parse_known_args(flags)
    refuse_unknown(unknown, option_names(parser), parser.method)
    for name in SIZES:  # before TRL divides by them
        if (value := getattr(asked, name)) is not None and value < 1:
            raise ValueError(f"`{name}` is {value}, expected at least 1. Raise it.")
    arguments = RunArguments(*parser.parse_args_into_dataclasses(flags, look_for_args_file=False))
    script = arguments.script
    sources = {"task": script.task, "dataset_name": script.dataset_name, "datasets": arguments.mixture.datasets}
    named = [name for name, value in sources.items() if value]
    if len(named) != 1:
        got, change = (" and ".join(named), "Remove all but one") if named else ("no training data", "Set one of them")
        raise ValueError(f"got {got}, expected exactly one of {', '.join(sources)}. {change}.")
    if arguments.model.model_name_or_path is None and script.task not in BUILT_IN:
        raise ValueError("got no model. Set `model_name_or_path` to a folder or to a model on the Hub.")
    settings = import_module("tempo_trl.trainers.settings")  # here, because `--help` must not wait for torch
    settings.refuse_what_cannot_train(arguments.training)  # also for methods that use TRL's own trainer
    _refuse_split_groups(arguments.training)
    return arguments


def _refuse_split_groups(args: "GRPOConfig") -> None:
    """Raise ValueError if an evaluation would split a group, which TRL asks only if `eval_strategy` is set."""
    group, batch = args.num_generations_eval or args.num_generations, args.per_device_eval_batch_size
    if args.do_eval and args.world_size * batch % group:
        raise ValueError(
            f"`per_device_eval_batch_size` is {batch} on each of {args.world_size} processes, expected whole groups "
            f"of {group} completions in an evaluation. Change it, or set `num_generations_eval` to 1."
        )


def launch_arguments(argv: list[str]) -> Namespace:
    """Arguments of `accelerate launch` for those of `tempo-trl train`.

    A flag that both the run and accelerate know is passed to the run.

    Raises:
        ValueError: neither the run nor accelerate knows a flag, a number of processes is below 1, or
            [`recipe_parser`] raises it.
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


def recipe_parser(argv: list[str]) -> tuple[TrainParser, list[str], list[str]]:
    """Parser of the run's method with the recipe's values as defaults, the flags left to parse, and launch flags.

    Launch flags are the recipe's keys for `accelerate launch` (`accelerate_config: zero3`, `num_processes: 2`),
    written as flags.

    Raises:
        ValueError: there are no arguments, the method is unknown, or [`recipe_path`] or [`read_recipe`] raises it.
    """
    if not argv:
        raise ValueError(
            "got no arguments, expected a recipe, such as `--config sums/tempo`. `tempo-trl recipes` lists all of "
            "them, and `tempo-trl train --help-fields` all fields."
        )
    chosen, flags = named_first(argv)
    recipe = read_recipe(recipe_path(chosen.config)) if chosen.config else {}
    if chosen.method:
        recipe["method"] = chosen.method
    _set_environment(recipe.pop("env", None) or {})
    parser = TrainParser(recipe.get("method", "tempo"))
    known = option_names(parser)
    others, launch_flags = {key: value for key, value in recipe.items() if key not in known}, []
    if others:
        of_launcher = launcher()
        # As they are written: unlike a flag, a key with dashes (`learning-rate`) sets nothing.
        refuse_unknown([str(key) for key in others], known | option_names(of_launcher), parser.method)
        launch_flags = _as_flags(others, of_launcher)
    parser.set_defaults_with_config(**with_numbers(parser, recipe))
    return parser, flags, launch_flags


def named_first(argv: Sequence[str]) -> tuple[Namespace, list[str]]:
    """`config` and `method`, which determine the other fields, and the flags that are left."""
    parser = ArgumentParser(prog="tempo-trl train", add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--method")
    return parser.parse_known_args(argv)


def with_numbers(parser: TrainParser, recipe: dict) -> dict:
    """
    The recipe with its numbers converted. argparse converts flags, but takes the values of a YAML file as they are.

    Raises:
        ValueError: a value is not a number, or a list of numbers, where its flag expects one.
    """
    hints = {name: hint for kind in parser.dataclass_types for name, hint in get_type_hints(kind).items()}
    numbers = {
        action.dest: _number(action, recipe[action.dest])
        for action in parser._actions
        if action.dest in recipe and getattr(action.type, "__name__", "") in NUMBERS
        if not (recipe[action.dest] is None and NoneType in get_args(hints[action.dest]))
    }
    return recipe | numbers


def _number(action: Action, value: object) -> object:
    listed = action.nargs in ("+", "*")
    if listed == isinstance(value, list):
        with contextlib.suppress(ValueError):  # of a text that is not a number, `8.0` and `True` as an int among them
            items = [action.type(str(item)) for item in (value if listed else [value])]
            return items if listed else items[0]
    expected = f"{'a list, each ' if listed else ''}{NUMBERS[action.type.__name__]}"
    raise ValueError(f"`{action.dest}` is {value!r}, expected {expected}. Correct it in the recipe.")


def _set_environment(variables: dict) -> None:
    if not isinstance(variables, dict):
        raise ValueError(f"`env` is {variables!r}, expected a mapping of variable names to values. Change the recipe.")
    os.environ.update({name: str(value) for name, value in variables.items()})


def launcher() -> ArgumentParser:
    """Parser of the flags of `accelerate launch`, and of `--accelerate_config`."""
    from accelerate.commands.launch import launch_command_parser

    parser = launch_command_parser()
    parser.add_argument("--accelerate_config")
    return parser


def _as_flags(values: dict, parser: ArgumentParser) -> list[str]:
    """`{"num_processes": 2, "multi_gpu": True, "gpu_ids": None}` as `["--num_processes", "2", "--multi_gpu"]`."""
    switches = {_name(option) for option, action in parser._option_string_actions.items() if action.nargs == 0}
    flags = []
    for key, value in values.items():
        if value is None or (value is False and key in switches):
            continue
        flags += [f"--{key}"] if value is True and key in switches else [f"--{key}", str(value)]
    return flags


def option_names(parser: ArgumentParser) -> set[str]:
    """Names of a parser's flags, without dashes."""
    return {_name(option) for option in parser._option_string_actions}


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def refuse_unknown(arguments: list[str], known: set[str], method: str) -> None:
    """Raise ValueError if `arguments` contains a flag that is not `known`, or a value without a flag."""
    names = [_name(argument) for argument in arguments if argument.startswith("--")] or arguments
    hints = [_hint(name, known, method) for name in names if name not in known]
    if hints:
        raise ValueError("; ".join(hints))


def _hint(name: str, known: set[str], method: str) -> str:
    if name in OF_THE_COMMAND:
        return f"`{name}` is a flag of `tempo-trl train`, not of the script that it launches. Remove it here"
    for other in METHODS:
        if name in {field.name for field in fields(class_of(other, "Config"))}:
            return f"`{name}` belongs to method {other}, but this run uses method {method}. Remove it or set `method`"
    nearest = get_close_matches(name, known, n=1)
    return f"`{name}` is unknown. " + (
        f"Did you mean `{nearest[0]}`?" if nearest else "`tempo-trl train --help-fields` lists all fields"
    )
