"""Publish a run: the verb `tempo-trl publish`, also used at the end of a run with `push_to_hub`.

Model, card and record are uploaded in one commit, so they always belong to the same run. Files that are on the Hub
already are not uploaded again, neither by a retry nor by a repeated command.
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
    Upload a run to the Hub, and verify that all files have arrived.

    Args:
        run_dir (`str` or `Path`):
            Output folder of the run.
        repo (`str`):
            `user/name`; created if it does not exist.
        private (`bool`, *optional*):
            As [`~tempo_trl.hub.access.prepare_repo`].
        revision (`str`, *optional*):
            Branch to commit to, which must exist. Defaults to the main branch.

    Returns:
        `str`: URL of the commit.

    Raises:
        ValueError: before anything is uploaded: from [`~tempo_trl.hub.contents.contents`] or
            [`~tempo_trl.hub.access.prepare_repo`], or if a file contains a token.
        RuntimeError: the Hub accepted the commit, but files are missing.
    """
    files = checked_contents(Path(run_dir), repo)
    api = HfApi()
    prepare_repo(api, repo, private)
    message = f"tempo_trl: {Path(run_dir).absolute().name}"

    def commit() -> tuple[str, list[str]]:
        additions = [CommitOperationAdd(path, content) for path, content in files.items()]  # new ones for each attempt
        made = api.create_commit(repo, additions, commit_message=message, revision=revision)
        return made.commit_url, not_on_the_hub(api, repo, additions, revision)

    address, lost = retry(commit)
    if lost:
        raise RuntimeError(f"the commit to {repo} lacks {', '.join(lost)}. Does its .gitignore list them?")
    return address


def checked_contents(run_dir: Path, repo: str) -> dict[str, Path | bytes]:
    """The result of [`~tempo_trl.hub.contents.contents`], after a check that it contains no tokens."""
    check_name(repo)
    files = contents(run_dir, repo)
    secrets = known_secrets()
    for path, content in files.items():
        if not any(Path(path).match(pattern) for pattern in WEIGHTS) and secrets_in(_bytes(content), secrets):
            raise ValueError(
                f"{path} contains a token or another secret of this machine. Remove it there, and revoke it."
            )
    return files


def _bytes(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def not_on_the_hub(api: HfApi, repo: str, additions: list[CommitOperationAdd], revision: str | None) -> list[str]:
    """Paths of files that are missing on the Hub, or differ: a commit silently skips ignored files."""
    paths = [addition.path_in_repo for addition in additions]
    there = {entry.path: entry for entry in api.get_paths_info(repo, paths, revision=revision)}
    return [addition.path_in_repo for addition in additions if not _same(addition, there.get(addition.path_in_repo))]


def _same(addition: CommitOperationAdd, entry: RepoFile | None) -> bool:
    if entry is None or entry.lfs:
        return entry is not None and entry.lfs.sha256 == addition.upload_info.sha256.hex()
    with addition.as_file() as file:
        return entry.blob_id == git_hash(file.read())


def main(run_dir: str, repo: str, private: bool, dry_run: bool) -> int:
    """The verb. Returns 0, or 1 if the upload failed, or 2 if nothing was uploaded because of an error in the run."""
    try:
        files = checked_contents(Path(run_dir), repo)
        sizes = {path: _size(content) for path, content in files.items()}
        print(f"{len(files)} files for {repo}, {sum(sizes.values()):,} bytes:")
        print("".join(f"{size:>16,}  {path}\n" for path, size in sizes.items()), end="")
        if dry_run:
            print(f"Nothing was uploaded. The card, README.md:\n\n{_bytes(files['README.md']).decode()}")
            return 0
        print(f"Published: {publish(run_dir, repo, private or None)}")
    except ValueError as error:
        print(f"tempo-trl publish: error: {error}", file=sys.stderr)
        return 2
    except (HTTPError, OSError, RuntimeError) as error:
        again = " Run the same command again to upload the missing files." if is_temporary(error) else ""
        print(f"tempo-trl publish: error: not published, {type(error).__name__}: {error}.{again}", file=sys.stderr)
        return 1
    return 0
