"""Whether this user may publish to a repository: asked before anything is sent, and answered in words."""

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from tempo_trl.hub.retry import retry

LOGIN = "log in by `hf auth login`, or set HF_TOKEN to a token with the right to write"
REFUSED = (401, 402, 403, 404)  # what the Hub answers to who may not write


def prepare_repo(api: HfApi, repo: str, private: bool | None = None) -> None:
    """
    Find the repository of a model, or make it, with the right to write to it.

    Args:
        api ([`~huggingface_hub.HfApi`]):
            The client.
        repo (`str`):
            `user/name` or `organisation/name`.
        private (`bool`, *optional*):
            Make it private. One that is there and public is refused then; None and False leave it as it is.

    Raises:
        ValueError: no valid name, no token or one that is refused or may only read, somebody else's name, a name that
            a dataset or a space has, a public repository where a private one is asked for, or no right to write.
    """
    check_name(repo)
    retry(lambda: _prepare(api, repo, private))


def _prepare(api: HfApi, repo: str, private: bool | None) -> None:
    user, info = _user(api), _info(api, repo, "model")
    if info is not None and private and not info.private:
        raise ValueError(f"{repo} is public, and --private was asked for: make it private in its settings on the Hub.")
    if info is None:
        _check_new(api, repo, user)
    try:
        if info is None:
            api.create_repo(repo, private=private, exist_ok=True)
        api.auth_check(repo, write=True)
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status not in REFUSED:
            raise
        raise ValueError(
            f"{user['name']} may not write to {repo} (the Hub says {status}): ask its owner for the right, or {LOGIN}."
        ) from error


def check_name(repo: str) -> None:
    """Refuse what is no `user/name`."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"{repo!r} is no name of a repository: {error}") from error
    if repo.count("/") != 1:
        raise ValueError(f"{repo!r} is no name of a repository: expected user/name.")


def _user(api: HfApi) -> dict:
    """Who the token belongs to, and what it may."""
    if get_token() is None:
        raise ValueError(f"no token for {api.endpoint}: {LOGIN}.")
    try:
        user = api.whoami()
    except OfflineModeIsEnabled as error:
        raise ValueError("HF_HUB_OFFLINE is set: unset it to publish.") from error
    except HfHubHTTPError as error:
        if error.response.status_code not in (401, 403):
            raise
        raise ValueError(f"{api.endpoint} refuses the token: {LOGIN}.") from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ValueError(f"the token of {user['name']} may only read: {LOGIN}.")
    return user


def _info(api: HfApi, repo: str, repo_type: str):
    try:
        return api.repo_info(repo, repo_type=repo_type)
    except RepositoryNotFoundError:
        return None


def _check_new(api: HfApi, repo: str, user: dict) -> None:
    """Refuse a name that is not ours to give."""
    owner, own = repo.split("/")[0], [user["name"], *(org["name"] for org in user.get("orgs", []))]
    if owner.lower() not in [name.lower() for name in own]:
        raise ValueError(
            f"{repo} does not exist, and {user['name']} cannot make it: {owner} is none of {', '.join(own)}. "
            f"Publish to {user['name']}/{repo.split('/')[1]}, or join {owner}."
        )
    for other in ("dataset", "space"):
        if _info(api, repo, other):
            raise ValueError(f"{repo} is the name of a {other}: give the model another.")
