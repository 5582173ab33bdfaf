"""The house is held together by its imports: `[importlinter]` in setup.cfg says which room may import which."""

from pathlib import Path

from importlinter import cli

REPOSITORY = Path(__file__).parents[1]


def test_imports_only_go_down_and_no_files_import_each_other_in_a_circle(monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert cli.lint_imports(config_filename="setup.cfg", cache_dir=None) == cli.EXIT_STATUS_SUCCESS, (
        capsys.readouterr().out
    )


def test_every_room_says_in_a_sentence_what_it_is_for():
    rooms = [path for path in (REPOSITORY / "tempo_trl").iterdir() if path.is_dir() and path.name != "__pycache__"]
    for room in rooms:
        first = (room / "__init__.py").read_text().splitlines()[0]
        assert first.startswith('"""') and len(first) > 20, room.name
