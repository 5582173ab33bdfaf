"""The model card of a run: its metadata and its commands. What it says is in the template, `model_card.md`."""

import shlex
from argparse import ArgumentParser
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from tempo_trl.runs.curves import curves_png
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.log import training_log
from tempo_trl.runs.record import FOLDER, RECIPE, read_record
from tempo_trl.runs.results import Result, model_index_results
from tempo_trl.runs.trees import recorded_steps

TEMPLATE = Path(__file__).parent / "model_card.md"
CURVES, TREE = f"{FOLDER}/curves.png", "report/tree.png"  # pictures
# Flags about the location of a run, which are left out of the card's commands, with their values.
PLACES = ("output_dir", "resume_from_checkpoint", "push_to_hub", "hub_model_id", "hub_token")


def write_card(run_dir: Path, repo: str, results: list[Result]) -> None:
    """
    Write README.md, and the curves that it shows, to a run's folder: always the same bytes for a run.

    Args:
        run_dir (`Path`):
            Folder of the run.
        repo (`str`):
            Repository of the model, `user/name`.
        results (`list[Result]`):
            Evaluation results of its weights.
    """
    record, log = read_record(run_dir), training_log(run_dir)
    if curves := curves_png(log):
        write_atomically(run_dir / CURVES, curves)
    card = ModelCard.from_template(
        metadata(repo, record, results),
        template_path=str(TEMPLATE),
        name=repo.split("/")[-1],
        repo=repo,
        record=record,
        log=log,
        results=results,
        commands=commands(record),
        launched=is_launched(record["command"]),
        has_recipe=(run_dir / FOLDER / RECIPE).is_file(),
        has_curves=bool(curves),
        # Without trees of its own the picture is another run's: a report of several runs drew it.
        tree=TREE if (run_dir / TREE).is_file() and recorded_steps(run_dir) else None,
    )
    write_atomically(run_dir / "README.md", str(card))


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
    """`argv` without the flags `names`, written with underscores or dashes, and their values."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", nargs="?")
    return parser.parse_known_args(argv)[1]
