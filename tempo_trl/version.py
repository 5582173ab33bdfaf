"""The version of this package and of its dependencies. Imports nothing of the package, so any module can read it."""

import re
import warnings
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"
TRL = "1.16"  # setup.cfg has the range

PACKAGES = (
    "trl",
    "transformers",
    "torch",
    "accelerate",
    "datasets",
    "huggingface_hub",
    "peft",
    "deepspeed",
    "vllm",
    "math-verify",
)


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter to a run, those that are installed."""
    return {package: found for package in PACKAGES if (found := _version(package))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def warn_of_another_trl() -> None:
    """Warn if the installed TRL is of another minor version, whose private methods may differ from those of `TRL`."""
    found = _version("trl")
    if found is not None and not re.match(rf"{re.escape(TRL)}(\D|$)", found):
        warnings.warn(
            f"tempo_trl {__version__} needs trl {TRL}, found {found}: it may fail inside TRL. Install it with "
            f"`pip install 'trl=={TRL}.*'`.",
            UserWarning,
            stacklevel=3,
        )
