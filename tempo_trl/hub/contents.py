"""The files of a run to publish: files of its folder, and files generated from them."""

import json
import warnings
from datetime import UTC, datetime
from pathlib import Path

from tempo_trl.hub.card import model_card
from tempo_trl.runs.curves import curves_png
from tempo_trl.runs.files import WEIGHTS
from tempo_trl.runs.log import training_log, unfinished_checkpoint
from tempo_trl.runs.record import FOLDER, read_record
from tempo_trl.runs.results import Result, eval_results_files, is_before, of_other_weights, read_results
from tempo_trl.runs.run import read_files
from tempo_trl.runs.trees import recorded_steps

# Model, tokenizer and Trainer's results are at the top of the folder. Checkpoints, tables of completions and logs are
# not published, and neither is training_args.bin, a pickle, which is unsafe to load and may contain secrets.
PATTERNS = (
    *WEIGHTS,
    "*.json",
    "*.jinja",
    "*.model",
    "*.txt",
    "*.py",
    "evaluation/*.json",
    f"{FOLDER}/*.json",
    f"{FOLDER}/*.yaml",
)
TREES = [f"{folder}tree.{suffix}" for folder in (f"{FOLDER}/", "report/", "") for suffix in ("svg", "png")]
CURVES = f"{FOLDER}/curves.png"
ADAPTER = "adapter_config.json"


def contents(run_dir: Path, repo: str) -> dict[str, Path | bytes]:
    """
    Everything to publish, by path in the repository: paths of files, and bytes of generated content.

    Raises:
        ValueError: `run_dir` is not a folder, has no model, an earlier one or no record of the run, or has unreadable
            results.
    """
    if not run_dir.is_dir():
        raise ValueError(f"{run_dir} is not a folder. Give the output folder of a run.")
    found = (path for pattern in PATTERNS for path in run_dir.glob(pattern))
    files = {
        path.relative_to(run_dir).as_posix(): path for path in sorted(found) if not path.name.startswith((".", "_"))
    }
    weights = [path for pattern in WEIGHTS for path in run_dir.glob(pattern)]
    if not weights:
        raise ValueError(
            f"{run_dir} has no model, expected one of {', '.join(WEIGHTS)} in it. Finish the training first "
            "(`--resume_from_checkpoint last` resumes an interrupted run)."
        )
    if further := unfinished_checkpoint(run_dir):
        raise ValueError(
            f"{run_dir} has the model of an earlier end, but trains on: it has {further.name}. Finish the training "
            "(`--resume_from_checkpoint last`), or remove the later checkpoints."
        )
    _refuse_an_older_model(run_dir, weights)
    read_files(run_dir)  # names all that are broken
    current = current_results(run_dir, repo)
    stale = {result.file for result in read_results(run_dir)} - {result.file for result in current}
    files = {path: file for path, file in files.items() if path not in stale}
    return files | _adapter_config(run_dir) | generated(run_dir, repo, current)


def _refuse_an_older_model(run_dir: Path, weights: list[Path]) -> None:
    """Raise ValueError if a run began in a folder with a model, and ended before it saved its own."""
    started = read_record(run_dir)["started"]
    newest = max(path.stat().st_mtime for path in weights)
    saved = datetime.fromtimestamp(newest, UTC).isoformat()
    if is_before(saved, started):
        raise ValueError(
            f"{run_dir} has the model of an earlier run, saved at {saved[:19]}: the run of its record began at "
            f"{started} and saved none. Finish the training, or train into a new folder and publish that."
        )


def _adapter_config(run_dir: Path) -> dict[str, bytes]:
    """The adapter's configuration with its base model's name on the Hub, where it names a folder instead."""
    hub_id, path = read_record(run_dir)["model"]["hub_id"], run_dir / ADAPTER
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if hub_id is None or config.get("base_model_name_or_path", hub_id) == hub_id:
        return {}
    return {ADAPTER: json.dumps(config | {"base_model_name_or_path": hub_id}, indent=2).encode()}


def current_results(run_dir: Path, repo: str) -> list[Result]:
    """The evaluation results of a run, without those of other weights than its own."""
    results = read_results(run_dir)
    others = of_other_weights(results, run_dir, read_record(run_dir)["started"], repo)
    if others:
        why = "; ".join(f"{file} is {why}" for file, why in others.items())
        warnings.warn(f"results in {run_dir} are left out: {why}. Evaluate again, with --overwrite.", stacklevel=2)
    return [result for result in results if result.file not in others]


def generated(run_dir: Path, repo: str, results: list[Result]) -> dict[str, Path | bytes]:
    """Card, curves, picture of a tree if there is one, and the current results in the Hub's format."""
    record = read_record(run_dir)
    pictures: dict[str, Path | bytes] = {}
    drawn = curves_png(training_log(run_dir))
    if drawn:
        pictures[CURVES] = drawn
    tree = next((path for path in TREES if (run_dir / path).is_file()), None)
    if tree and recorded_steps(run_dir, "train"):  # else a report of several runs drew another one's
        pictures[tree] = run_dir / tree
    card = model_card(run_dir, repo, record, results, list(pictures))
    return {"README.md": card.encode(), **pictures, **eval_results_files(results, repo)}
