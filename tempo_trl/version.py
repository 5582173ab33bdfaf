"""The version of this package and of its dependencies. Imports nothing of the package, so any module can read it."""

from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

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


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that matter to a run; None for a package that is not installed."""
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
