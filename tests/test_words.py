"""Phrases that must be read twice stay out of messages, docstrings, comments and pages; codespell checks single words.

The list has what was mended once. A phrase is found across line breaks and in the parts of an f-string.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile"),
    *("docs", "recipes", "tempo_trl", "benchmarks", "examples"),
)
SUFFIXES = (".py", ".md", ".yaml", ".slurm", ".html", "Makefile")
COUNTS = "bytes|tokens|completions|prompts|answers|episodes|updates|generations|lines?|rows?|columns?|files?|batches"
UNITS = "completion|prompt|parameter|question|step|method|update|group|token|row|device|rank|seed|task|metric"
PHRASES = {
    r"\b(is|are) none of\b": "is not a multiple of, is not one of",
    r"\bcannot be:": "is not supported here:",
    r"(?<!there )\bis no (recipe|run|file|folder|record|name|number|json|problem|answer|unit|share)\b": "is not a",
    r"\bwhat of (trl|the run|it)\b": "name the thing",
    rf"\b({COUNTS}) an? ({UNITS})\b": "per",
    r"\b(has|have) (no|a|equal) say\b": "counts, does not count",
    r"\b(nothing|most|much) to tell\b": "informative",
    r"\bsaid once\b": "This warning is given once.",
    r"\bin the place of\b": "instead of",
    r"\bprefixes tell\b": "prefixes predict, prefixes explain",
    r"\bgives? way to\b": "is replaced by",
    r"\bgoes? on from\b": "continues, resumes from",
    r"\bis another one than\b": "differs from",
    r"\bis the doing of\b": "is caused by",
    r"\bcompletions speak\b|\ba row meets\b": "no persons in the code",
}


ANY = re.compile("|".join(PHRASES), re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what people read in a file: strings and comments of Python, comments of YAML, whole pages."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_texts(source)
    elif path.suffix in (".yaml", ".slurm"):
        yield 1, " ".join(line.partition("#")[2] for line in source.splitlines())
    else:
        yield 1, re.sub(r"```.*?```", "", source, flags=re.DOTALL)


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value
    comments = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    yield 1, " ".join(comment.string.lstrip("# ") for comment in comments)


def found(line: int, text: str) -> list[str]:
    text = " ".join(text.split())
    if not ANY.search(text):
        return []
    matches = (
        (match, instead) for rule, instead in PHRASES.items() for match in re.finditer(rule, text, re.IGNORECASE)
    )
    return [
        f"line {line}: {text[max(0, m.start() - 30) : m.end() + 30]!r}; write {instead!r}" for m, instead in matches
    ]


def files() -> list[Path]:
    below = [path for page in PAGES for path in sorted((REPOSITORY / page).rglob("*")) or [REPOSITORY / page]]
    return [path for path in below if path.name.endswith(SUFFIXES) and path.is_file()]


def test_no_phrase_of_the_list_is_written():
    assert len(files()) > 300
    wrong = {
        str(path.relative_to(REPOSITORY)): [hit for text in texts(path) for hit in found(*text)] for path in files()
    }
    assert {path: hits for path, hits in wrong.items() if hits} == {}


@pytest.mark.parametrize(
    "source",
    [
        'raise ValueError(\n    f"{n} is none "\n    f"of {known}."\n)',
        '"""It\nis no run."""',
        "# 16 bytes\n# a parameter",
    ],
)
def test_each_kind_of_text_is_searched(source):
    assert [hit for text in python_texts(source) for hit in found(*text)]


def test_recipes_and_pages_are_searched(tmp_path):
    recipe, page = tmp_path / "recipe.yaml", tmp_path / "page.md"
    recipe.write_text("num_generations: 6  # ours: 6 completions a prompt\n")
    page.write_text("A line\nis none\nof these.\n```\nis none of these\n```\n")
    assert [len(found(*text)) for path in (recipe, page) for text in texts(path)] == [1, 1]
