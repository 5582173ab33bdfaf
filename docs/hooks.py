"""What the site takes from the code: reference pages, tables of fields, and pages from elsewhere in the repository.

MkDocs calls `on_files` and `on_page_markdown`; mkdocstrings takes `References` for TRL's `[`~trl.GRPOTrainer`]`.
"""

import argparse
import os
import re
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path

try:
    import griffe
except ImportError:  # the tests read the pages without the tools that make a site of them
    griffe = None

REPOSITORY = Path(__file__).parents[1]
# The public names of `tempo_trl`: title of a section, what it says, names. The last section has all other names.
FRONT = (
    ("TEMPO", "Instead of TRL's `GRPOTrainer` and `GRPOConfig`.", ["TEMPOTrainer", "TEMPOConfig"]),
    (
        "Your own credit function",
        "[How to write one](../guides/credit_function.md).",
        ["TokenCreditTrainer", "TokenCreditConfig", "Batch", "Credit"],
    ),
    (
        "Rewards that say where",
        "[From a reward function to one with places](../guides/rewards_that_say_where.md).",
        ["SpanCreditTrainer", "SpanCreditConfig", "SpanReward"],
    ),
    ("Other methods", "In the order of [the table of methods](../guides/choosing.md#all-methods).", []),
)
ROOMS = {
    "tempo_trl.credit": "Credit as arithmetic",
    "tempo_trl.rewards": "Rewards",
    "tempo_trl.data": "Datasets",
    "tempo_trl.rollout": "Growing trees",
    "tempo_trl.report": "Recorded trees",
}
INCLUDED = {
    "reference/recipes.md": "recipes/README.md",
    "reference/changelog.md": "CHANGELOG.md",
}
# Pages of the site that show a file of the repository.
SHOWN = INCLUDED | {
    "reference/api.md": "tempo_trl/rewards/__init__.py",
    "reference/fields.md": "tempo_trl/trainers/config.py",
    "reference/metrics.md": "tempo_trl/runs/metrics.py",
}


# Methods whose page is not `methods/NAME.md`.
PAGES_OF_METHODS = {
    "hepo": "methods/grpo.md#hepo",
    "treerpo_entropy": "methods/treerpo.md#hierarchical-treerpo",
    "hgpo": "methods/gigpo.md#hgpo",
    "token_credit": "guides/credit_function.md",
}


def on_files(files, config):
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """
    Put the table of a config's fields where a page says `<!-- fields: tempo_trl.TEMPOConfig -->`, and so on.

    The line that follows is for readers of the repository, who do not see the table.
    """
    tables = {"fields": own_fields, "methods": methods_table}
    place = r"<!-- (fields|methods)(?:: ([\w.]+))? -->\n.*"
    with_tables = re.sub(place, lambda m: tables[m[1]](*filter(None, [m[2]])), markdown)
    here = (REPOSITORY / "docs" / page.file.src_uri).parent
    return with_links_of_the_site(with_tables, here, here)


def pages() -> dict[str, str]:
    """The generated pages of the site: path to Markdown."""
    made = {
        "reference/api.md": api_page(),
        "reference/cli.md": cli_page(),
        "reference/fields.md": fields_page(),
        "reference/metrics.md": metrics_page(),
    }
    return made | {path: included(path, source) for path, source in INCLUDED.items()}


def included(path: str, source: str) -> str:
    """A Markdown file of the repository as a page of the site."""
    text, here = (REPOSITORY / source).read_text(), (REPOSITORY / "docs" / path).parent
    return with_links_of_the_site(text, (REPOSITORY / source).parent, here)


def with_links_of_the_site(text: str, folder: Path, here: Path) -> str:
    """Links from `folder` as links from `here`: those to a file of the repository to its page, or as text."""
    places = {REPOSITORY / file: REPOSITORY / "docs" / page for page, file in SHOWN.items()}

    def link(match: re.Match) -> str:
        text, target, anchor = match.groups()
        file = folder.joinpath(target).resolve()
        if target.startswith("http") or not file.exists():
            return match[0]
        file = places.get(file, file)
        if file.is_relative_to(REPOSITORY / "docs"):
            return f"[{text}]({os.path.relpath(file, here)}{anchor or ''})"
        return text

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#]+)(#[^)]*)?\)", link, text)


# The API


@cache
def public_names() -> dict[str, str]:
    """Where each public name is defined, under the first room that has it."""
    first: dict[str, str] = {}
    for room in ("tempo_trl", *ROOMS):
        for name, path in names_of(room).items():
            first.setdefault(path, f"{room}.{name}")
    return {name: path for path, name in first.items()}


def names_of(room: str) -> dict[str, str]:
    module = import_module(room)
    names = [name for name in module.__all__ if not name.startswith("__")]
    return {name: defined_in(getattr(module, name), f"{room}.{name}") for name in names}


def defined_in(what, otherwise: str) -> str:
    """The path of a name, or `otherwise` for one that was made by a function, such as `json_fields_reward`."""
    name = getattr(what, "__qualname__", "")
    is_there = name and hasattr(import_module(what.__module__), name)
    return f"{what.__module__}.{name}" if is_there else otherwise


def api_page() -> str:
    parts = ["# Python API", "Every public name, with its docstring."]
    for title, about, paths in [*front_sections(), *room_sections()]:
        parts += [f"## {title}", about, *(f"::: {path}" for path in paths)]
    return "\n\n".join(parts) + "\n"


def front_sections() -> list[tuple[str, str, list[str]]]:
    """What can be imported from `tempo_trl`, in the order in which a reader needs it."""
    from tempo_trl.methods import METHODS

    places, listed = names_of("tempo_trl"), {name for *_, names in FRONT for name in names}
    classes = [last(path) for method in METHODS.values() for path in (method.trainer, method.config)]
    others = [name for name in dict.fromkeys([*classes, *places]) if name in places and name not in listed]
    return [(title, about, [places[name] for name in names or others]) for title, about, names in FRONT]


def room_sections() -> list[tuple[str, str, list[str]]]:
    """What can be imported from the subpackages."""
    abouts = {room: import_module(room).__doc__.strip().splitlines()[0] for room in ROOMS}
    own = {room: [path for name, path in public_names().items() if name.rpartition(".")[0] == room] for room in ROOMS}
    return [(title, f"`{room}`: {abouts[room]}", own[room]) for room, title in ROOMS.items()]


class References(griffe.Extension if griffe else object):
    """TRL's references in docstrings: a link where the API page has the name, code where it has not."""

    def on_object(self, *, obj, **_) -> None:
        if obj.docstring:
            obj.docstring.value = with_plain_types(with_links(obj.docstring.value))


def with_links(text: str) -> str:
    known = {path.rpartition(".")[2]: path for path in public_names().values()}

    def link(match: re.Match) -> str:
        name = match[1].rpartition(".")[2]
        return f"[`{name}`][{known[name]}]" if name in known else f"`{name}`"

    return re.sub(r"\[`~?([\w.]+)`\]", link, text)


def with_plain_types(text: str) -> str:
    """TRL's `name (`int`, *optional*, defaults to `1`):` as `name (int):`, since the table shows defaults, too."""

    def plain(match: re.Match) -> str:
        return f"{match[1]}({re.sub('[`*]', '', match[2].partition(', *optional*')[0])}):"

    return re.sub(r"^( *[\w, .*]+ )\((.+)\):$", plain, text, flags=re.MULTILINE)


# The command line


def cli_page() -> str:
    from tempo_trl.launch.cli import command_parser

    parser = command_parser()
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help for choice in verbs._choices_actions}
    parts = ["# Command line", "`tempo-trl VERB --help` prints the same."]
    for name, verb in verbs.choices.items():
        verb.formatter_class = wide(verb.formatter_class)
        text = verb.format_help()
        parts += [
            f"## {name}",
            f"{summaries[name][0].upper()}{summaries[name][1:]}.",
            f"```{{.text .help}}\n{text.rstrip()}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def wide(formatter: type) -> type:
    return lambda prog: formatter(prog, width=80)


# Fields of configurations


def configs() -> dict[str, type]:
    """The configurations in the order of the API page, then what a recipe and the command line add."""
    from tempo_trl.launch.fields import TrainArguments

    paths = [path for _, _, paths in front_sections() for path in paths if path.endswith("Config")]
    return {path.rpartition(".")[2]: load(path) for path in paths} | {"TrainArguments": TrainArguments}


def load(path: str):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def fields_page() -> str:
    parts = [
        "# Fields",
        "The fields that our configurations add to TRL's, and those with another default. All others are those of "
        "`trl.GRPOConfig`. The names are the same in Python, in a recipe and on the command line.",
    ]
    for name, config in configs().items():
        parts += [f"## {name}", f"`{config.__module__}.{name}`", own_fields(f"{config.__module__}.{name}")]
    return "\n\n".join(parts) + "\n"


def own_fields(path: str) -> str:
    """The table of the fields of a config that TRL's has not, or has with another default."""
    from trl import GRPOConfig, ScriptArguments

    config = load(path)
    base = ScriptArguments if issubclass(config, ScriptArguments) else GRPOConfig
    theirs = {field.name: default_of(field) for field in fields(base)}
    own = [field for field in fields(config) if theirs.get(field.name, ...) != default_of(field)]
    rows = [f"| `{field.name}`<br>`{default_of(field)!r}` | {cell(field.metadata['help'])} |" for field in own]
    return "\n".join(["| field, default | meaning |", "|---|---|", *rows])


def default_of(field):
    return field.default_factory() if callable(field.default_factory) else field.default


def cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


# Metrics and methods


def metrics_page() -> str:
    from tempo_trl.runs.metrics import METRICS

    rows = [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]
    return METRICS_TEXT + "\n".join(["| metric | formula |", "|---|---|", *rows]) + "\n"


METRICS_TEXT = """\
# Metrics

Our trainers log these beside TRL's, over all ranks, in training and with the prefix `eval_` in evaluation.

- *Loss tokens* are the tokens whose loss is not masked.
- *Outcome* is GRPO's advantage. *Added* is what the method adds to it: with TEMPO its TD errors, without `td_coef`.
  Both have the same unit.
- A metric whose denominator is 0 is left out of that step: a group without branches has no branch depth.

With `log_completions=True`, the column `advantage` of TRL's table and parquet files holds the mean advantage that
trains. The columns `added_share` and `branch_tokens` give the same metrics for each completion.

"""


def methods_table() -> str:
    from tempo_trl.methods import METHODS

    pages = {name: f"../{PAGES_OF_METHODS.get(name, f'methods/{name}.md')}" for name in METHODS}
    rows = [
        f"| [`{name}`]({pages[name]}) | {method.label} | `{last(method.trainer)}` | {paper_of(method.paper)} |"
        for name, method in METHODS.items()
    ]
    return "\n".join(["| `method:` | name | trainer | paper |", "|---|---|---|---|", *rows])


def last(path: str) -> str:
    """The name at the end of a dotted path."""
    return path.rpartition(".")[2]


def paper_of(address: str) -> str:
    return f"[{address.rpartition('/')[2]}]({address})" if address else ""
