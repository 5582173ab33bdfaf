"""Find and read the packaged recipes: at the top level of a checkout, inside the package in a wheel."""

import json
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import yaml
from yaml import MappingNode, Node, SequenceNode


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
    raise ValueError(
        f"recipe {name!r} not found, expected a file or the name of a packaged recipe. `tempo-trl recipes` lists them."
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


def read_recipe(path: Path) -> dict:
    """
    Fields of a recipe. One with `extends: qwen3-1.7b/math/base` starts from the fields of that recipe, and its own
    replace them. The name is that of a file, relative to the recipe's folder, or of a packaged recipe.

    Values are text, or None for null, also in a list and in `env`: the type of a field decides how its text is read.
    Only inside any other mapping (`model_init_kwargs`, `datasets`), where types are unknown, are they YAML's.

    Raises:
        ValueError: the file is not a YAML mapping in UTF-8, has a key twice, extends itself, or extends no recipe.
    """
    fields = {name: node for name, (_, node) in _merged(path, ()).items()}
    return {name: _value(node, True, name == "env") for name, node in fields.items()}


def recipe_text(path: Path) -> str:
    """The text of a recipe, or, if it extends another one, of the whole recipe that results."""
    if "extends" not in _own_fields(path):
        return path.read_text(encoding="utf-8")
    whole = MappingNode("tag:yaml.org,2002:map", list(_merged(path, ()).values()))
    return yaml.serialize(whole, Dumper=_OneEntryPerLine, allow_unicode=True, width=float("inf"))


class _OneEntryPerLine(yaml.BaseDumper):
    """Writes scalars as they were written, and each on a line of its own, so that a secret can be left out."""

    def serialize_node(self, node, parent, index):
        node.flow_style = False
        super().serialize_node(node, parent, index)


def _merged(path: Path, extending: tuple[Path, ...]) -> dict[str, tuple[Node, Node]]:
    if path.resolve() in extending:
        raise ValueError(f"{path} extends itself, expected a chain of recipes with an end. Change `extends`.")
    fields = _own_fields(path)
    if "extends" not in fields:
        return fields
    base = fields.pop("extends")[1].value
    if not isinstance(base, str):
        raise ValueError(f"`extends` of {path} is a list or a mapping, expected the name of a recipe. Correct it.")
    beside = path.parent / base
    return _merged(beside if beside.is_file() else recipe_path(base), (*extending, path.resolve())) | fields


def _own_fields(path: Path) -> dict[str, tuple[Node, Node]]:
    try:
        with open(path, encoding="utf-8") as file:
            recipe = yaml.compose(file, yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}. Correct it.") from error
    if not isinstance(recipe, MappingNode):
        got = "nothing" if recipe is None else f"a {recipe.id}"
        raise ValueError(f"{path} contains {got}, expected a mapping of fields to values. Write `field: value`.")
    return _entries(recipe)


def _entries(mapping: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Key and value of each entry, by the text of the key. Of a repeated key YAML would silently keep the last."""
    keys = [str(key.value) for key, _ in mapping.value]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        file = mapping.start_mark.name
        raise ValueError(f"{file} has {', '.join(repeated)} more than once, expected each key once. Keep one of them.")
    return dict(zip(keys, mapping.value, strict=True))


def _value(node: Node, is_text: bool, is_env: bool) -> object:
    if isinstance(node, MappingNode):
        return {key: _value(value, is_env, is_env) for key, (_, value) in _entries(node).items()}
    if isinstance(node, SequenceNode):
        return [_value(item, is_text, is_env) for item in node.value]
    if node.style is not None:  # quoted
        return node.value
    if node.value in ("", "~", "null", "Null", "NULL"):
        return None
    return node.value if is_text else _typed(node.value)


def _typed(text: str) -> object:
    """YAML's value of a plain scalar, but 1e-5 is a number as in JSON, and 1:30 and 2026-01-31 are text."""
    with suppress(ValueError):
        return json.loads(text)
    value = yaml.safe_load(text)
    return value if isinstance(value, bool | int | float) and ":" not in text else text
