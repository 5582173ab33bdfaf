"""The model card of a run: model and data, results, settings, and how to reproduce it."""

import shlex
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from tempo_trl.runs.log import training_log
from tempo_trl.runs.record import FOLDER, RECIPE, RECORD
from tempo_trl.runs.results import Result, model_index_results

TEMPLATE = Path(__file__).parent / "model_card.md"
# Flags about the location of a run, which are left out of the card's commands, with their values.
PLACES = ("config", "output_dir", "resume_from_checkpoint", "push_to_hub", "hub_model_id", "hub_token")
SHOWN = (
    ("learning rate", ("learning_rate",)),
    ("completions per prompt", ("num_generations",)),
    ("maximum completion length, tokens", ("max_completion_length",)),
    ("TD coefficient", ("td_coef",)),
    ("clip, upper clip", ("epsilon", "epsilon_high")),
    ("KL coefficient", ("beta",)),
)


def model_card(run_dir: Path, repo: str, record: dict, results: list[Result], pictures: list[str]) -> str:
    """
    The card with its metadata.

    Args:
        run_dir (`Path`):
            Folder of the run.
        repo (`str`):
            Repository of the model, `user/name`.
        record (`dict`):
            The record of the run ([`~tempo_trl.runs.record.record_run`]).
        results (`list[Result]`):
            Evaluation results.
        pictures (`list[str]`):
            Paths in the repository of the curves (`tempo/curves.png`) and of the prefix tree, if they exist.

    Returns:
        `str`: always the same for a run, so that publishing it again changes nothing.
    """
    log = training_log(run_dir)
    recipe = (run_dir / FOLDER / RECIPE).is_file()
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
        commands=commands(repo, record, recipe),
        recipe=recipe,
        launched=recipe or is_launched(record["command"]),
        logged=bool(log),
        has_curves=f"{FOLDER}/curves.png" in pictures,
        tree=next((path for path in pictures if Path(path).stem == "tree"), None),
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
    table += [(what, text) for what, names in SHOWN if (text := _shown(settings, names))]
    return [
        *table,
        ("seed", str(record["seed"])),
        ("started", record["started"]),
        ("processes, devices", f"{record['processes']} ({record['distributed']}), {', '.join(record['devices'])}"),
        ("tempo_trl", versions["tempo_trl"] + commit),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if name != "tempo_trl")),
    ]


def _shown(settings: dict, names: tuple[str, ...]) -> str:
    return ", ".join(str(settings[name]) for name in names if settings.get(name) is not None)


def is_launched(command: list[str]) -> bool:
    """Whether a command was given to `tempo-trl train`, of which the record has the flags only."""
    return "".join(command[:1]).startswith("--")


def commands(repo: str, record: dict, recipe: bool) -> list[str]:
    """Three commands that repeat the run. The last is the original command if a script of its own started the run."""
    git, tempo_trl = record["git"], record["versions"]["tempo_trl"]
    install = f"git checkout {git['commit']} && pip install ." if git else f"pip install tempo_trl=={tempo_trl}"
    fetch = f'hf download {repo} --include "tempo/*" --local-dir published'
    if not (recipe or is_launched(record["command"])):
        return [install, fetch, shlex.join(record["command"])]
    flags = without_flags(record["command"], PLACES)
    if record["config"]["training"].get("push_to_hub") and "--push_to_hub" not in record["command"]:
        flags += ["--push_to_hub", "false"]  # the recipe would push to a repository that is not the reader's
    flags += ["--num_processes", str(record["processes"])]  # otherwise one for each GPU of the reader's machine
    config = ["--config", "published/tempo/recipe.yaml"] if recipe else []
    return [install, fetch, shlex.join(["tempo-trl", "train", *config, *flags])]


def without_flags(argv: list[str], names: tuple[str, ...]) -> list[str]:
    """`argv` without the flags `names` and their values."""
    kept, dropping = [], False
    for argument in argv:
        if argument.startswith("--"):
            dropping = argument[2:].partition("=")[0].replace("-", "_") in names
        if not dropping:
            kept.append(argument)
    return kept
