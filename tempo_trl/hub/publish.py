"""Publish a run: the verb `tempo-trl publish`, and what a run that pushes does at its end.

One commit holds model, card and record: they are never of different runs. What has arrived is not sent again, neither
by an attempt that follows a dropped connection nor by the same command given once more.
"""

import sys
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, RepoFile
from huggingface_hub.errors import HTTPError
from huggingface_hub.utils.sha import git_hash

from tempo_trl.hub.access import check_name, prepare_repo
from tempo_trl.hub.contents import contents
from tempo_trl.hub.retry import is_temporary, retry
from tempo_trl.runs.files import WEIGHTS
from tempo_trl.runs.redaction import known_secrets, secrets_in


def publish(run_dir: str | Path, repo: str, private: bool | None = None, revision: str | None = None) -> str:
    """
    Send a run to the Hub, and make sure that it is there.

    Args:
        run_dir (`str` or `Path`):
            Output folder of the run.
        repo (`str`):
            `user/name`; made if it does not exist.
        private (`bool`, *optional*):
            As [`~tempo_trl.hub.access.prepare_repo`].
        revision (`str`, *optional*):
            Branch to commit to, which has to exist; the main one if unset.

    Returns:
        `str`: address of the commit.

    Raises:
        ValueError: before anything is sent: as [`~tempo_trl.hub.contents.contents`] and
            [`~tempo_trl.hub.access.prepare_repo`] do, or a file holds a token.
        RuntimeError: files are not on the Hub although it took the commit.
    """
    files = checked_contents(Path(run_dir), repo)
    api = HfApi()
    prepare_repo(api, repo, private)
    message = f"tempo_trl: {Path(run_dir).absolute().name}"

    def commit() -> tuple[str, list[str]]:
        additions = [CommitOperationAdd(path, content) for path, content in files.items()]  # of use only once
        made = api.create_commit(repo, additions, commit_message=message, revision=revision)
        return made.commit_url, not_on_the_hub(api, repo, additions, revision)

    address, lost = retry(commit)
    if lost:
        raise RuntimeError(f"{repo} took the commit without {', '.join(lost)}: does its .gitignore name them?")
    return address


def checked_contents(run_dir: Path, repo: str) -> dict[str, Path | bytes]:
    """What [`~tempo_trl.hub.contents.contents`] finds, free of tokens."""
    check_name(repo)
    files = contents(run_dir, repo)
    secrets = known_secrets()
    for path, content in files.items():
        if not any(Path(path).match(pattern) for pattern in WEIGHTS) and secrets_in(_bytes(content), secrets):
            raise ValueError(
                f"{path} holds a token or another secret of this machine: remove it there, and revoke it."
            )
    return files


def _bytes(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def not_on_the_hub(api: HfApi, repo: str, additions: list[CommitOperationAdd], revision: str | None) -> list[str]:
    """Paths of the files that the Hub does not have, or has with other bytes: a commit passes over ignored files."""
    paths = [addition.path_in_repo for addition in additions]
    there = {entry.path: entry for entry in api.get_paths_info(repo, paths, revision=revision)}
    return [addition.path_in_repo for addition in additions if not _same(addition, there.get(addition.path_in_repo))]


def _same(addition: CommitOperationAdd, entry: RepoFile | None) -> bool:
    if entry is None or entry.lfs:
        return entry is not None and entry.lfs.sha256 == addition.upload_info.sha256.hex()
    with addition.as_file() as file:
        return entry.blob_id == git_hash(file.read())


def main(run_dir: str, repo: str, private: bool, dry_run: bool) -> int:
    """The verb: 0, 1 if the Hub could not be reached to the end, 2 if nothing was sent because something is wrong."""
    try:
        files = checked_contents(Path(run_dir), repo)
        sizes = {path: _size(content) for path, content in files.items()}
        print(f"{len(files)} files for {repo}, {sum(sizes.values()):,} bytes:")
        print("".join(f"{size:>16,}  {path}\n" for path, size in sizes.items()), end="")
        if dry_run:
            print(f"Nothing was sent. The card, README.md:\n\n{_bytes(files['README.md']).decode()}")
            return 0
        print(f"Published: {publish(run_dir, repo, private or None)}")
    except ValueError as error:
        print(f"tempo-trl publish: error: {error}", file=sys.stderr)
        return 2
    except (HTTPError, OSError, RuntimeError) as error:
        again = " The same command sends what is missing." if is_temporary(error) else ""
        print(f"tempo-trl publish: error: not published, {type(error).__name__}: {error}.{again}", file=sys.stderr)
        return 1
    return 0
