"""Keep tokens, passwords and keys out of all files that are written or published."""

import json
import os
import re
from pathlib import Path
from typing import Any

HIDDEN = "<hidden>"
# How the name of a secret ends. In capitals, as environment variables are written, any key is one.
SECRET_NAME = re.compile(
    r"(?i:password|passwd|passphrase|(^|_)(token|secrets?|credentials?|(api|access|auth|private|secret)_?keys?))$"
    r"|_(TOKENS|KEYS?|PASS|PWD|PAT)$"
)
# A Hub token, or the password in an address.
LOOKS_SECRET = re.compile(r"hf_[A-Za-z0-9]{30,}|(?<=://)[^\s/:@\"']*:[^\s/@\"']+(?=@)")
SHORTEST = 8  # shorter values are unlikely to be secrets, and replacing them everywhere would damage ordinary text


def hide(text: str, secrets: set[str]) -> str:
    """`text` with all `secrets`, anything that looks like one, and the path of the home folder replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = _replaced(text, secret, HIDDEN)
    home = str(Path.home())
    return LOOKS_SECRET.sub(HIDDEN, _replaced(text, home, "~") if len(home) > 1 else text)


def _replaced(text: str, value: str, by: str) -> str:
    """`text` with `value` replaced, also where it is part of JSON, which escapes quotes and letters such as an é."""
    return text.replace(value, by).replace(_in_json(value), by)


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def known_secrets(*settings: dict) -> set[str]:
    """Secrets known to this process: from the environment, the Hub login, and `settings` at any depth."""
    from huggingface_hub import get_token

    values = {value for settings_ in (dict(os.environ), *settings) for value in _secret_values(settings_)}
    return {value for value in (*values, get_token() or "") if len(value) >= SHORTEST and value != HIDDEN}


def is_secret(name: object, value: object) -> bool:
    """Whether a setting is a secret: a text under such a name. `eos_token` and the like begin with a bracket."""
    return isinstance(value, str) and not value.startswith("<") and bool(SECRET_NAME.search(str(name)))


def _secret_values(settings: Any) -> list[str]:
    if isinstance(settings, list | tuple):
        return [found for value in settings for found in _secret_values(value)]
    pairs = settings.items() if isinstance(settings, dict) else ()
    return [found for pair in pairs for found in ([pair[1]] if is_secret(*pair) else _secret_values(pair[1]))]


def without_secrets(settings: Any) -> Any:
    """`settings` without those that are secrets, at any depth."""
    if isinstance(settings, list | tuple):
        return [without_secrets(value) for value in settings]
    if isinstance(settings, dict):
        return {name: without_secrets(value) for name, value in settings.items() if not is_secret(name, value)}
    return settings


def secrets_in(content: bytes, secrets: set[str]) -> bool:
    """Whether `content` contains one of `secrets` or anything that looks like one."""
    forms = {form for secret in secrets for form in (secret, _in_json(secret))}
    looks_like_one = LOOKS_SECRET.search(content.decode(errors="ignore"))
    return bool(looks_like_one) or any(form.encode() in content for form in forms)


def move_token_to_environment(training_args) -> None:
    """Move `hub_token` to the environment, where the Hub's client finds it and where it is not saved.

    Trainer pickles its arguments into `training_args.bin` and pushes that file with the rest.
    """
    if training_args.hub_token:
        os.environ["HF_TOKEN"] = training_args.hub_token
        training_args.hub_token = None
