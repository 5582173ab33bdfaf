"""Tokens, passwords and keys, kept out of all that is written or published."""

import os
import re
from pathlib import Path

HIDDEN = "<hidden>"
SECRET_NAME = re.compile(r"(^|_)(token|password|passwd|secret|(api|access|auth|private)_?key)$", re.IGNORECASE)
HUB_TOKEN = re.compile(r"hf_[A-Za-z0-9]{30,}")
SHORTEST = 8  # a shorter value is no secret worth the name, and hiding it everywhere would eat ordinary words


def hide(text: str, secrets: set[str]) -> str:
    """`text` with `secrets`, whatever looks like a token of the Hub, and the name of the home folder replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    home = str(Path.home())
    return HUB_TOKEN.sub(HIDDEN, text.replace(home, "~") if len(home) > 1 else text)


def known_secrets(*settings: dict) -> set[str]:
    """Secrets that this process knows: of its environment, of the Hub's login, and of `settings`, however deep."""
    from huggingface_hub import get_token

    values = {value for settings_ in (dict(os.environ), *settings) for value in _secret_values(settings_)}
    return {value for value in (*values, get_token() or "") if len(value) >= SHORTEST and value != HIDDEN}


def _secret_values(settings: dict) -> list[str]:
    own = [value for name, value in settings.items() if SECRET_NAME.search(str(name)) and isinstance(value, str)]
    nested = [_secret_values(value) for value in settings.values() if isinstance(value, dict)]
    # `eos_token`, `pad_token`: text of the model's own vocabulary, which no secret has brackets of.
    return [value for value in sum(nested, own) if not value.startswith("<")]


def without_secrets(settings: dict) -> dict:
    """`settings` less the keys that name a secret, however deep."""
    return {
        name: without_secrets(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if not SECRET_NAME.search(str(name))
    }


def secrets_in(content: bytes, secrets: set[str]) -> bool:
    """Whether `content` holds one of `secrets` or anything that looks like a token of the Hub."""
    return any(secret.encode() in content for secret in secrets) or bool(
        HUB_TOKEN.search(content.decode("utf-8", errors="ignore"))
    )


def move_token_to_environment(training_args) -> None:
    """Leave `hub_token` where the Hub's client looks for it, and nowhere that is saved.

    Trainer pickles its arguments into `training_args.bin` and pushes that file with the rest.
    """
    if training_args.hub_token:
        os.environ["HF_TOKEN"] = training_args.hub_token
        training_args.hub_token = None
