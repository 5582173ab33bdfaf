"""Every Markdown file says what can be done: its code parses, its commands are known, its links and files exist."""

import ast
import configparser
import importlib
import json
import re
import shlex
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs import hooks
from tempo_trl.methods import METHODS
from tempo_trl.runs.recipes import accelerate_config_path, read_recipe, recipe_path

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"), ("recipes", "*.md"), ("benchmarks", "**/*.md"))
    for path in (REPOSITORY / folder).glob(pattern)
)
FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")?[^\n]*\n(.*?)^ *```', re.MULTILINE | re.DOTALL)
NEEDS_A_GPU_OR_THE_HUB = re.compile(r"qwen3-|Qwen/|load_dataset|sbatch|--nproc|publish (?!.*--dry-run)")


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text()


def blocks(*languages: str) -> list:
    """The code blocks of some languages: page, title, code."""
    found = [
        pytest.param(page, match[3], match[4], id=f"{page}:{text_of(page)[: match.start()].count(chr(10)) + 1}")
        for page in PAGES
        for match in FENCE.finditer(text_of(page))
        if match[2] in languages
    ]
    assert found
    return found


def commands() -> list[str]:
    """The shell commands of all pages, once each."""
    lines = [
        line
        for block in blocks("bash")
        for line in block.values[2].replace("\\\n", " ").splitlines()
        if shlex.split(line, comments=True)
    ]
    return sorted({shlex.join(shlex.split(line, comments=True)) for line in lines})


def prose(page: str) -> str:
    return FENCE.sub("", text_of(page))


# Code


@pytest.mark.parametrize("page, title, code", blocks("python"))
def test_python_compiles_and_its_imports_and_fields_are_there(page, title, code):
    if title == "METHODS":
        code = "{" + code + "}"
    imported = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            imported |= {alias.name: getattr(module, alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            assert all(find_spec(alias.name) for alias in node.names)
    for node in ast.walk(ast.parse(code)):
        config = imported.get(getattr(getattr(node, "func", None), "id", None))
        if isinstance(node, ast.Call) and is_dataclass(config):
            assert {keyword.arg for keyword in node.keywords} <= {field.name for field in fields(config)}


def test_json_is_json_and_both_sides_of_a_difference_are_python():
    for block in blocks("json"):
        json.loads(block.values[2])
    for block in blocks("diff"):
        for sign in "-+":
            ast.parse("\n".join(line[1:] for line in block.values[2].splitlines() if line[:1] in (sign, " ")))


@pytest.mark.parametrize("page, title, code", blocks("yaml"))
def test_recipes_are_parsed(page, title, code, tmp_path):
    if title:
        return  # tests/test_methods_page.py trains with it
    (tmp_path / "recipe.yaml").write_text(code)
    recipe = read_recipe(tmp_path / "recipe.yaml")
    from tempo_trl.launch.train import parse

    assert parse(["--config", str(tmp_path / "recipe.yaml"), "--use_cpu", "true"])[0].method == recipe["method"]


def test_every_block_says_what_it_is_is_parsed_and_does_not_scroll():
    found = [(page, match[2], match[4]) for page in PAGES for match in FENCE.finditer(text_of(page))]
    assert {language for _, language, _ in found} <= {"python", "bash", "yaml", "json", "diff", "text", ""}
    wide = [(page, line) for page, _, code in found for line in code.splitlines() if len(line) > 78]
    assert wide == []


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_need_a_gpu_or_the_hub_are_marked(page):
    for section in re.split(r"^## ", text_of(page), flags=re.MULTILINE):
        if any(NEEDS_A_GPU_OR_THE_HUB.search(match[4]) for match in FENCE.finditer(section) if match[2] != "yaml"):
            assert "not run here" in section.lower(), section[:200]


# Commands


@pytest.mark.parametrize("command", commands())
def test_a_command_can_be_given(command):
    words = shlex.split(command)
    while "=" in words[0]:  # the environment
        words.pop(0)
    name = Path(words[0]).name
    assert name in PARSERS, f"no test knows how to parse {command!r}"
    PARSERS[name](words[1:])


def parse_tempo_trl(words: list[str]) -> None:
    from tempo_trl.launch.arguments import launch_arguments
    from tempo_trl.launch.cli import command_parser, main

    if words[0] != "train":
        command_parser().parse_args(words)
        return
    recipe = words[words.index("--show" if "--show" in words else "--config") + 1]
    if recipe == "sums/discounted":  # tests/test_methods_page.py trains with it
        return
    assert recipe_path(recipe).is_file()
    if "--check" in words or "--show" in words:
        assert main(words) == 0
    else:
        assert launch_arguments(words[1:]).training_script == "tempo_trl.train"


def parse_accelerate(words: list[str]) -> None:
    from accelerate.commands.launch import launch_command_parser

    assert words[0] == "launch"
    arguments = launch_command_parser().parse_args(words[1:])
    assert accelerate_config_path(arguments.config_file).is_file()
    if not arguments.module:
        assert arguments.training_script == "your_script.py" or (REPOSITORY / arguments.training_script).is_file()
        return
    assert find_spec(arguments.training_script)
    assert recipe_path(arguments.training_script_args[1]).is_file()


def parse_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {word for word in words if "=" not in word} <= targets


def parse_python(words: list[str]) -> None:
    if words[0] != "-m":
        assert (REPOSITORY / words[0]).is_file(), words
        return
    assert find_spec(words[1])
    if words[1] == "pytest":
        assert (REPOSITORY / words[2]).exists()
    if words[1] in SUBJECTS:
        module, name = SUBJECTS[words[1]]
        subjects = words[2:3] if name == "STAGES" else words[2:]  # what follows a stage are its options
        assert set(subjects) <= {*getattr(importlib.import_module(module), name), "all", "--quick"}


SUBJECTS = {
    "benchmarks.agents": ("benchmarks.agents.studies", "STUDIES"),
    "benchmarks.language_model": ("benchmarks.language_model.__main__", "STAGES"),
    "benchmarks.learning": ("benchmarks.learning.studies", "STUDIES"),
}


def parse_pip(words: list[str]) -> None:
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    assert words[0] == "install"
    for extras in re.findall(r"\.\[(.*)\]", words[-1]):
        assert all(setup.has_option("options.extras_require", extra) for extra in extras.split(","))


def parse_vllm(words: list[str]) -> None:
    from tempo_trl.rollout.vllm_server import server_command

    length = words[words.index("--max-model-len") + 1]
    assert shlex.split(server_command(words[1], int(length)))[2:] == words[: len(words) - 4]


PARSERS = {
    "tempo-trl": parse_tempo_trl,
    "accelerate": parse_accelerate,
    "make": parse_make,
    "python": parse_python,
    "pip": parse_pip,
    "vllm": parse_vllm,
    "sbatch": lambda words: (REPOSITORY / words[0]).resolve(strict=True),
}


def without_what_was_measured(text: str) -> str:
    """A page without the paragraphs whose commands belong to an older commit: their code may be gone."""
    return re.sub(r"Measured at commit [0-9a-f]{7} with\s.*?(\n\n|$)", r"\1", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_begin_as_commands_that_are_there(page):
    from tempo_trl.launch.cli import command_parser

    verbs = next(action for action in command_parser()._actions if action.dest == "run" or action.choices)
    text = " ".join(without_what_was_measured(prose(page)).split())
    for command in re.findall("`((?:make|python|pip|tempo-trl) [^`]+)`", text):
        name, *words = shlex.split(command)
        if name == "tempo-trl":
            assert words[0] in {*verbs.choices, "VERB"}, command
        else:
            PARSERS[name](words)


# Links and files


@pytest.mark.parametrize("page", PAGES)
def test_links_and_files_that_are_named_exist(page):
    folder = (REPOSITORY / page).parent
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", prose(page)):
        assert (folder / target).exists(), target
    named = re.findall(r"`((?:tests|examples|recipes|docs|benchmarks|tempo_trl)/[\w./-]+)`", prose(page))
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


# The site


def test_the_site_is_built_strictly_and_its_warnings_are_not_hidden():
    build = re.search(r"^docs:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[1]
    assert "mkdocs build --strict" in build
    assert not {"-q", "--quiet"} & set(build.split())  # --strict counts the warnings that are logged


# What is generated


def test_the_api_page_has_every_room_with_public_names():
    rooms = [
        ".".join(path.parent.relative_to(REPOSITORY).parts) for path in REPOSITORY.glob("tempo_trl/**/__init__.py")
    ]
    public = {room for room in rooms if hasattr(importlib.import_module(room), "__all__")}
    assert public == {"tempo_trl", *hooks.ROOMS}
    described = re.findall(r"^::: (\S+)$", hooks.api_page(), re.MULTILINE)
    assert sorted(described) == sorted(hooks.public_names().values())
    assert len(set(described)) == len(described)
    rewards = {path.rpartition(".")[2] for path in described if path.startswith("tempo_trl.rewards.")}
    assert {"SpanReward", "Quote", "json_fields", "json_schema_reward", "tool_call_fields", "quotes"} <= rewards


def test_the_api_page_and_the_fields_begin_with_tempo_then_come_your_own_credit_and_rewards_then_the_table():
    described = [path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", hooks.api_page(), re.MULTILINE)]
    own = ["TokenCreditTrainer", "TokenCreditConfig", "Batch", "Credit"]
    own += ["SpanCreditTrainer", "SpanCreditConfig", "SpanReward"]
    table = [path.rpartition(".")[2] for method in METHODS.values() for path in (method.trainer, method.config)]
    others = [name for name in table[2:] if name not in own]
    front = [*table[:2], *own, *dict.fromkeys(others)]
    assert front[:2] == ["TEMPOTrainer", "TEMPOConfig"]
    assert described[: len(front)] == front
    assert [*hooks.configs()] == [*(name for name in front if name.endswith("Config")), "TrainArguments"]


def test_references_in_docstrings_become_links_or_code():
    text = hooks.with_links("[`~trl.GRPOTrainer`] and [`TEMPOConfig`]")
    assert text == "`GRPOTrainer` and [`TEMPOConfig`][tempo_trl.methods.tempo.TEMPOConfig]"
    assert hooks.with_plain_types("    td_coef (`float`, *optional*, defaults to `1.0`):") == "    td_coef (float):"
    assert (
        hooks.with_plain_types("    ids (`torch.Tensor` of shape `(B, T)`):")
        == "    ids (torch.Tensor of shape (B, T)):"
    )
