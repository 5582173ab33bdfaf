"""The arguments of a training run: the fields of a recipe, overridden by flags. Unknown names raise an error."""

import os
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import formatannotation
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

from transformers.hf_argparser import string_to_bool
from trl import DatasetMixtureConfig, ModelConfig, TrlParser

from tempo_trl.launch.fields import BUILT_IN, TrainArguments, expect_one_of
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import accelerate_config_path, read_recipe, recipe_path

if TYPE_CHECKING:
    from trl import GRPOConfig

SCRIPT = "tempo_trl.train"  # the module that accelerate starts on every rank
LAUNCHED_WITH = "TEMPO_TRL_LAUNCHED_WITH"  # variable with the name of the configuration of accelerate, for the record


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
        self.method = method
        self.hints = {name: hint for kind in types for name, hint in get_type_hints(kind).items()}

    def error(self, message: str):
        raise ValueError(message)

    def set_defaults_with_config(self, **recipe) -> list[str]:
        """As in TRL, for a recipe whose values are text. argparse itself converts a text, but no list of them.

        Raises:
            ValueError: null, a list or a mapping where the field cannot have it, or an item of a wrong type.
        """
        for action in self._actions:
            if action.dest in recipe and action.nargs != 0:
                recipe[action.dest] = self._default(action, recipe[action.dest])
        return super().set_defaults_with_config(**recipe)

    def _default(self, action: Action, value: object) -> object:
        expected = formatannotation(self.hints[action.dest])
        if not isinstance(value, str) and type(value).__name__.removesuffix("Type") not in expected:
            raise ValueError(f"`{action.dest}` is {value!r}, expected {expected}. Correct it in the recipe.")
        if action.const and str(value).lower() == "true":  # `fsdp: true`, which is text as a flag
            return True
        if value is None or (action.nargs != "+" and not isinstance(value, str)):
            return value
        items = value if isinstance(value, list) else [value]  # one item may stand without a list
        try:
            items = [self._get_value(action, item) if isinstance(item, str) else item for item in items]
            for item in items:
                self._check_value(action, item)
        except ArgumentError as error:
            self.error(str(error))
        return items if action.nargs == "+" else value


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
        ValueError: an unknown flag or key, a repeated key, a value that its field rejects or no run can train with, or
            a run without data, reward or model.
    """
    parser, flags, _ = recipe_parser(argv)
    refuse_unknown(parser.parse_known_args(flags)[1], option_names(parser), parser.method)
    try:
        arguments = RunArguments(*parser.parse_args_into_dataclasses(flags, look_for_args_file=False))
    except TypeError as error:  # of an item of `datasets`, which is a dataclass of its own
        raise ValueError(f"{error}. Correct the recipe.") from error
    script = arguments.script
    sources = {"task": script.task, "dataset_name": script.dataset_name, "datasets": arguments.mixture.datasets}
    named = [name for name, value in sources.items() if value]
    if len(named) != 1:
        got = " and ".join(named) or "no training data"
        raise ValueError(f"got {got}, expected exactly one of {', '.join(sources)}. Set one.")
    _refuse_fields_of_other_data(script, arguments.mixture)
    _refuse_fields_without_their_switch(arguments.model)
    _refuse_texts_of_mappings(arguments.training)
    if arguments.model.model_name_or_path is None and script.task not in BUILT_IN:
        raise ValueError("got no model. Set `model_name_or_path` to a folder or to a model on the Hub.")
    settings = import_module("tempo_trl.trainers.settings")  # here, because `--help` must not wait for torch
    settings.refuse_what_cannot_train(arguments.training)
    return arguments


def _refuse_fields_of_other_data(script: TrainArguments, mixture: DatasetMixtureConfig) -> None:
    """Raise ValueError for fields of one dataset beside `datasets`, and for fields of these without them."""
    of_one = script, ("dataset_config", "dataset_streaming"), "beside `datasets`, expected it beside `dataset_name`"
    of_several = mixture, ("streaming", "test_split_size"), "without `datasets`"
    owner, unread, where = of_one if mixture.datasets else of_several
    if given := [name for name in unread if getattr(owner, name)]:
        raise ValueError(f"got {given[0]} {where}. Remove it.")
    if mixture.streaming and mixture.test_split_size:
        raise ValueError("got test_split_size with `streaming`, but a stream cannot be split. Remove one.")


def _refuse_fields_without_their_switch(model: ModelConfig) -> None:
    """Raise ValueError for a field of LoRA or of 4-bit weights in a run that has neither."""
    switches = {"use_peft": ("lora_", "use_dora", "use_rslora"), "load_in_4bit": ("bnb_4bit_",)}
    default = vars(ModelConfig())
    for switch, names in switches.items():
        given = [name for name, value in vars(model).items() if name.startswith(names) and value != default[name]]
        if given and not getattr(model, switch):
            raise ValueError(f"got {given[0]} without `{switch}`, so that it would not be read. Set it, or remove it.")


def _refuse_texts_of_mappings(training: "GRPOConfig") -> None:
    """Raise ValueError for text in a field of keyword arguments, `generation_kwargs` and the like."""
    for name, value in vars(training).items():
        if name.endswith("_kwargs") and isinstance(value, str):
            raise ValueError(f"`{name}` is {value!r}, expected a mapping. As a flag it is JSON: '{{\"name\": 1}}'.")


def launch_arguments(argv: list[str]) -> Namespace:
    """Arguments of `accelerate launch` for those of `tempo-trl train`.

    A flag that both the run and accelerate know is passed to the run.

    Raises:
        ValueError: neither the run nor accelerate knows a flag, or [`recipe_parser`] raises it.
    """
    parser, flags, recipe_flags = recipe_parser(argv)
    own_flags, of_launcher = parser.parse_known_args(flags)[1], launcher()
    given = [flag for flag in own_flags if flag.startswith("--")]
    refuse_unknown(given, option_names(parser, of_launcher), parser.method)

    launch = [*recipe_flags, *own_flags]  # flags come last, and win
    arguments = of_launcher.parse_args(["--module", *launch, SCRIPT, *_without(argv, own_flags)])
    if arguments.training_script != SCRIPT:
        raise ValueError(f"got {arguments.training_script!r} without a flag. Remove it, or put its flag before it.")
    if arguments.accelerate_config:
        arguments.config_file = str(accelerate_config_path(arguments.accelerate_config))
    return arguments


def _without(arguments: list[str], taken: list[str]) -> list[str]:
    """`arguments` without those in `taken`, which occur among them in the same order."""
    left, waiting = [], [*taken]
    for argument in arguments:
        if waiting and argument == waiting[0]:
            del waiting[0]
        else:
            left.append(argument)
    return left


def recipe_parser(argv: list[str]) -> tuple[TrainParser, list[str], list[str]]:
    """Parser of the run's method with the recipe's values as defaults, the flags left to parse, and launch flags.

    Launch flags are the recipe's keys for `accelerate launch` (`accelerate_config: zero3`, `num_processes: 2`),
    written as flags.

    Raises:
        ValueError: there are no arguments, the method is unknown, or [`recipe_path`] or [`read_recipe`] raises it.
    """
    if not argv:
        raise ValueError("got no arguments, expected `--config RECIPE`. `tempo-trl recipes` lists all recipes.")
    chosen, flags = named_first(argv)
    recipe = read_recipe(recipe_path(chosen.config)) if chosen.config else {}
    if chosen.method:
        recipe["method"] = chosen.method
    _set_environment(recipe.pop("env", None) or {})
    parser = TrainParser(str(recipe.get("method", "tempo")))
    others, launch_flags = {name: value for name, value in recipe.items() if name not in parser.hints}, []
    if others:
        of_launcher = launcher()
        refuse_unknown(list(others), parser.hints.keys() | option_names(of_launcher), parser.method)
        launch_flags = _as_flags(others, of_launcher)
    parser.set_defaults_with_config(**recipe)
    return parser, flags, launch_flags


def named_first(argv: Sequence[str]) -> tuple[Namespace, list[str]]:
    """`config` and `method`, which determine the other fields, and the flags that are left."""
    parser = ArgumentParser(prog="tempo-trl train", add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--method")
    return parser.parse_known_args(argv)


def _set_environment(variables: dict) -> None:
    if not isinstance(variables, dict):
        raise ValueError(f"`env` is {variables!r}, expected a mapping of variable names to values. Change the recipe.")
    _refuse_what_is_no_text(variables)
    os.environ.update({name: value or "" for name, value in variables.items()})


def _refuse_what_is_no_text(values: dict) -> None:
    for name, value in values.items():
        if not isinstance(value, str | None):
            raise ValueError(f"`{name}` is {value!r}, expected one value. Several are one text, such as `0,1`.")


def launcher() -> ArgumentParser:
    """Parser of the flags of `accelerate launch`, and of `--accelerate_config`. It raises ValueError, too."""
    from accelerate.commands.launch import launch_command_parser

    parser = launch_command_parser()
    parser.add_argument("--accelerate_config")
    parser.error = partial(TrainParser.error, parser)
    return parser


def _as_flags(values: dict[str, str | None], parser: ArgumentParser) -> list[str]:
    """`{"num_processes": "2", "multi_gpu": "true", "gpu_ids": None}` as `["--num_processes=2", "--multi_gpu"]`."""
    is_switch = {_name(option): action.nargs == 0 for option, action in parser._option_string_actions.items()}
    _refuse_what_is_no_text(values)
    given = {name: value for name, value in values.items() if value is not None}
    try:
        wanted = [name for name, value in given.items() if not is_switch[name] or string_to_bool(value)]
    except ArgumentTypeError as error:
        raise ValueError(f"{error} Correct the recipe.") from error
    return [f"--{name}" if is_switch[name] else f"--{name}={given[name]}" for name in wanted]


def option_names(*parsers: ArgumentParser) -> set[str]:
    """Names of the parsers' flags, without dashes."""
    return {_name(option) for parser in parsers for option in parser._option_string_actions}


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def refuse_unknown(arguments: list[str], known: Collection[str], method: str) -> None:
    """Raise ValueError if `arguments` contains a flag, or a key, that is not `known`, or only a value."""
    names = [_name(argument) for argument in arguments if argument.startswith("--")] or arguments
    for name in [name for name in names if name not in known]:
        others = [other for other in METHODS if name in class_of(other, "Config").__dataclass_fields__]
        near = get_close_matches(name, sorted(known), n=1)
        what = "is unknown." + (f" Did you mean `{near[0]}`?" if near else "")
        if others:
            what = f"belongs to {', '.join(others)}, but this run uses method {method}."
        raise ValueError(f"`{name}` {what} `tempo-trl train --help-fields` lists all fields.")
