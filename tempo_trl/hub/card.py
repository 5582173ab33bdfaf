"""The model card of a run: model and data, results, settings, and how to reproduce it."""

import shlex
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from tempo_trl.runs.curves import curves_png
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import training_log
from tempo_trl.runs.record import FOLDER, RECIPE, RECORD, read_record
from tempo_trl.runs.results import Result, model_index_results
from tempo_trl.runs.trees import recorded_steps

TEMPLATE = Path(__file__).parent / "model_card.md"
CURVES, TREE = f"{FOLDER}/curves.png", "report/tree.png"  # pictures
# Flags about the location of a run, which are left out of the card's commands, with their values.
PLACES = ("output_dir", "resume_from_checkpoint", "push_to_hub", "hub_model_id", "hub_token")
SHOWN = ("learning_rate", "num_generations", "max_completion_length", "td_coef", "epsilon", "epsilon_high", "beta")


def write_card(run_dir: Path, repo: str, results: list[Result]) -> None:
    """Write README.md, and the curves that it shows, to a run's folder: always the same bytes for a run."""
    record, log = read_record(run_dir), training_log(run_dir)
    curves = curves_png(log)
    if curves:
        write_atomically(run_dir / CURVES, curves)
    write_atomically(run_dir / "README.md", model_card(run_dir, repo, record, log, results, bool(curves)))


def model_card(
    run_dir: Path, repo: str, record: dict, log: list[dict], results: list[Result], has_curves: bool
) -> str:
    """
    The card with its metadata.

    Args:
        run_dir (`Path`):
            Folder of the run.
        repo (`str`):
            Repository of the model, `user/name`.
        record, log:
            The record of the run ([`~tempo_trl.runs.record.record_run`]), and Trainer's log.
        results (`list[Result]`):
            Evaluation results of its weights.
        has_curves (`bool`):
            Whether there is a picture of curves.
    """
    recipe = (run_dir / FOLDER / RECIPE).is_file()
    # Without trees of its own the picture is another run's: a report of several runs drew it.
    has_tree = (run_dir / TREE).is_file() and bool(recorded_steps(run_dir))
    card = ModelCard.from_template(
        metadata(repo, record, results),
        template_path=str(TEMPLATE),
        name=repo.split("/")[-1],
        repo=repo,
        record=record,
        results=results,
        adapter=record["model"]["adapter"],
        base=_base(record["model"]),
        data=_data(record),
        training=training_table(record, log),
        commands=commands(record),
        recipe=recipe,
        launched=is_launched(record["command"]),
        logged=bool(log),
        has_curves=has_curves,
        tree=TREE if has_tree else None,
    )
    return str(card)


def metadata(repo: str, record: dict, results: list[Result]) -> ModelCardData:
    """The card's metadata, which the Hub uses for search."""
    base, adapter = record["model"]["hub_id"], record["model"]["adapter"]
    return ModelCardData(
        model_name=repo.split("/")[-1],
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        base_model=base,
        base_model_relation=("adapter" if adapter else "finetune") if base else None,
        datasets=[record["dataset"]["hub_id"]] if record["dataset"]["hub_id"] else None,
        tags=record["tags"],
        eval_results=model_index_results(results) or None,
    )


def _linked(hub_id: str | None, prefix: str) -> str | None:
    return f"[{hub_id}](https://huggingface.co/{prefix}{hub_id})" if hub_id else None


def _base(model: dict) -> str:
    source = f" (from {model['weights']})" if "weights" in model else ""
    return (_linked(model["hub_id"], "") or f"a local model (`{model['name']}`)") + source


def _data(record: dict) -> str:
    dataset, task = record["dataset"], record["config"].get("script", {}).get("task")
    local = f"local data for task `{task}`" if task else "data that are not on the Hub"
    if mixed := record["config"].get("mixture", {}).get("datasets"):
        local = f"a mixture of {len(mixed)} dataset{'s' * (len(mixed) > 1)} (`{FOLDER}/{RECORD}` has their names)"
    rows = f" ({dataset['rows']:,} prompts)" if dataset["rows"] else ""
    return (_linked(dataset["hub_id"], "datasets/") or local) + rows


def training_table(record: dict, log: list[dict]) -> list[tuple[str, str]]:
    """Rows of the card's table: settings, versions and devices."""
    settings, git, versions = record["config"]["training"], record["git"], record["versions"]
    commit = f", commit {git['commit'][:12]}{' with local changes' * git['dirty']}" if git else ""
    rewards = [entry["reward"] for entry in log if "reward" in entry]
    table = [("optimizer steps", str(log[-1]["step"]))] if log else []
    if rewards:
        table.append(("mean training reward, first and last logged", f"{rewards[0]:.3f}, {rewards[-1]:.3f}"))
    table += [(f"`{name}`", str(settings[name])) for name in SHOWN if settings.get(name) is not None]
    return [
        *table,
        ("seed", str(record["seed"])),
        ("started", record["started"]),
        ("processes, devices", f"{record['processes']} ({record['distributed']}), {', '.join(record['devices'])}"),
        ("tempo_trl", versions["tempo_trl"] + commit),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if name != "tempo_trl")),
    ]


def is_launched(command: list[str]) -> bool:
    """Whether a command was given to `tempo-trl train`, of which the record has the flags only."""
    return "".join(command[:1]).startswith("--")


def commands(record: dict) -> list[str]:
    """The commands that install this version and repeat the run."""
    git, command = record["git"], record["command"]
    version = record["versions"]["tempo_trl"]
    install = f"git checkout {git['commit']} && pip install ." if git else f"pip install tempo_trl=={version}"
    if is_launched(command):
        processes = ["--num_processes", str(record["processes"])]  # otherwise one for each GPU of the reader's machine
        command = ["tempo-trl", "train", *without_flags(command, PLACES), *processes]
    return [install, shlex.join(command)]


def without_flags(argv: list[str], names: tuple[str, ...]) -> list[str]:
    """`argv` without the flags `names` and their values."""
    kept, dropping = [], False
    for argument in argv:
        if argument.startswith("--"):
            dropping = argument[2:].partition("=")[0].replace("-", "_") in names
        if not dropping:
            kept.append(argument)
    return kept
