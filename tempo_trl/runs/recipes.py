"""Find and read the packaged recipes: at the top level of a checkout, inside the package in a wheel."""

from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

import yaml


def recipes_folder() -> Path:
    """The folder of the recipes that come with this package."""
    package = Path(__file__).parents[1]
    in_wheel = package / "recipes"
    return in_wheel if in_wheel.is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """Names of the packaged training recipes, `qwen3-1.7b/math/tempo` and the like, in order, without their bases."""
    folder = recipes_folder()
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
    return sorted(name for name in names if not f"/{name}".endswith("/base") and not name.startswith("accelerate/"))


def recipe_path(name: str) -> Path:
    """The file of a recipe: `name` is a path, or a packaged recipe with or without `recipes/` and `.yaml`.

    Raises:
        ValueError: no such file or recipe exists.
    """
    short = name.removeprefix("recipes/").removesuffix(".yaml")
    for path in (Path(name), recipes_folder() / f"{short}.yaml"):
        if path.is_file():
            return path
    known = recipe_names()
    nearest = get_close_matches(short, known, n=3) or [other for other in known if f"/{short}/" in f"/{other}/"][:3]
    suggestion = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
    raise ValueError(
        f"recipe {name!r} not found, expected a file or the name of a packaged recipe.{suggestion} "
        "`tempo-trl recipes` lists all names."
    )


def accelerate_config_path(name: str) -> Path:
    """The file of an accelerate configuration: `name` is a path, or else a name of ours, or else of TRL's.

    Raises:
        ValueError: no such file or configuration exists.
    """
    ours, trls = recipes_folder() / "accelerate", Path(str(files("trl") / "accelerate_configs"))
    for path in (Path(name), ours / f"{name}.yaml", trls / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted({path.stem for folder in (ours, trls) for path in folder.glob("*.yaml")})
    raise ValueError(f"accelerate configuration {name!r} not found, expected a path or one of: {', '.join(known)}.")


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that rejects repeated keys. The standard loaders silently keep the last value."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        if repeated:
            raise ValueError(
                f"{self.name} has {', '.join(repeated)} more than once, expected each key once. Keep one of them."
            )
        return super().construct_mapping(node, deep)


def read_recipe(path: Path) -> dict:
    """
    Fields of a recipe. One with `extends: qwen3-1.7b/math/base` starts from the fields of that recipe, and its own
    replace them. The name is that of a file, relative to the recipe's folder, or of a packaged recipe.

    Raises:
        ValueError: the file is not a YAML mapping, has a key twice, extends itself, or extends no recipe.
    """
    return _merged(path, ())


def recipe_text(path: Path) -> str:
    """The text of a recipe, or, if it extends another one, of the whole recipe that results."""
    if "extends" not in _own_fields(path):
        return path.read_text(encoding="utf-8")
    return yaml.safe_dump(read_recipe(path), sort_keys=False, allow_unicode=True, width=float("inf"))


def _merged(path: Path, extending: tuple[Path, ...]) -> dict:
    if path.resolve() in extending:
        raise ValueError(f"{path} extends itself, expected a chain of recipes with an end. Change `extends`.")
    recipe = _own_fields(path)
    base = recipe.pop("extends", None)
    if base is None:
        return recipe
    beside = path.parent / str(base)
    return _merged(beside if beside.is_file() else recipe_path(str(base)), (*extending, path.resolve())) | recipe


def _own_fields(path: Path) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            recipe = yaml.load(file, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}. Correct it.") from error
    if not isinstance(recipe, dict):
        raise ValueError(
            f"{path} contains a {type(recipe).__name__}, expected a mapping of fields to values. Write `field: value`."
        )
    return recipe
