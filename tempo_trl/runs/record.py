"""The record of a run (command, settings, versions) in `OUTPUT_DIR/tempo/run.json`, with its recipe beside it."""

import json
import platform
import re
import subprocess
import sys
from collections import ChainMap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tempo_trl.runs.files import read_json, write_atomically
from tempo_trl.runs.recipes import recipe_text
from tempo_trl.runs.redaction import HIDDEN, hide, is_secret, known_secrets, without_secrets
from tempo_trl.version import __version__, package_versions

FOLDER, RECORD, RECIPE = "tempo", "run.json", "recipe.yaml"
# Settings by which no update changes.
INCIDENTAL = re.compile(
    "output_dir|logging|log_|run_name|save|push|hub|report|resume|disable_tqdm|dataloader|eval_(?!file)|batch_eval_"
    "|per_device_eval_|do_|trackio|project|local_rank|vllm_server_|vllm_group_port"  # how their names begin
)


def record_run(
    trainer,
    command: Sequence[str] = (),
    recipe: Path | None = None,
    dataset: str | None = None,
    settings: dict | None = None,
    resumed: bool = False,
    base_model: dict[str, str] | None = None,
) -> None:
    """
    Write the record of a run before it trains: on the main process only, atomically and without secrets.

    `tempo-trl train` does this. In your own script call it after creating the trainer and before `train()`.

    Args:
        trainer ([`TEMPOTrainer`] or [`~trl.GRPOTrainer`]):
            The trainer, about to train.
        command (`Sequence[str]`, *optional*):
            The command that started the run. Defaults to that of the process.
        recipe (`Path`, *optional*):
            The run's recipe, which is copied, merged with the recipes that it extends.
        dataset (`str`, *optional*):
            The training data's name on the Hub; a local folder is ignored.
        settings (`dict`, *optional*):
            Settings beside those of the trainer's arguments.
        resumed (`bool`, *optional*, defaults to `False`):
            Whether the run resumes from a checkpoint. The records of its earlier parts are kept then.
        base_model (`dict[str, str]`, *optional*):
            For a model that was loaded from a local folder: its name on the Hub (`hub_id`), and where the folder's
            weights come from (`weights`).
    """
    if not trainer.is_world_process_zero():
        return
    settings = {"training": trainer.args.to_dict(), **(settings or {})}
    secrets = known_secrets({"hub_token": trainer.args.hub_token}, settings)
    folder = Path(trainer.args.output_dir) / FOLDER
    record = {
        "command": list(command) or ["python", *sys.argv],
        "resumed": resumed,
        **_facts(trainer, dataset, base_model),
        **surroundings(trainer.accelerator),
        "config": without_secrets(settings),
        "earlier": _earlier(folder.parent) if resumed else [],
    }
    text = hide(json.dumps(record, indent=2, default=str), secrets)
    if recipe is not None:
        write_atomically(folder / RECIPE, hide(without_secret_lines(recipe_text(Path(recipe))), secrets))
    write_atomically(folder / RECORD, text)


def without_secret_lines(recipe: str) -> str:
    """The text of a recipe with secrets (`hub_token: ...`) replaced by comments, so that it is still a recipe."""
    parts = ((line, *map(str.strip, line.partition(":"))) for line in recipe.splitlines(keepends=True))
    return "".join(f"# {HIDDEN}\n" if is_secret(name, value) else line for line, name, _, value in parts)


def _facts(trainer, dataset: str | None, base_model: dict[str, str] | None) -> dict:
    rows = trainer.train_dataset
    return {
        "method": trainer._name,
        "tags": trainer._tag_names,
        "paper": trainer._paper,
        "model": _model(trainer, base_model),
        "dataset": {
            "hub_id": None if Path(dataset or ".").exists() else dataset,
            "rows": len(rows) if hasattr(rows, "__len__") else None,
        },
        "rewards": trainer.reward_func_names,
        "seed": trainer.args.seed,
    }


def _model(trainer, base_model: dict[str, str] | None) -> dict:
    """The model's name on the Hub, if it has one, a name to display, whether it is an adapter, and `base_model`."""
    name = trainer.model.config.name_or_path
    local = not name or Path(name).is_dir()
    named = {"hub_id": None, "name": Path(name).name} if local else {"hub_id": name, "name": name}
    return named | {"adapter": hasattr(trainer.model, "peft_config")} | (base_model or {})


def surroundings(accelerator) -> dict:
    """The time, processes, devices, versions, and the commit of this package."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "processes": accelerator.num_processes,
        "distributed": str(accelerator.distributed_type.value),
        "devices": gpus or [platform.machine()],
        "versions": {"tempo_trl": __version__, "python": platform.python_version(), **package_versions()},
        "git": commit_of(Path(__file__).parents[1]),
    }


def commit_of(package: Path) -> dict | None:
    """Commit of a package, and whether its files have changed since; None outside its own repository."""
    try:
        # A virtual environment may be inside another repository, which does not track the package.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        return {
            "commit": _git(package, "rev-parse", "HEAD").strip(),
            "dirty": bool(_git(package, "status", "--porcelain", ".").strip()),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def _earlier(run_dir: Path) -> list[dict]:
    if not (run_dir / FOLDER / RECORD).is_file():
        return []
    last = read_record(run_dir)
    return [*last.pop("earlier", []), last]


def changed_settings(old: dict, new: dict, of_both: bool = False) -> list[str]:
    """
    The settings that differ between two records' configurations, `max_steps` and the like included. What only one of
    them has, because the versions or methods differ, is None in the other, or is left out (`of_both`). An empty one
    differs in nothing.
    """
    ours, theirs = map(all_settings, (old, new))
    names = sorted(ours.keys() & theirs.keys() if of_both else ours | theirs) if ours and theirs else []
    return [name for name in names if not INCIDENTAL.match(name) and ours.get(name) != theirs.get(name)]


def all_settings(config: dict) -> dict:
    """The settings of all parts of a record's configuration."""
    return dict(ChainMap(*(part for part in config.values() if isinstance(part, dict))))


def refuse_a_file_of_an_earlier_run(file: Path, run_dir: Path) -> None:
    """Raise ValueError for a file that is older than the run of the record, which may have begun before a resume."""
    if not (run_dir / FOLDER / RECORD).is_file():
        return
    record = read_record(run_dir)
    began = [*record.get("earlier", []), record][0]["started"]
    if file.stat().st_mtime < datetime.fromisoformat(began).timestamp():
        raise ValueError(f"{file} is older than the run of the record, which began at {began}. Remove its folder.")


def read_record(run_dir: Path) -> dict:
    """The record of a run.

    Raises:
        ValueError: there is none, or it is not JSON.
    """
    path = run_dir / FOLDER / RECORD
    try:
        return read_json(path, "Restore it, or train again.")
    except FileNotFoundError as error:
        written = "`tempo-trl train` writes it, or in your own script `tempo_trl.runs.record.record_run(trainer)`"
        raise ValueError(f"{path} does not exist, expected the record of a run: {written}.") from error
