"""Evaluation results, `RUN_DIR/evaluation/*.json`, and the metadata of a model card in which the Hub reads them.

After `tempo-trl evaluate --output RUN_DIR` they are `RUN_DIR/{task}.json`.

A file contains one result or a list of them:

    {"task": "math", "hub_id": "DigitalLearningGmbH/MATH-lighteval", "split": "test", "metric": "accuracy",
     "value": 0.87, "interval": [0.861, 0.879], "n": 5000, "k": 1, "tempo_trl": "0.1.0", "date": "2026-01-31T12:00:00"}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import EvalResult

from tempo_trl.data import BENCHMARKS
from tempo_trl.runs.files import fingerprint, read_json, weights_in

FOLDER = "evaluation"
DECODING = ("temperature", "top_p", "top_k", "max_tokens")  # null or missing if unknown
NUMBERS = ("value", "n", "k", *DECODING)


@dataclass(frozen=True)
class Result:
    """One measured number: fractions of 1, a 95% interval, `n` problems with `k` answers each."""

    task: str
    metric: str
    value: float
    n: int
    interval: tuple[float, float] | None = None
    k: int = 1
    hub_id: str | None = None
    split: str | None = None
    date: str | None = None
    tempo_trl: str | None = None
    model: str | None = None  # a local one by its folder's name
    weights: str | None = None  # its fingerprint, after that of an adapter's base
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    chat_template_kwargs: dict | None = None  # without that of thinking
    file: str = ""  # relative to the run's folder

    @property
    def number(self) -> str:
        return percent(self.value, self.interval)


def percent(value: float, interval: Sequence[float] | None) -> str:
    """`87.0 % (86.1 to 87.9)`"""
    low, high = (100 * end for end in interval or (0, 0))
    return f"{100 * value:.1f} %" + (f" ({low:.1f} to {high:.1f})" if interval else "")


def evaluation_folder(run_dir: Path) -> Path:
    """The folder with the results of a run: `evaluation`, or `run_dir` itself if it has a benchmark's."""
    is_one = any((run_dir / f"{task}.json").is_file() for task in BENCHMARKS)
    return run_dir if is_one else run_dir / FOLDER


def read_results(run_dir: Path) -> list[Result]:
    """All results of a run, ordered by file name; empty if nothing was evaluated.

    Raises:
        ValueError: a file does not have the format described at the top of this module.
    """
    folder = evaluation_folder(run_dir)
    paths = sorted(folder.glob("*.json"))
    if folder == run_dir:  # which also has the files of the model and of Trainer
        paths = [path for path in paths if path.stem in BENCHMARKS]
    return [result for path in paths for result in _results(path, path.relative_to(run_dir).as_posix())]


def _results(path: Path, file: str) -> list[Result]:
    content = read_json(path, "Evaluate again, or remove it.")
    try:
        return [_result(entry, file) for entry in (content if isinstance(content, list) else [content])]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} has another format than a result: {error}. Evaluate again, or remove it.") from error


def _result(entry: dict, file: str) -> Result:
    if not isinstance(entry, dict):
        raise TypeError(f"got a {type(entry).__name__} as a result, expected a mapping")
    low, high = entry.get("interval") or (0.0, 0.0)
    for value in (low, high, *(entry[name] for name in NUMBERS if entry.get(name) is not None)):
        if type(value) not in (int, float) or value != value:
            raise ValueError(f"got {value!r}, expected a number")
    known = {name: entry[name] for name in Result.__dataclass_fields__ if name in entry}
    return Result(**known | {"interval": (low, high) if entry.get("interval") else None, "file": file})


def of_other_weights(
    results: list[Result], run_dir: Path, started: str = "", repo: str | None = None
) -> dict[str, str]:
    """
    The files with results that are not of the weights in a run's folder, and why.

    Args:
        started (`str`, *optional*):
            When the run started last. Older results are of weights that it has trained on or replaced, except those
            of the weights in the folder.
        repo (`str`, *optional*):
            The run's name on the Hub, by which it may have been evaluated, too.
    """
    own = fingerprint(run_dir) if weights_in(run_dir) and any(result.weights for result in results) else None
    found = {}
    for result in results:
        weights = (result.weights or "").split("+")[-1]
        if own and own == weights:  # a finished run that is started again trains nothing
            continue
        if is_before(result.date or "", started):
            found[result.file] = f"older than the run's last start, {started}, so of other weights"
        elif own and weights and own != weights and weights.partition("@")[0] != repo:
            found[result.file] = f"an evaluation of {result.model}, whose weights are not the run's"
    return found


def is_before(date: str, started: str) -> bool:
    """Whether an ISO date, maybe without a time or a time zone, is before another. Both are UTC."""
    length = min(len(date), len("2026-01-31T12:00:00"))
    return date[:length] < started[:length]


def model_index_results(results: list[Result]) -> list[EvalResult]:
    """The results for `model-index`, the card's metadata."""
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=result.hub_id,
            dataset_name=result.task,
            dataset_split=result.split,
            metric_type=result.metric,
            metric_name=f"{result.metric}, {result.n} problems, k={result.k}",
            metric_value=result.value,
            metric_args={"k": result.k, "n": result.n, "interval_95": list(result.interval or []) or None},
        )
        for result in results
        if result.hub_id
    ]
