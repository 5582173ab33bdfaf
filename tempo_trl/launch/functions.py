"""The functions that a recipe names: rewards, credit, tools, and data, by a short name or by their dotted path."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tempo_trl.launch.fields import REWARDS, SPAN_REWARDS, TrainArguments

ONE = ("credit_func", "observation_key_func", "environment_factory")
SEVERAL = ("tools", "step_reward_funcs", "span_reward_funcs")


def load_rewards(script_args: TrainArguments) -> list[str | Callable]:
    """Rewards of the run as TRL takes them: the name of the reward model, if there is one, then the functions."""
    model = script_args.reward_model_name_or_path
    return [*([model] if model else []), *map(_reward_function, script_args.reward_funcs or [])]


def load_functions(script_args: TrainArguments) -> dict:
    """The trainer's arguments that are functions of the user, those that the run has."""
    given = {name: getattr(script_args, name) for name in (*ONE, *SEVERAL) if getattr(script_args, name)}
    return {name: _loaded(path) if name in ONE else [_loaded(each) for each in path] for name, path in given.items()}


def _loaded(name: str) -> Callable | str:
    """A function by its short name or its dotted path; the name itself of a process reward model."""
    is_model = name not in SPAN_REWARDS and ("/" in name or Path(name).is_dir())
    return name if is_model else load_function(SPAN_REWARDS.get(name, name))


def _reward_function(name: str) -> Callable:
    function = load_function(REWARDS.get(name, name))
    if name == "get_soft_overlong_punishment":  # returns a reward function; the numbers are those of TRL's script
        return function(max_completion_len=1280, soft_punish_cache=256)
    return function


def load_function(path: str) -> Callable:
    """The function, or other callable, at the dotted path `package.module.function`.

    Every launcher starts `python -m tempo_trl.train`, which can import modules of the current directory.

    Raises:
        ValueError: the module cannot be imported, has no such attribute, or the attribute is not callable.
    """
    module, _, attribute = path.rpartition(".")
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # TypeError: of a path such as ./rewards.py
        advice = "Expected package.module.function, installed or in this directory, such as my_file.my_function."
        raise ValueError(f"cannot import function {path!r}: {error}. {advice}") from error
    if not callable(function):
        raise ValueError(f"{path!r} has type {type(function).__name__}, expected a function. Correct the dotted path.")
    return function
