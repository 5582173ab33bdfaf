"""Every recipe is a run that the real parser and the real launcher take. Its values: `test_paper_recipes.py`."""

import re
import shlex
from argparse import Namespace
from configparser import ConfigParser
from functools import cache

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command
from peft import LoraConfig, inject_adapter_in_model
from transformers import TrainingArguments

from tempo_trl.launch.arguments import METHODS, launch_arguments, parse
from tempo_trl.rollout import vllm_server
from tempo_trl.runs import recipes as recipe_files
from tempo_trl.runs.recipes import (
    accelerate_config_path,
    read_recipe,
    recipe_names,
    recipe_path,
    recipe_text,
    recipes_folder,
)
from tempo_trl.runs.record import without_secret_lines

HEPO = 0.2  # the share of tokens of the TEMPO paper's HEPO, which is GRPO otherwise
RECOMMENDED = "qwen3-1.7b/math/prefix_baseline_16"  # by docs/guides/choosing.md
PAPER = [name for name in recipe_names() if name.startswith(("qwen3-1.7b/", "qwen3-4b/")) and name != RECOMMENDED]
SERVED = [name for name in recipe_names() if read_recipe(recipe_path(name)).get("vllm_mode") == "server"]
SERVER_FLAGS = ["--max-model-len", "4096", *vllm_server.SERVER_FLAGS]
# A machine without a GPU takes a bf16 recipe only if it is told that it has none.
ON_CPU = ["--use_cpu", "true"]


def method_of(name: str) -> str:
    """Every other recipe is called by its method."""
    return "prefix_baseline" if name == RECOMMENDED else name.rpartition("/")[2]


def differing(name: str, other: str) -> set[str]:
    """Keys that two recipes do not have alike."""
    here, there = (read_recipe(recipe_path(recipe)) for recipe in (name, other))
    return {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}


def chain_of(name: str) -> list[str]:
    """A recipe, and the recipes that it extends."""
    base = re.search(r"^extends: (.*)$", recipe_path(name).read_text(), re.MULTILINE)
    return [name, *(chain_of(base[1]) if base else [])]


@cache
def headers_of(name: str) -> list[str]:
    """The first comments of a recipe and, if it extends that, of the base of its folder."""
    base = f"{name.rpartition('/')[0]}/base"
    files = [name, base] if base in chain_of(name) else [name]
    return [recipe_path(file).read_text().split("\n\n")[0] for file in files]


def header_of(name: str) -> str:
    """The headers of a recipe on one line."""
    return " ".join(headers_of(name)).replace("\n#", "")


def header_commands(name: str) -> list[list[str]]:
    """The indented shell commands in the headers of a recipe, in words."""
    text = "\n".join(headers_of(name)).replace("\\\n#", "")
    return [shlex.split(line) for line in re.findall(r"^#   +(\S.*)$", text, re.MULTILINE)]


@cache
def launch_of(name: str) -> Namespace:
    """What accelerate is told by the command in the recipe's header."""
    words = header_commands(name)[0]
    return launch_arguments(words[words.index("train") + 1 :])


@cache
def devices_of(name: str) -> int:
    """Processes that train, one a device, when the recipe is started by the command in its header."""
    launch = launch_of(name)
    if launch.config_file is None:
        return 1
    return _validate_launch_command(launch)[0].num_processes


def arguments_on(devices: int, argv: list[str]):
    """Arguments of a run as each of `devices` processes reads them: batch sizes depend on their number."""
    return _parsed(devices, *argv)


@cache
def _parsed(devices: int, *argv: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingArguments, "world_size", property(lambda self: devices))
        return parse([*argv, *ON_CPU])


def test_a_recipe_is_a_run_of_the_method_in_its_name(subtests):
    for name in recipe_names():
        with subtests.test(name):
            script_args, args, *_ = arguments_on(devices_of(name), ["--config", name])
            method = method_of(name)
            assert script_args.method == method
            assert args.top_entropy_quantile == (HEPO if method == "hepo" else 1.0)
            assert type(args).__name__ == METHODS[method].config.rpartition(".")[2]
            assert args.output_dir == f"runs/{name}"
            assert f"--config {name} " in " ".join([*launch_of(name).training_script_args, ""])
            generation = args.steps_per_generation * args.num_iterations  # saved at its end, a run resumes exactly
            assert args.save_steps * args.gradient_accumulation_steps % generation == 0


def test_recipes_show_what_they_are_about_and_a_base_is_not_a_run():
    files = [path for path in recipes_folder().rglob("*") if path.suffix in (".yaml", ".slurm")]
    lines = {path.relative_to(recipes_folder()).as_posix(): len(path.read_text().splitlines()) for path in files}
    assert sum(lines.values()) < 2000
    (whole,) = [name for name in recipe_names() if "extends" not in recipe_path(name).read_text()]
    assert all(lines[f"{name}.yaml"] <= 35 for name in recipe_names() if name != whole)
    bases = [path for path in files if path.name == "base.yaml"]
    assert len(bases) == len({path.parent for path in bases}) > 0
    assert not [path for path in bases if {"method", "output_dir"} & read_recipe(path).keys()]
    assert not [name for name in recipe_names() if name.endswith("base")]


def test_servers_start_with_the_flags_that_the_trainer_asks_for():
    ours = vllm_server.server_command("M", 4096)
    assert shlex.split(ours) == ["VLLM_SERVER_DEV_MODE=1", "vllm", "serve", "M", *SERVER_FLAGS]


def test_trainer_and_server_share_the_gpus(subtests):
    for name in SERVED:
        with subtests.test(name):
            train, server = header_commands(name)
            recipe = read_recipe(recipe_path(name))
            model, host = recipe["model_name_or_path"], recipe["vllm_server_host"]
            start = ["VLLM_SERVER_DEV_MODE=1", "vllm", "serve", model, *SERVER_FLAGS]
            assert server[1 : len(start) + 1] == start
            options = dict(zip(server[len(start) + 1 :: 2], server[len(start) + 2 :: 2], strict=True))
            assert options.pop("--host") == host
            assert SERVER_FLAGS[:2] == ["--max-model-len", str(recipe["vllm_max_model_length"])]
            sampling, training = (
                words[0].removeprefix("CUDA_VISIBLE_DEVICES=").split(",") for words in (server, train)
            )
            assert len(training) == devices_of(name)
            assert len(sampling) == int(options.pop("--tensor-parallel-size", 1))
            assert options == {}
            assert sorted(training + sampling) == [str(gpu) for gpu in range(8 if "/eight_gpus/" in name else 2)]


def test_a_path_comes_before_a_packaged_recipe(tmp_path, monkeypatch):
    packaged = recipes_folder() / "sums/tempo.yaml"
    monkeypatch.chdir(tmp_path)
    for name in ("sums/tempo", "sums/tempo.yaml", "recipes/sums/tempo", "recipes/sums/tempo.yaml", str(packaged)):
        assert recipe_path(name) == packaged
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/tempo.yaml").touch()
    assert recipe_path("sums/tempo.yaml").resolve() == tmp_path / "sums/tempo.yaml"


def test_a_recipe_that_extends_another_has_its_fields_and_replaces_them_by_its_own(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: sums/tempo\nseed: 1\nreward_weights: [1.0]\nenv: {A: 1, B: 2}\n")
    (tmp_path / "mine.yaml").write_text("# Mine.\nextends: base.yaml\nreward_weights: [2.0]\nenv: {B: 3}\n")
    merged = read_recipe(tmp_path / "mine.yaml")
    own = {"seed": "1", "reward_weights": ["2.0"], "env": {"B": "3"}}
    assert merged == read_recipe(recipe_path("sums/tempo")) | own
    assert yaml.load(recipe_text(tmp_path / "mine.yaml"), yaml.BaseLoader) == merged


def test_a_run_keeps_the_whole_recipe_without_its_secrets(tmp_path):
    (tmp_path / "base.yaml").write_text("seed: 1  # ours\nenv: {API_KEY: secret-1}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\nhub_token: secret-2\n")
    assert recipe_text(tmp_path / "base.yaml") == (tmp_path / "base.yaml").read_text()
    kept = without_secret_lines(recipe_text(tmp_path / "mine.yaml"))
    assert "secret" not in kept
    assert yaml.safe_load(kept) == {"seed": 1, "env": None}


def test_a_recipe_cannot_extend_itself_or_what_is_not_there(tmp_path):
    for name, base in (("one", "two.yaml"), ("two", "one.yaml"), ("three", "nowhere")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}\n")
    with pytest.raises(ValueError, match=r"one\.yaml extends itself, expected a chain of recipes with an end"):
        read_recipe(tmp_path / "one.yaml")
    with pytest.raises(ValueError, match="recipe 'nowhere' not found"):
        read_recipe(tmp_path / "three.yaml")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"extends: [sums/tempo]\n", "`extends` of .*mine.yaml is a list or a mapping, expected the name of a recipe"),
        ("task: caf\u00e9".encode("latin-1"), "mine.yaml is not valid YAML: 'utf-8' codec .* Correct it"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_named(written, message, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(written)
    with pytest.raises(ValueError, match=message):
        read_recipe(tmp_path / "mine.yaml")


def test_a_wheel_carries_the_recipes_inside_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_files, "__file__", str(tmp_path / "tempo_trl/runs/recipes.py"))
    assert recipes_folder() == tmp_path / "recipes"
    (tmp_path / "tempo_trl/recipes").mkdir(parents=True)
    assert recipes_folder() == tmp_path / "tempo_trl/recipes"


def test_a_wheel_carries_every_file_of_the_recipes():
    setup = ConfigParser()
    setup.read(recipes_folder().parent / "setup.cfg")
    patterns = setup["options.package_data"]["tempo_trl.recipes"].split(",")
    carried = {path for pattern in patterns for path in recipes_folder().glob(pattern.strip())}
    assert {path for path in recipes_folder().rglob("*") if path.is_file()} == carried


ACCELERATE = {  # distributed type, processes, machines
    "single_gpu": ("NO", 1, 1),
    "ddp": ("MULTI_GPU", 8, 1),
    "zero2": ("DEEPSPEED", 8, 1),
    "zero3": ("DEEPSPEED", 8, 1),
    "zero3_offload": ("DEEPSPEED", 8, 1),
    "fsdp2": ("FSDP", 8, 1),
    "multi_node": ("DEEPSPEED", 16, 2),
}


def test_accelerate_takes_our_configurations(subtests):
    assert {path.stem for path in (recipes_folder() / "accelerate").iterdir()} == set(ACCELERATE)
    for name in ACCELERATE:
        with subtests.test(name):
            path = accelerate_config_path(name)
            assert path.parent == recipes_folder() / "accelerate"
            config = load_config_from_file(str(path))
            assert (config.distributed_type, config.num_processes, config.num_machines) == ACCELERATE[name]
            assert config.mixed_precision == "bf16"
            stages = {"zero2": 2, "zero3": 3, "zero3_offload": 3, "multi_node": 3}
            deepspeed = getattr(config, "deepspeed_config", {})
            assert deepspeed.get("zero_stage", 0) == stages.get(name, 0)
            assert deepspeed.get("offload_optimizer_device", "none") == ("cpu" if name == "zero3_offload" else "none")
            assert config.fsdp_config.get("fsdp_version") == (2 if name == "fsdp2" else None)


def test_flags_win_over_an_accelerate_configuration():
    flags = ["--num_processes", "1", "--offload_param_device", "cpu"]
    launch = launch_arguments(["--config", PAPER[0], "--accelerate_config", "zero3_offload", *flags])
    launch = _validate_launch_command(launch)[0]
    assert (launch.num_processes, launch.offload_param_device, launch.offload_optimizer_device) == (1, "cpu", "cpu")


@pytest.mark.parametrize(("dtype", "lost"), [(torch.float32, 0.0), (torch.bfloat16, 0.2)])
def test_lora_recipes_hold_float32_weights_since_merging_for_vllm_changes_bf16_ones(dtype, lost):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256, bias=False, dtype=dtype))
    layer = inject_adapter_in_model(LoraConfig(r=16, lora_alpha=32, target_modules=["0"]), model)[0]
    before, adapter = layer.weight.detach().clone(), layer.lora_B["default"].float().weight
    layer.lora_A["default"].float()  # as PEFT has the adapters of a bf16 model
    step = 5e-5 * torch.randn(256, 16).sign()  # five updates of Adam at 1e-5
    for _ in range(230):  # generations: TRL merges before each, and unmerges
        adapter.data += step
        layer.merge()
        layer.unmerge()
    change = (layer.weight - before).norm() / layer.get_delta_weight("default").norm()
    assert change.item() == pytest.approx(lost, abs=0.05 if lost else 1e-4)
