"""Every recipe is a run that the real parser takes, and says where its values come from."""

import re
from itertools import groupby

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tempo_trl import recipe_files
from tempo_trl.recipe_files import accelerate_config_path, read_recipe, recipe_names, recipe_path, recipes_folder
from tempo_trl.train_arguments import METHODS, parse

OF_THE_METHOD = {"method", "output_dir", "td_coef"}
MATH = ["qwen3-1.7b/math/tempo", "qwen3-1.7b/math/grpo"]
# A machine without a GPU takes a bf16 recipe only if it is told that it has none.
ON_CPU = ["--use_cpu", "true"]


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_a_run_of_the_method_in_its_name(name):
    script_args, training_args, *_ = parse(["--config", name, *ON_CPU])
    assert script_args.method == name.split("/")[-1]
    assert type(training_args).__name__ == METHODS[script_args.method][1] + "Config"
    assert training_args.output_dir == f"runs/{name}"


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_saves_at_the_end_of_a_generation(name):
    _, args, *_ = parse(["--config", name, *ON_CPU])
    assert args.save_steps * args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) == 0


@pytest.mark.parametrize("name", MATH)
def test_math_recipes_have_the_values_of_table_2(name):
    script_args, args, model_args, _ = parse(["--config", name, *ON_CPU])
    assert model_args.model_name_or_path == "Qwen/Qwen3-1.7B"
    assert (script_args.task, script_args.reward_funcs) == ("math", ["math_reward"])
    assert (args.optim.startswith("adamw"), args.adam_beta1, args.adam_beta2) == (True, 0.9, 0.999)
    assert (args.learning_rate, args.weight_decay, args.warmup_steps) == (1e-6, 0.0, 0)
    assert (args.num_generations, args.max_completion_length, args.beta) == (6, 1024, 0.0)
    assert (args.epsilon, args.epsilon_high, args.loss_type) == (0.2, 0.28, "dapo")
    completions_of_an_update = args.per_device_train_batch_size * args.gradient_accumulation_steps
    assert completions_of_an_update == 64 * args.num_generations
    assert args.num_train_epochs == 10
    assert args.chat_template_kwargs == {"enable_thinking": False}


def test_math_recipes_generate_about_220_times():
    _, args, *_ = parse(["--config", MATH[0], *ON_CPU])
    generations = args.num_train_epochs * (7500 // (args.generation_batch_size // args.num_generations))
    assert generations == 230
    assert args.save_steps * args.gradient_accumulation_steps == args.steps_per_generation * 23


def test_recipes_of_one_cell_differ_only_in_the_keys_of_the_method():
    for _, cell in groupby(recipe_names(), key=lambda name: name.rpartition("/")[0]):
        shared = [
            {key: value for key, value in read_recipe(recipe_path(name)).items() if key not in OF_THE_METHOD}
            for name in cell
        ]
        assert all(recipe == shared[0] for recipe in shared)


@pytest.mark.parametrize("name", MATH)
def test_every_value_of_a_paper_s_recipe_says_whose_it_is(name):
    values = re.findall(r"^(\w+):(.*)$", recipe_path(name).read_text(), re.MULTILINE)
    silent = [key for key, rest in values if not re.search("# (ours|Table|Section|Appendix)", rest)]
    assert set(silent) <= {"method", "output_dir"}


def test_a_path_comes_before_a_packaged_recipe(tmp_path, monkeypatch):
    packaged = recipes_folder() / "demo/tempo.yaml"
    monkeypatch.chdir(tmp_path)
    for name in ("demo/tempo", "demo/tempo.yaml", "recipes/demo/tempo", "recipes/demo/tempo.yaml", str(packaged)):
        assert recipe_path(name) == packaged
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/tempo.yaml").touch()
    assert recipe_path("demo/tempo.yaml").resolve() == tmp_path / "demo/tempo.yaml"


def test_an_unknown_recipe_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match=r"demo/tempo, qwen3-1\.7b/math/grpo"):
        recipe_path("qwen3-1.7b/math/temp")


def test_a_wheel_carries_the_recipes_inside_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_files, "__file__", str(tmp_path / "tempo_trl/recipe_files.py"))
    assert recipes_folder() == tmp_path / "recipes"
    (tmp_path / "tempo_trl/recipes").mkdir(parents=True)
    assert recipes_folder() == tmp_path / "tempo_trl/recipes"


@pytest.mark.parametrize(
    ("name", "distributed_type", "num_processes"),
    [("single_gpu", "NO", 1), ("ddp", "MULTI_GPU", 8), ("zero2", "DEEPSPEED", 8), ("zero3", "DEEPSPEED", 8)],
)
def test_accelerate_takes_our_configurations(name, distributed_type, num_processes):
    path = accelerate_config_path(name)
    assert path.parent == recipes_folder() / "accelerate"
    config = load_config_from_file(str(path))
    assert (config.distributed_type, config.num_processes, config.mixed_precision) == (
        distributed_type,
        num_processes,
        "bf16",
    )
    assert getattr(config, "deepspeed_config", {}).get("zero_stage", 0) == {"zero2": 2, "zero3": 3}.get(name, 0)
