"""Publish a run: the verb `tempo-trl publish`. Files that are on the Hub already are not uploaded again."""

import sys
import warnings
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError

from tempo_trl.hub.card import CURVES, TREE, write_card
from tempo_trl.runs.files import WEIGHTS, weights_in
from tempo_trl.runs.log import unfinished_checkpoint
from tempo_trl.runs.record import FOLDER, read_record
from tempo_trl.runs.redaction import known_secrets, secrets_in
from tempo_trl.runs.results import is_before, of_other_weights, read_results

# Model, tokenizer and Trainer's results are at the top of the folder. Checkpoints, tables of completions and logs are
# not published, and neither is training_args.bin, a pickle, which is unsafe to load and may contain secrets.
PATTERNS = (
    *WEIGHTS,
    *("README.md", "*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.model", "*.txt", "*.py"),
    *("evaluation/*.json", f"{FOLDER}/*.json", f"{FOLDER}/*.yaml", CURVES, TREE),
)


def publish(run_dir: str | Path, repo: str, private: bool | None = None, revision: str | None = None) -> str:
    """
    Upload a run to the Hub.

    Args:
        run_dir (`str` or `Path`):
            Output folder of the run. The model card is written to it.
        repo (`str`):
            `user/name`; created if it does not exist.
        private (`bool`, *optional*):
            Whether it must be private. An existing public repository is then an error.
        revision (`str`, *optional*):
            Branch to commit to, which must exist. Defaults to the main branch.

    Returns:
        `str`: URL of the commit.

    Raises:
        ValueError: before anything is uploaded: from [`files_to_publish`] or [`prepare_repo`].
    """
    folder = Path(run_dir)
    return _upload(folder, repo, files_to_publish(folder, repo), private, revision)


def _upload(folder: Path, repo: str, files: list[str], private: bool | None, revision: str | None = None) -> str:
    prepare_repo(repo, private)
    message, patterns = f"tempo_trl: {folder.absolute().name}", [escape(path) for path in files]
    chosen = {"allow_patterns": patterns, "commit_message": message, "revision": revision}
    return HfApi().upload_folder(repo_id=repo, folder_path=folder, **chosen).commit_url


def prepare_repo(repo: str, private: bool | None = None) -> None:
    """
    Create the repository unless it exists, and check the permission to write to it.

    Raises:
        HfHubHTTPError: writing is not permitted.
        ValueError: the repository is public but `private` is set.
    """
    api = HfApi()
    api.create_repo(repo, private=private, exist_ok=True)
    api.auth_check(repo, write=True)
    if private and not api.repo_info(repo).private:
        raise ValueError(f"{repo} is public, but --private was given. Make it private in its settings on the Hub.")


def files_to_publish(run_dir: Path, repo: str) -> list[str]:
    """
    Paths of the files to publish, after the card was written.

    Raises:
        ValueError: `run_dir` is not a folder, has no model, an earlier one or no record of the run, has unreadable
            files, or a file contains a secret; or `repo` is not `user/name`.
    """
    if repo.count("/") != 1:
        raise ValueError(f"{repo!r} is not a repository name. Use user/name.")
    _refuse_another_model(run_dir)
    results = read_results(run_dir)
    others = of_other_weights(results, run_dir, read_record(run_dir)["started"], repo)
    if others:
        why = "; ".join(f"{file} is {why}" for file, why in others.items())
        warnings.warn(f"results in {run_dir} are left out: {why}. Evaluate again.", stacklevel=2)
    write_card(run_dir, repo, [result for result in results if result.file not in others])
    found = {path.relative_to(run_dir).as_posix(): path for pattern in PATTERNS for path in run_dir.glob(pattern)}
    files = sorted(path for path in found if path not in others and not found[path].name.startswith((".", "_")))
    secrets = known_secrets()
    for path in files:
        if not any(Path(path).match(pattern) for pattern in WEIGHTS) and secrets_in(found[path].read_bytes(), secrets):
            raise ValueError(f"{path} contains a token or another secret of this machine. Remove and revoke it.")
    return files


def _refuse_another_model(run_dir: Path) -> None:
    """Raise ValueError unless the folder has the model that its run has saved."""
    weights = weights_in(run_dir)
    if not weights:
        raise ValueError(f"{run_dir} has no model, expected one of {', '.join(WEIGHTS)}. Finish the training first.")
    if further := unfinished_checkpoint(run_dir):
        earlier = f"{run_dir} has the model of an earlier end, but trains on: it has {further.name}"
        raise ValueError(f"{earlier}. Finish the training, or remove the later checkpoints.")
    started = read_record(run_dir)["started"]
    oldest = min(weights, key=lambda path: path.stat().st_mtime)
    saved = datetime.fromtimestamp(oldest.stat().st_mtime, UTC).isoformat()
    if is_before(saved, started):
        earlier = f"{oldest} is of an earlier run, saved at {saved[:19]}"
        raise ValueError(f"{earlier}: that of the record began at {started}. Finish the training, or remove the file.")


def main(run_dir: str, repo: str, private: bool, dry_run: bool) -> int:
    """
    The verb. Returns 0, or 1 if the upload failed.

    Raises:
        ValueError: from [`files_to_publish`] or [`prepare_repo`]; nothing was uploaded.
    """
    folder = Path(run_dir)
    try:
        files = files_to_publish(folder, repo)
        for path in files:
            print(f"{(folder / path).stat().st_size:>16,}  {path}")
        if dry_run:
            print(f"Nothing was uploaded. The card, README.md:\n\n{(folder / 'README.md').read_text('utf-8')}")
            return 0
        print(f"Published: {_upload(folder, repo, files, private or None)}")
    except (HTTPError, OSError, RuntimeError) as error:
        again = "The same command uploads what is missing."
        print(f"tempo-trl publish: error: not published, {type(error).__name__}: {error}. {again}", file=sys.stderr)
        return 1
    return 0
