"""The arguments of a training run: a recipe's fields, flags over them, and nothing that neither knows."""

import os
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, TrlParser

from tempo_trl.data import BENCHMARKS
from tempo_trl.data.prompts import STYLES
from tempo_trl.launch.recipe_values import check_numbers
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import read_recipe, recipe_path

if TYPE_CHECKING:
    from trl import GRPOConfig

    from tempo_trl.data import Benchmark


TASKS = (*BENCHMARKS, "demo")
# Shorthands, TRL's own among them. Every other reward function is named by its dotted path.
REWARDS = {
    "math_reward": "tempo_trl.rewards.math_reward",
    "choice_reward": "tempo_trl.rewards.choice_reward",
    "format_reward": "tempo_trl.rewards.format_reward",
    "accuracy_reward": "trl.rewards.accuracy_reward",
    "reasoning_accuracy_reward": "trl.rewards.reasoning_accuracy_reward",
    "think_format_reward": "trl.rewards.think_format_reward",
    "get_soft_overlong_punishment": "trl.rewards.get_soft_overlong_punishment",
}


@dataclass
class TrainArguments(ScriptArguments):
    """
    What to train with and on: the fields of [`~trl.ScriptArguments`] and these.

    Args:
        method (`str`, *optional*, defaults to `"tempo"`):
            A method of [`~tempo_trl.methods.METHODS`], which has its trainer and its config.
        task (`str`, *optional*):
            Built-in prompts instead of `dataset_name`: a benchmark of [`~tempo_trl.data.BENCHMARKS`] (`"math"`,
            `"medqa"`, `"medqa_5options"`, `"medmcqa"`; with a `train_file` those that are for testing alone, too:
            `"gsm_hard"`, `"amc23"`, `"mmlu_medical"`) or `"demo"` (sums of digits, with a tiny model that takes the
            place of a missing `model_name_or_path`).
        train_file (`str`, *optional*):
            Local file of a benchmark's rows to train on, instead of the Hub's `dataset_train_split`.
        eval_file (`str`, *optional*):
            Local file of a benchmark's rows to evaluate on, instead of the Hub's `dataset_test_split` (where that is
            left at `"test"` and the benchmark has no such split, the one it is evaluated on: MedMCQA's `validation`).
        system_prompt (`str`, *optional*):
            First message of a benchmark's prompts; an empty text for none. The style's own if unset.
        instruction (`str`, *optional*):
            What closes the user's message of a benchmark's prompts. It has to ask for what the reward reads, a box.
            The style's own if unset.
        prompt_style (`str`, *optional*):
            Words and layout of a benchmark's prompts: `"boxed"` (if unset) or `"authors-code"`
            ([`~tempo_trl.data.prompts`]).
        drop_leaked_rows (`bool`, *optional*, defaults to `False`):
            Whether to leave out a benchmark's rows to train on that are rows to evaluate on, too; otherwise they are
            kept and named in a warning ([`~tempo_trl.data.leaks.check_leaks`]).
        reward_funcs (`list[str]`, *optional*):
            Reward functions: `"math_reward"`, `"choice_reward"`, `"format_reward"` (to watch, at a weight of 0 in
            `reward_weights`), `"accuracy_reward"`, `"reasoning_accuracy_reward"`, `"think_format_reward"`,
            `"get_soft_overlong_punishment"` (with `max_completion_len=1280`, `soft_punish_cache=256`, as in TRL's
            script), or the dotted path of a function.
        reward_model_name_or_path (`str`, *optional*):
            Reward model, on the Hub or in a folder; counted before `reward_funcs` in `reward_weights`.

    Raises:
        ValueError: an unknown method, task, style or reward; no reward; nothing to train on; a field of the benchmarks
            without one.
    """

    method: str = field(default="tempo", metadata={"help": f"Trainer and config, one of: {', '.join(METHODS)}."})
    task: str | None = field(
        default=None,
        metadata={
            "help": "Built-in prompts instead of `dataset_name`: a benchmark (`math`, `medqa`, `medqa_5options`, "
            "`medmcqa`; with a `train_file` those that are for testing alone, too: `gsm_hard`, `amc23`, "
            "`mmlu_medical`), or `demo` (sums of digits, with a tiny model that takes the place of a missing "
            "`model_name_or_path`)."
        },
    )
    train_file: str | None = field(
        default=None,
        metadata={"help": "Local file of a benchmark's rows to train on, instead of the Hub's `dataset_train_split`."},
    )
    eval_file: str | None = field(
        default=None,
        metadata={
            "help": "Local file of a benchmark's rows to evaluate on, instead of the Hub's `dataset_test_split` "
            "(where that is left at `test` and the benchmark has no such split, the one it is evaluated on: MedMCQA's "
            "`validation`)."
        },
    )
    system_prompt: str | None = field(
        default=None,
        metadata={"help": "First message of a benchmark's prompts; an empty text for none. The style's own if unset."},
    )
    instruction: str | None = field(
        default=None,
        metadata={
            "help": "What closes the user's message of a benchmark's prompts. It has to ask for what the reward "
            "reads, a box. The style's own if unset."
        },
    )
    prompt_style: str | None = field(
        default=None,
        metadata={"help": "Words and layout of a benchmark's prompts: `boxed` (if unset) or `authors-code`."},
    )
    drop_leaked_rows: bool = field(
        default=False,
        metadata={
            "help": "Whether to leave out a benchmark's rows to train on that are rows to evaluate on, too; otherwise "
            "they are kept and named in a warning."
        },
    )
    reward_funcs: list[str] | None = field(
        default=None,
        metadata={
            "help": "Reward functions: `math_reward`, `choice_reward`, `format_reward` (to watch, at a weight of 0 in "
            "`reward_weights`), `accuracy_reward`, `reasoning_accuracy_reward`, `think_format_reward`, "
            "`get_soft_overlong_punishment` (with `max_completion_len=1280`, "
            "`soft_punish_cache=256`, as in TRL's script), or the dotted path of a function."
        },
    )
    reward_model_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Reward model, on the Hub or in a folder; counted before `reward_funcs` in `reward_weights`."
        },
    )

    def __post_init__(self):
        if isinstance(self.reward_funcs, str):  # a recipe's `reward_funcs: math_reward`
            self.reward_funcs = [self.reward_funcs]
        _expect_one_of("method", self.method, METHODS)
        if self.task is not None:
            _expect_one_of("task", self.task, TASKS)
        for name in self.reward_funcs or []:
            if "." not in str(name):
                _expect_one_of("reward_funcs", name, REWARDS, "the dotted path of a function")
        if not self.reward_funcs and not self.reward_model_name_or_path:
            raise ValueError(
                "nothing to reward with: set `reward_funcs` (math_reward) or `reward_model_name_or_path`."
            )
        if self.prompt_style is not None:
            _expect_one_of("prompt_style", self.prompt_style, STYLES)
        self._check_benchmark(BENCHMARKS.get(self.task))

    def _check_benchmark(self, benchmark: "Benchmark | None") -> None:
        given = [name for name in _BENCHMARK_FIELDS if getattr(self, name) not in (None, False)]
        if given and benchmark is None:
            names = ", ".join(BENCHMARKS)
            raise ValueError(f"{', '.join(given)}: read by the tasks {names} alone, and the task is {self.task!r}.")
        if benchmark and benchmark.train_split is None and self.train_file is None:
            trainable = [name for name, other in BENCHMARKS.items() if other.train_split]
            raise ValueError(
                f"`task` {self.task} is for testing alone: train on one of {', '.join(trainable)}, or on rows of your "
                "own in its columns with `train_file`."
            )


_BENCHMARK_FIELDS = ("train_file", "eval_file", "system_prompt", "instruction", "prompt_style", "drop_leaked_rows")


def _expect_one_of(name: str, value: str, known: Iterable[str], otherwise: str | None = None) -> None:
    if value not in [*known]:  # a list, too, may stand in a recipe
        expected = ", ".join([*known, *([otherwise] if otherwise else [])])
        raise ValueError(f"`{name}` is {value!r}, expected one of: {expected}.")


class RunArguments(NamedTuple):
    """What [`parse`] reads: our own fields, the method's config, and TRL's of the model and of a dataset mixture."""

    script: TrainArguments
    training: "GRPOConfig"
    model: ModelConfig
    mixture: DatasetMixtureConfig


class TrainParser(TrlParser):
    """TRL's parser for the fields of one method; it raises ValueError where argparse would exit."""

    def __init__(self, method: str):
        types = [TrainArguments, class_of(method, "Config"), ModelConfig, DatasetMixtureConfig]
        super().__init__(types, prog="tempo-trl train", allow_abbrev=False)
        self.set_defaults(**METHODS[method].defaults)
        self.method = method

    def error(self, message: str):
        raise ValueError(message)


def class_of(method: str, kind: str) -> type:
    """The `Trainer` or the `Config` of a method."""
    _expect_one_of("method", method, METHODS)
    module, _, name = getattr(METHODS[method], kind.lower()).rpartition(".")
    return getattr(import_module(module), name)


def parse(argv: list[str]) -> RunArguments:
    """The arguments of a run: flags over the recipe that `--config` names over defaults.

    The config is that of the `method`, a [`~trl.GRPOConfig`] or a subclass. What the recipe holds for
    `accelerate launch` is passed over: the launcher has read it. Its `env` is set in this process, as TRL does.

    Raises:
        ValueError: an unknown flag or key (the nearest known name is given), a repeated key, a value that its field
            refuses, or a run without data, reward or model.
    """
    parser, flags, _ = recipe_parser(argv)
    refuse_unknown(parser.parse_known_args(flags)[1], option_names(parser), parser.method)
    arguments = RunArguments(*parser.parse_args_into_dataclasses(flags, look_for_args_file=False))
    script = arguments.script
    sources = {"task": script.task, "dataset_name": script.dataset_name, "datasets": arguments.mixture.datasets}
    named = [name for name, value in sources.items() if value]
    if len(named) != 1:
        raise ValueError(f"data come from one of {', '.join(sources)}: got {' and '.join(named) or 'none'}.")
    if arguments.model.model_name_or_path is None and script.task != "demo":
        raise ValueError("nothing to train: set `model_name_or_path`.")
    return arguments


def recipe_parser(argv: list[str]) -> tuple[TrainParser, list[str], list[str]]:
    """Parser of the run's method with its recipe's values as defaults, the flags left to parse, and launch flags.

    The last are the recipe's keys for `accelerate launch` (`accelerate_config: zero3`, `num_processes: 2`), as flags.

    Raises:
        ValueError: the method is unknown, or as [`recipe_path`] and [`read_recipe`].
    """
    first = ArgumentParser(prog="tempo-trl train", add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    first.add_argument("--method")
    chosen, flags = first.parse_known_args(argv)
    recipe = read_recipe(recipe_path(chosen.config)) if chosen.config else {}
    if chosen.method:
        recipe["method"] = chosen.method
    _set_environment(recipe.pop("env", None) or {})
    parser = TrainParser(recipe.get("method", "tempo"))
    known = option_names(parser)
    others = {key: value for key, value in recipe.items() if key not in known}
    if others:
        refuse_unknown([f"--{key}" for key in others], known | _launch_names(), parser.method)
    check_numbers(parser, recipe)
    parser.set_defaults_with_config(**recipe)
    return parser, flags, _as_flags(others)


def _set_environment(variables: dict) -> None:
    if not isinstance(variables, dict):
        raise ValueError(f"`env` is {variables!r}, expected a mapping of names to values.")
    os.environ.update({name: str(value) for name, value in variables.items()})


def _launch_names() -> set[str]:
    from accelerate.commands.launch import launch_command_parser

    return {"accelerate_config", *option_names(launch_command_parser())}


def _as_flags(values: dict) -> list[str]:
    """`{"num_processes": 2, "multi_gpu": True}` as `["--num_processes", "2", "--multi_gpu"]`."""
    pairs = ([f"--{key}"] if value is True else [f"--{key}", str(value)] for key, value in values.items())
    return [text for pair in pairs for text in pair]


def option_names(parser: ArgumentParser) -> set[str]:
    """Names of a parser's flags, without dashes."""
    return {_name(option) for option in parser._option_string_actions}


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0].replace("-", "_")


def refuse_unknown(arguments: list[str], known: set[str], method: str) -> None:
    """Raise ValueError for the flags among `arguments` that are not `known`, or for stray values without a flag."""
    names = [_name(argument) for argument in arguments if argument.startswith("--")] or arguments
    hints = [_hint(name, known, method) for name in names if name not in known]
    if hints:
        raise ValueError("; ".join(hints))


def _hint(name: str, known: set[str], method: str) -> str:
    if name == "accelerate_config":
        return f"`{name}` is a flag of `tempo-trl train`, here it is too late for it"
    for other in METHODS:
        if name in {field.name for field in fields(class_of(other, "Config"))}:
            return f"`{name}` belongs to method {other}, and this run's method is {method}"
    nearest = get_close_matches(name, known, n=1)
    return f"`{name}` is unknown" + (f", did you mean `{nearest[0]}`?" if nearest else "")
