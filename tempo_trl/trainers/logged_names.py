"""Names under which reward functions may log: none of TRL's or of this package, whose values would be mixed up."""

from collections.abc import Iterable

from tempo_trl.runs.metrics import METRICS

CRITERIA = "criteria"  # name, reward and advantage of each criterion of a completion
OWN_COLUMNS = ("td_share", "branch_tokens", CRITERIA)  # in TRL's table of completions
TRL_COLUMNS = ("step", "prompt", "completion", "advantage", "image")
TRL_METRICS = (
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "num_tokens",
    "step_time",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "kl",
    "entropy",
    "entropy_coef",
    "policy_loss",
    "aux_loss",
    "cispo_clip_ratio",
)
# What stands before the first slash of a metric.
FAMILIES = {name.partition("/")[0] for name in METRICS} | {
    *("completions", "tools", "rewards", "sampling", "clip_ratio", "vespo", "profiling")
}


def refuse_reserved_metrics(names: Iterable[str]) -> None:
    """Raise ValueError if a name given to `log_metric` is that of a metric which is logged anyway."""
    for name in names:
        family, slash, _ = name.partition("/")
        if name in TRL_METRICS or (slash and family in FAMILIES):
            raise ValueError(
                f"A reward function called `log_metric({name!r}, ...)`, but the trainer logs "
                f"{f'metrics {family}/*' if slash else 'this metric'} itself, and would average both. Choose another "
                f"name, such as 'my_reward/{name.rpartition('/')[2]}'."
            )


def refuse_reserved_columns(names: Iterable[str], reward_names: Iterable[str]) -> None:
    """Raise ValueError if a name given to `log_extra` is that of another column of the completions table."""
    for name in names:
        if name in {*TRL_COLUMNS, *OWN_COLUMNS, *reward_names}:
            raise ValueError(
                f"A reward function called `log_extra({name!r}, ...)`, but the completions table has a column of this "
                f"name. Choose another name, such as 'my_{name}'."
            )
