"""The recipes of each method beside TEMPO's and GRPO's: the values of their own, and where they fit."""

import re

import pytest

from tempo_trl.launch.batch_sizes import tree_kind
from tempo_trl.runs.recipes import recipe_path, recipes_folder

from .test_paper_recipes import ALL, COLUMNS, GIB, MODELS, OF_THE_DATASET, estimate_of, parts
from .test_recipes import PAPER, RECOMMENDED, arguments_on, devices_of, differing

README = (recipes_folder() / "README.md").read_text()
PPO = "qwen3-1.7b/math/two_gpus/ppo"


@pytest.fixture
def args_of():
    """The method's config of a recipe, on the devices of its header's command."""
    return lambda name: arguments_on(devices_of(name), ["--config", name]).training


def test_the_recommended_recipe_samples_as_many_tokens_and_differs_in_what_its_header_says(args_of):
    (name,) = RECOMMENDED
    beside = f"{name.rpartition('/')[0]}/prefix_baseline"
    assert differing(name, beside) == {"num_generations", "num_train_epochs", "max_steps", "output_dir"}
    ours, paper = args_of(name), args_of(beside)
    assert ours.generation_batch_size == paper.generation_batch_size == 1920
    updates = ours.steps_per_generation // ours.gradient_accumulation_steps
    assert ours.max_steps == 10 * (7500 // 320) * updates == 1150
    prompts, size = ours.generation_batch_size // ours.num_generations, ours.num_generations
    text = recipe_path(name).read_text().replace("\n#", "")
    assert f"An update sees {prompts // updates} prompts x {size} completions = 1 device x 16 x 24" in text
    assert (
        f"{prompts} prompts x {size} completions = 1 device x 16 x 120; {7500 // prompts} generations per epoch"
        in text
    )
    assert (
        f"{ours.max_steps // updates} generations, 1,150 updates; {230 * 1920 / 7500:.0f} episodes per question"
        in text
    )


def test_ppo_is_table_2_s(args_of):
    args = args_of(PPO)
    assert (args.gae_gamma, args.gae_lambda, args.kl_in, args.whiten_advantages) == (1.0, 1.0, "loss", True)
    assert (args.critic_model_name_or_path, args.shared_trunk) == (None, False)  # "matched in size to the actor"
    assert (args.learning_rate, args.critic_learning_rate) == (1e-6, 1e-5)


def test_models_and_datasets_differ_in_what_they_have_to(subtests):
    for method in ALL:
        with subtests.test(method):
            # 32 of 80 GB for vLLM instead of 24: its own weights take 8.
            of_the_model = {"model_name_or_path", "vllm_gpu_memory_utilization", "output_dir"}
            for dataset in COLUMNS:
                assert differing(f"qwen3-1.7b/{dataset}/{method}", f"qwen3-4b/{dataset}/{method}") == of_the_model
            for model in MODELS:
                assert differing(f"{model}/math/{method}", f"{model}/medqa/{method}") == OF_THE_DATASET | {
                    "output_dir"
                }


def test_a_tree_has_as_many_leaves_as_a_group_and_lies_on_one_rank(subtests, args_of):
    for name in [name for name in PAPER if "/trees/" in name]:
        with subtests.test(name):
            args, method = args_of(name), parts(name)[2]
            assert tree_kind(args) == {"tempo": "fixed", "treerpo": "fixed", "treerpo_entropy": "entropy"}.get(method)
            assert args.per_device_train_batch_size * args.steps_per_generation % args.num_generations == 0
            if tree_kind(args) == "fixed":
                assert args.tree_children**args.tree_depth == args.num_generations
                assert args.tree_depth * args.tree_step_tokens >= args.max_completion_length


def test_the_entropy_tree_is_its_text_s(args_of):
    args = args_of("qwen3-1.7b/math/trees/treerpo_entropy")
    assert (args.tree_max_depth, args.tree_min_segment_tokens, args.tree_entropy_threshold) == (7, 150, 1.0)
    assert (args.temperature, args.top_p, args.top_k, args.repetition_penalty) == (0.6, 0.85, 25, 1.1)
    assert not args.vllm_importance_sampling_correction


def test_actor_and_critic_fit_one_device_only_with_adam_in_main_memory(tmp_path, capsys):
    on_one = "--num_processes 1 --gradient_accumulation_steps 24 --steps_per_generation 120"
    engines = {
        "zero2": "",
        "ddp": "--accelerate_config ddp --num_processes 2",
        "one device": f"--accelerate_config zero2 {on_one} --offload_optimizer_device cpu",
    }
    takes = {name: estimate_of(PPO, flags.split(), tmp_path, capsys) for name, flags in engines.items()}
    assert takes == {"zero2": 54.3, "ddp": 80.1, "one device": 43.1}
    assert takes["ddp"] > 80e9 / GIB
    assert re.search("54\\.3 GiB.*80\\.1.*43\\.1", README, re.DOTALL)
