"""Check the permission to publish to a repository before anything is uploaded, with clear error messages."""

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from tempo_trl.hub.retry import retry

LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token with write permission"
REFUSED = (401, 402, 403, 404)  # the Hub's status codes without write permission


def prepare_repo(api: HfApi, repo: str, private: bool | None = None) -> None:
    """
    Find or create the repository of a model, and check the permission to write to it.

    Args:
        api ([`~huggingface_hub.HfApi`]):
            The client.
        repo (`str`):
            `user/name` or `organisation/name`.
        private (`bool`, *optional*):
            Whether it must be private. An existing public repository is then an error. None and False do not change
            an existing repository.

    Raises:
        ValueError: the name is invalid, belongs to another user, or is that of a dataset or a space; the token is
            missing, invalid or read-only; the repository is public but `private` is set; or writing is not permitted.
    """
    check_name(repo)
    retry(lambda: _prepare(api, repo, private))


def _prepare(api: HfApi, repo: str, private: bool | None) -> None:
    user, info = _user(api), _info(api, repo, "model")
    if info is not None and private and not info.private:
        raise ValueError(f"{repo} is public, but --private was given. Make it private in its settings on the Hub.")
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
            f"{user['name']} has no permission to write to {repo} (HTTP status {status}). Ask its owner for it, or "
            f"{LOGIN}."
        ) from error


def check_name(repo: str) -> None:
    """Raise ValueError unless `repo` has the form `user/name`."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"{repo!r} is not a valid repository name: {error}. Use user/name.") from error
    if repo.count("/") != 1:
        raise ValueError(f"{repo!r} is not a valid repository name. Use user/name.")


def _user(api: HfApi) -> dict:
    """The owner of the token, and its permissions."""
    if get_token() is None:
        raise ValueError(f"got no token for {api.endpoint}: {LOGIN}.")
    try:
        user = api.whoami()
    except OfflineModeIsEnabled as error:
        raise ValueError("HF_HUB_OFFLINE is set. Unset it to publish.") from error
    except HfHubHTTPError as error:
        if error.response.status_code not in (401, 403):
            raise
        raise ValueError(f"{api.endpoint} rejects the token: {LOGIN}.") from error
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ValueError(f"the token of {user['name']} is read-only: {LOGIN}.")
    return user


def _info(api: HfApi, repo: str, repo_type: str):
    try:
        return api.repo_info(repo, repo_type=repo_type)
    except RepositoryNotFoundError:
        return None


def _check_new(api: HfApi, repo: str, user: dict) -> None:
    """Raise ValueError if the user may not create a repository of this name."""
    owner, own = repo.split("/")[0], [user["name"], *(org["name"] for org in user.get("orgs", []))]
    if owner.lower() not in [name.lower() for name in own]:
        raise ValueError(
            f"{repo} does not exist, and {user['name']} can only create repositories of {', '.join(own)}, not of "
            f"{owner}. Publish to {user['name']}/{repo.split('/')[1]}, or join {owner}."
        )
    for other in ("dataset", "space"):
        if _info(api, repo, other):
            raise ValueError(f"{repo} is the name of a {other}. Choose another name for the model.")
