"""The three tasks that most questions look at, and names with figures."""

from benchmarks.estimators.task import Task

EARLY, SPREAD, LATE = Task((0, 1)), Task((0, 4, 8)), Task((7, 8, 9))
TASKS = {"early": EARLY, "spread": SPREAD, "late": LATE}
SAID = {"early": "early (tokens 1, 2)", "spread": "spread (1, 5, 9)", "late": "late (8, 9, 10)"}


def shown(pair: tuple[float, float], digits: int = 2) -> str:
    """Figure and standard error."""
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"
