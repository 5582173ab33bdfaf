"""One training run: `python -m tempo_trl.train --config RECIPE [--FIELD VALUE ...]`.

The script behind `tempo-trl train`, and what `accelerate launch -m tempo_trl.train` starts on every rank. Fields are
TRL's (the method's config, `ModelConfig`) and those of [`TrainArguments`].
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import trl
from trl import ModelConfig, ScriptArguments, TrlParser

import tempo_trl
from tempo_trl.cli import TRAIN_HELP
from tempo_trl.recipe_files import read_recipe, recipe_path

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

# The package and the prefix of each method's trainer and config. Both packages import them on first use.
METHODS = {"tempo": (tempo_trl, "TEMPO"), "grpo": (trl, "GRPO")}
TASKS = ("math", "demo")
# Shorthands, TRL's own among them. Every other reward function is named by its dotted path.
REWARDS = {
    "math_reward": "tempo_trl.rewards.math_reward",
    "accuracy_reward": "trl.rewards.accuracy_reward",
    "reasoning_accuracy_reward": "trl.rewards.reasoning_accuracy_reward",
    "think_format_reward": "trl.rewards.think_format_reward",
    "get_soft_overlong_punishment": "trl.rewards.get_soft_overlong_punishment",
}
DEMO_TRAIN_PROBLEMS = 8192
DEMO_TEST_PROBLEMS = 512


@dataclass
class TrainArguments(ScriptArguments):
    """
    What to train with and on: the fields of [`~trl.ScriptArguments`] and these.

    Args:
        method (`str`, *optional*, defaults to `"tempo"`):
            Picks trainer and config: `"tempo"` ([`TEMPOTrainer`]) or `"grpo"` ([`~trl.GRPOTrainer`]).
        task (`str`, *optional*):
            Built-in prompts instead of `dataset_name`: `"math"` ([`~tempo_trl.data.math_dataset.load_math`]) or
            `"demo"` (sums of digits, with a tiny model that takes the place of a missing `model_name_or_path`).
        train_file (`str`, *optional*):
            Local file of the rows of task `"math"` to train on, instead of the Hub's `dataset_train_split`.
        eval_file (`str`, *optional*):
            Local file of the rows of task `"math"` to evaluate on, instead of the Hub's `dataset_test_split`.
        system_prompt (`str`, *optional*):
            First message of each prompt of task `"math"`; none if unset.
        instruction (`str`, *optional*):
            What closes the user's message in task `"math"`. It has to ask for a box. The task's own if unset.
        reward_funcs (`list[str]`, *optional*):
            Reward functions: `"math_reward"`, `"accuracy_reward"`, `"reasoning_accuracy_reward"`,
            `"think_format_reward"`, `"get_soft_overlong_punishment"` (with `max_completion_len=1280`,
            `soft_punish_cache=256`, as in TRL's script), or the dotted path of a function.
        reward_model_name_or_path (`str`, *optional*):
            Reward model, on the Hub or in a folder; counted before `reward_funcs` in `reward_weights`.

    Raises:
        ValueError: an unknown method, task or reward; no reward; no data, or data named twice.
    """

    method: str = field(default="tempo", metadata={"help": "Picks trainer and config: `tempo` or `grpo`."})
    task: str | None = field(
        default=None,
        metadata={
            "help": "Built-in prompts instead of `dataset_name`: `math`, or `demo` (sums of digits, with a tiny model "
            "that takes the place of a missing `model_name_or_path`)."
        },
    )
    train_file: str | None = field(
        default=None,
        metadata={
            "help": "Local file of the rows of task `math` to train on, instead of the Hub's `dataset_train_split`."
        },
    )
    eval_file: str | None = field(
        default=None,
        metadata={
            "help": "Local file of the rows of task `math` to evaluate on, instead of the Hub's `dataset_test_split`."
        },
    )
    system_prompt: str | None = field(
        default=None, metadata={"help": "First message of each prompt of task `math`; none if unset."}
    )
    instruction: str | None = field(
        default=None,
        metadata={
            "help": "What closes the user's message in task `math`. It has to ask for a box. The task's own if unset."
        },
    )
    reward_funcs: list[str] | None = field(
        default=None,
        metadata={
            "help": "Reward functions: `math_reward`, `accuracy_reward`, `reasoning_accuracy_reward`, "
            "`think_format_reward`, `get_soft_overlong_punishment` (with `max_completion_len=1280`, "
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
            if "." not in name:
                _expect_one_of("reward_funcs", name, REWARDS, "the dotted path of a function")
        self._expect_rewards_and_data()

    def _expect_rewards_and_data(self) -> None:
        if not self.reward_funcs and not self.reward_model_name_or_path:
            raise ValueError(
                "nothing to reward with: set `reward_funcs` (math_reward) or `reward_model_name_or_path`."
            )
        if (self.task is None) == (self.dataset_name is None):
            raise ValueError(
                f"got task {self.task!r} and dataset_name {self.dataset_name!r}: set one of them, and not both."
            )
        ignored = [name for name in _MATH_FIELDS if getattr(self, name) is not None and self.task != "math"]
        if ignored:
            raise ValueError(f"{', '.join(ignored)}: read by task math alone, and the task is {self.task!r}.")


_MATH_FIELDS = ("train_file", "eval_file", "system_prompt", "instruction")


def _expect_one_of(name: str, value: str, known: Iterable[str], otherwise: str | None = None) -> None:
    if value not in known:
        expected = ", ".join([*known, *([otherwise] if otherwise else [])])
        raise ValueError(f"`{name}` is {value!r}, expected one of: {expected}.")


class TrainParser(TrlParser):
    """TRL's parser for the fields of one method; it raises ValueError where argparse would exit."""

    def __init__(self, method: str):
        super().__init__(
            [TrainArguments, _class_of(method, "Config"), ModelConfig], prog="tempo-trl train", allow_abbrev=False
        )
        self.method = method

    def error(self, message: str):
        raise ValueError(message)


def _class_of(method: str, kind: str) -> type:
    """The `Trainer` or the `Config` of a method."""
    _expect_one_of("method", method, METHODS)
    package, prefix = METHODS[method]
    return getattr(package, prefix + kind)


def parse(argv: list[str]) -> tuple[TrainArguments, "GRPOConfig", ModelConfig]:
    """The arguments of a run: flags over the recipe that `--config` names over defaults.

    The config is a [`TEMPOConfig`] or a [`~trl.GRPOConfig`], as `method` says.

    Raises:
        ValueError: an unknown flag or key (the nearest known name is given), a repeated key, a value that its field
            refuses, or a run without data, reward or model.
    """
    parser, flags = recipe_parser(argv)
    refuse_unknown(parser.parse_known_args(flags)[1], option_names(parser), parser.method)
    script_args, training_args, model_args = parser.parse_args_into_dataclasses(flags, look_for_args_file=False)
    if model_args.model_name_or_path is None and script_args.task != "demo":
        raise ValueError("nothing to train: set `model_name_or_path`.")
    return script_args, training_args, model_args


def recipe_parser(argv: list[str]) -> tuple[TrainParser, list[str]]:
    """Parser of the run's method, with its recipe's values as defaults, and the flags that are left to parse.

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
    parser = TrainParser(recipe.get("method", "tempo"))
    unknown_keys = parser.set_defaults_with_config(**recipe)[::2]
    refuse_unknown(unknown_keys, option_names(parser), parser.method)
    return parser, flags


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
        if name in {field.name for field in fields(_class_of(other, "Config"))}:
            return f"`{name}` belongs to method {other}, and this run's method is {method}"
    nearest = get_close_matches(name, known, n=1)
    return f"`{name}` is unknown" + (f", did you mean `{nearest[0]}`?" if nearest else "")


def build_trainer(
    script_args: TrainArguments,
    training_args: "GRPOConfig",
    model_args: ModelConfig,
    callbacks: "list[TrainerCallback] | None" = None,
) -> "GRPOTrainer":
    """Trainer of the run that [`parse`] has read: rewards, data and model loaded, nothing trained."""
    reward_funcs = load_rewards(script_args)
    train_dataset, eval_dataset = load_datasets(script_args, training_args)
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    } | (training_args.model_init_kwargs or {})
    return _class_of(script_args.method, "Trainer")(
        model=_model_path(script_args, model_args),
        reward_funcs=reward_funcs,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        callbacks=callbacks,
        quantization_config=trl.get_quantization_config(model_args),
        peft_config=trl.get_peft_config(model_args),
    )


def _model_path(script_args: TrainArguments, model_args: ModelConfig) -> str:
    if script_args.task == "demo" and model_args.model_name_or_path in (None, "demo"):
        from tempo_trl.demo.policy import policy_path

        return str(policy_path())
    return model_args.model_name_or_path


def load_rewards(script_args: TrainArguments) -> list[str | Callable]:
    """Rewards of the run in TRL's form: the reward model's name first, if there is one, then the functions."""
    model = script_args.reward_model_name_or_path
    return [*([model] if model else []), *map(_reward_function, script_args.reward_funcs or [])]


def _reward_function(name: str) -> Callable:
    module, _, attribute = REWARDS.get(name, name).rpartition(".")
    function = getattr(import_module(module), attribute)
    if name == "get_soft_overlong_punishment":  # makes a reward function; the numbers are those of TRL's script
        return function(max_completion_len=1280, soft_punish_cache=256)
    return function


def load_datasets(script_args: TrainArguments, training_args: "GRPOConfig") -> "tuple[Dataset, Dataset | None]":
    """Prompts to train on, and those to evaluate on if the run evaluates."""
    load = {"math": _load_math, "demo": _load_demo, None: _load_from_hub}[script_args.task]
    return load(script_args, training_args)


def _load_math(script_args, training_args):
    from tempo_trl.data.math_dataset import INSTRUCTION, load_math

    texts = script_args.system_prompt, script_args.instruction or INSTRUCTION
    train_dataset = load_math(script_args.dataset_train_split, script_args.train_file, *texts)
    if not training_args.do_eval:
        return train_dataset, None
    return train_dataset, load_math(script_args.dataset_test_split, script_args.eval_file, *texts)


def _load_demo(script_args, training_args):
    from tempo_trl.demo.task import problems

    # Held-out problems do not depend on the seed: the runs of different seeds are compared on the same ones.
    held_out = problems(DEMO_TEST_PROBLEMS, seed=0, split="test") if training_args.do_eval else None
    return problems(DEMO_TRAIN_PROBLEMS, seed=training_args.seed), held_out


def _load_from_hub(script_args, training_args):
    from datasets import load_dataset

    dataset = load_dataset(
        script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
    )
    eval_dataset = dataset[script_args.dataset_test_split] if training_args.do_eval else None
    return dataset[script_args.dataset_train_split], eval_dataset


def checkpoint_to_resume(training_args: "GRPOConfig") -> str | None:
    """Checkpoint folder that `resume_from_checkpoint` means: `last` (or `true`) is the last one in the output folder.

    None where the run starts afresh, also if `last` finds no checkpoint: a job that is started again and again by its
    scheduler carries one command.
    """
    from transformers.trainer_utils import get_last_checkpoint

    asked = str(training_args.resume_from_checkpoint)
    if asked.lower() in ("none", "false"):
        return None
    if asked.lower() not in ("last", "true"):
        return asked
    return get_last_checkpoint(training_args.output_dir) if os.path.isdir(training_args.output_dir) else None


def run(script_args: TrainArguments, training_args: "GRPOConfig", model_args: ModelConfig) -> None:
    """Train, save, and evaluate once more at the end if the run evaluates at all; push if `push_to_hub` says so."""
    trainer = build_trainer(script_args, training_args, model_args)
    result = trainer.train(resume_from_checkpoint=checkpoint_to_resume(training_args))
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    trainer.save_model()
    dataset_name = _dataset_name(script_args)
    trainer.create_model_card(Path(training_args.hub_model_id or training_args.output_dir).name, dataset_name)
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=dataset_name)
    trainer.end()


def _dataset_name(script_args: TrainArguments) -> str | None:
    """Hub id of the training data, for the model card; None for local rows."""
    from tempo_trl.data.math_dataset import MATH_HUB_ID

    return MATH_HUB_ID if script_args.task == "math" and not script_args.train_file else script_args.dataset_name


def main(argv: list[str] | None = None) -> int:
    """Run `argv` (by default the process's arguments); 2 where they are wrong, 0 otherwise. The run's errors rise."""
    argv = sys.argv[1:] if argv is None else argv
    if "-h" in argv or "--help" in argv:
        print(TRAIN_HELP, end="")
        return 0
    try:
        if "--help-fields" in argv:
            recipe_parser(argv)[0].print_help()
            return 0
        arguments = parse(argv)
    except ValueError as error:
        print(f"tempo-trl train: error: {error}", file=sys.stderr)
        return 2
    run(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
