"""Known reward functions that need a package which pip does not install with this one."""

from collections.abc import Iterable
from functools import partial

PACKAGES = ("trl.rewards.", "tempo_trl.rewards.")
# Functions by name, with the number of lists that they take.
NEED_AN_EXTRA = {"math_reward": 2, "accuracy_reward": 2, "reasoning_accuracy_reward": 2, "ifeval_reward": 3}


def refuse_missing_extras(reward_funcs: Iterable) -> None:
    """
    Call each known reward function without completions, before a model is loaded and a batch is sampled.

    Raises:
        ImportError: the package that a function needs is not installed; the message is that of the function.
    """
    for function in reward_funcs:
        while isinstance(function, partial):
            function = function.func
        lists = NEED_AN_EXTRA.get(getattr(function, "__name__", None))
        if lists and f"{function.__module__}.".startswith(PACKAGES):
            function(*[[]] * lists)
