"""What `--check` says of the machine that checks: it may have no GPU, and no way to the Hub."""

import pytest
from transformers import AutoConfig

from tempo_trl.launch import cli
from tempo_trl.launch.known_models import KNOWN
from tempo_trl.launch.model_shape import model_shape
from tempo_trl.runs.recipes import read_recipe, recipe_names, recipe_path

NOTE = "Note: on this machine the run would stop at once: "
# As their pages on the Hub count them.
PARAMETERS = {
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
}


def checked(capsys, *flags: str) -> str:
    assert cli.main(["train", "--check", *flags]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("flags", "stops"),
    [
        (("--config", "qwen3-1.7b/math/tempo"), True),
        (("--config", "qwen3-1.7b/math/tempo", "--use_vllm", "false", "--use_cpu", "true"), False),
        (("--config", "qwen3-1.7b/math/tempo", "--bf16", "false"), False),
        (("--config", "sums/tempo"), False),
        (("--config", "qwen3-4b/math/two_gpus/tempo", "--num_processes", "2"), True),
    ],
)
def test_a_run_that_would_stop_at_once_on_this_machine_is_told(flags, stops, capsys):
    output = checked(capsys, *flags)
    assert (NOTE in output) == stops
    assert not stops or "bf16" in output.partition(NOTE)[2]
    assert output.startswith("The batch sizes work")


@pytest.mark.parametrize("name", KNOWN)
def test_the_sizes_of_our_models_are_theirs(name):
    assert model_shape(KNOWN[name]()).total == PARAMETERS[name]


def test_every_recipe_on_the_hub_has_an_estimate_offline(monkeypatch, capsys):
    models = {read_recipe(recipe_path(recipe)).get("model_name_or_path") for recipe in recipe_names()}
    assert models - {None} == {*KNOWN}

    def offline(*args, **keywords):
        raise OSError("no network")

    monkeypatch.setattr(AutoConfig, "from_pretrained", offline)
    output = checked(capsys, "--config", "qwen3-4b/math/two_gpus/tempo", "--num_processes", "2")
    assert "estimated for prompts of" in output
    assert "from the sizes that this package knows" in output


def test_a_config_that_can_be_read_comes_before_the_known_one(tiny_model, monkeypatch, capsys):
    tiny = AutoConfig.from_pretrained(tiny_model)
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda *args, **keywords: tiny)
    assert "from the sizes that this package knows" not in checked(capsys, "--config", "qwen3-1.7b/math/tempo")
