"""Which decoding stands for a metric that a run has of several, and in what the decodings of a pair differ."""

from collections.abc import Callable, Sequence

from tempo_trl.runs.compared_runs import ComparedRun
from tempo_trl.runs.results import DECODING, Result

SIZES = ("k", "n")


def preference(
    peers: Sequence[ComparedRun], baseline: str, task: str, metric: str
) -> Callable[[Result], tuple[int, ...]]:
    """
    Key by which the greatest of a run's results for `metric` is the one to compare.

    pass@4 of 4 answers to each question is another measurement than pass@4 of 16. A decoding comes first if the
    baseline has it, since each method is compared with that, then the more runs have it, then the larger it is: by its
    answers to each question, then by its questions. Of two runs it is the largest that both have.

    Args:
        peers: Runs among which `metric` is compared.
        baseline: Method that the others are compared with.
    """
    measured = [(run.method == baseline, run.measured(task, metric)) for run in peers]

    def having(result: Result, *sizes: str) -> tuple[int, int]:
        """How many runs of the baseline, and how many at all, have a result of these sizes."""
        of_baseline = [
            is_baseline
            for is_baseline, others in measured
            if any(all(getattr(other, size) == getattr(result, size) for size in sizes) for other in others)
        ]
        return sum(of_baseline), len(of_baseline)

    return lambda result: (*having(result, "k"), result.k, *having(result, *SIZES), result.n)


def differing(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """In what two measurements differ, as `temperature 1.0 and 0.7`; what one of them does not tell is left out."""
    found = []
    for name in (*SIZES, *DECODING):
        values = [sorted({getattr(result, name) for result in own} - {None}) for own in (a, b)]
        if all(values) and values[0] != values[1]:
            ours, theirs = (", ".join(map(str, each)) for each in values)
            found.append(f"{name} {ours} and {theirs}")
    return found
