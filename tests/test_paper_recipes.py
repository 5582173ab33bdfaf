"""The recipes of the TEMPO paper (https://huggingface.co/papers/2509.18314): its values, the arithmetic, the sources.

`model/dataset/method` is a cell of Table 1 on one GPU, `model/dataset/variant/method` the same run but for what the
variant is about.
"""

import re
from typing import NamedTuple

import pytest

from tempo_trl.launch.arguments import RunArguments
from tempo_trl.launch.check import grows_trees
from tempo_trl.runs.recipes import read_recipe, recipe_path, recipes_folder

from .test_recipes import (
    PAPER,
    RECOMMENDED,
    arguments_on,
    chain_of,
    devices_of,
    differing,
    header_of,
)

MODELS = {"qwen3-1.7b": "Qwen/Qwen3-1.7B", "qwen3-4b": "Qwen/Qwen3-4B"}
COLUMNS = {"math": "MATH", "medqa": "MedQA"}
ROWS = {"math": 7500, "medqa": 10_178}  # of the Hub's train splits
TABLE_1 = {  # the base model, then each method
    "qwen3-1.7b/math": {"base": "68.5", "ppo": "81.6", "grpo": "82.4", "hepo": "81.7", "tempo": "87.0"},
    "qwen3-1.7b/medqa": {"base": "46.11", "grpo": "56.24", "hepo": "54.28", "tempo": "59.15"},
    "qwen3-4b/math": {"base": "71.3", "grpo": "87.6", "hepo": "88.2", "tempo": "91.0"},
    "qwen3-4b/medqa": {"base": "65.36", "grpo": "76.12", "hepo": "74.31", "tempo": "79.18"},
}
# Methods that the paper does not have, and why.
ABSENT = dict.fromkeys(("grpo_lambda", "treerpo", "treerpo_entropy"), "the paper does not have this method")
ABSENT["prefix_baseline"] = "the method is ours"
AUTHORS = "qwen3-1.7b/medqa/authors-code/tempo"
PPO = "qwen3-1.7b/math/two_gpus/ppo"
PLAIN = [name for name in PAPER if name != AUTHORS]


class Run(NamedTuple):
    """A recipe on the devices of its header's command; `prompts` are those of an epoch."""

    arguments: RunArguments
    devices: int
    prompts: int

    @property
    def args(self):
        return self.arguments.training

    @property
    def update(self) -> int:
        """Completions of an optimizer step."""
        return self.devices * self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps

    @property
    def generations(self) -> int:
        an_epoch = self.prompts // (self.args.generation_batch_size // self.args.num_generations)
        return round(an_epoch * self.args.num_train_epochs)

    @property
    def updates(self) -> int:
        return self.generations * self.args.num_iterations * self.args.generation_batch_size // self.update


def run_of(name: str, *flags: str) -> Run:
    devices = devices_of(name)
    arguments = arguments_on(devices, ["--config", name, *flags])
    return Run(arguments, devices, 1000 if name == AUTHORS else ROWS[arguments.script.task])


def parts(name: str) -> tuple[str, str, str]:
    """`qwen3-4b/math/two_gpus/tempo` as `qwen3-4b/math`, `two_gpus`, `tempo`; a plain recipe has no variant."""
    model, dataset, *variant, method = name.split("/")
    return f"{model}/{dataset}", "".join(variant), method


def test_the_values_are_those_of_table_2(subtests):
    for name in PLAIN:
        with subtests.test(name):
            run, (cell, variant, method) = run_of(name), parts(name)
            model, dataset = cell.split("/")
            script_args, args, model_args, _ = run.arguments
            assert model_args.model_name_or_path == MODELS[model]
            assert script_args.task == dataset
            assert script_args.reward_funcs == {"math": ["math_reward"], "medqa": ["choice_reward"]}[dataset]
            assert (args.optim.startswith("adamw"), args.adam_beta1, args.adam_beta2) == (True, 0.9, 0.999)
            assert (args.weight_decay, args.warmup_steps, args.max_completion_length) == (0.0, 0, 1024)
            of_ppo = method == "ppo"
            assert (args.beta, args.num_iterations) == ((1e-4, 2) if of_ppo else (0.0, 1))
            assert (args.epsilon, args.epsilon_high, args.loss_type) == (0.2, 0.2 if of_ppo else 0.28, "dapo")
            assert args.learning_rate == (1e-5 if variant == "lora" else 1e-6)
            assert args.num_generations == (8 if variant == "trees" else 6)
            assert run.update == 64 * args.num_generations
            assert args.generation_batch_size == {"math": 5, "medqa": 4}[dataset] * run.update
            assert args.num_train_epochs == 10  # with 6 completions 60 episodes per question
            assert args.chat_template_kwargs == {"enable_thinking": False}
            # MATH: 10 x floor(7,500 / 320) = 230 for 220. MedQA: 10 x floor(10,178 / 256) = 390 for 420.
            assert run.generations == {"math": 230, "medqa": 390}[dataset]
            assert run.args.save_steps * 10 == run.updates
            assert run.args.logging_steps * run.generations == run.updates


def test_the_arithmetic_in_a_comment_is_that_of_the_values(subtests):
    for name in (*PAPER, RECOMMENDED):
        with subtests.test(name):
            run = run_of(name)
            texts = [recipe_path(file).read_text() for file in chain_of(name)]
            text = next(text for text in texts if "An update sees" in text).replace("\n#", "")
            products = r"(\d+) prompts x (\d+) completions = (\d+) devices? x (\d+) x (\d+)"
            update, generation = (tuple(map(int, numbers)) for numbers in re.findall(products, text))
            size = run.args.num_generations
            per_device = size, run.devices, run.args.per_device_train_batch_size
            assert update == (run.update // size, *per_device, run.args.gradient_accumulation_steps)
            assert generation == (run.args.generation_batch_size // size, *per_device, run.args.steps_per_generation)
            steps = run.args.generation_batch_size // run.update
            assert f"A generation serves {steps} updates" in text
            generations = run.args.max_steps // steps if name == RECOMMENDED else run.generations
            an_epoch = run.prompts // (run.args.generation_batch_size // size)
            assert re.search(rf"; {an_epoch} generations? per epoch, {generations} in all", text)


def test_a_header_names_hardware_hours_and_what_the_recipe_is_after(subtests):
    for name in PAPER:
        with subtests.test(name):
            cell, variant, method = parts(name)
            model, dataset = cell.split("/")
            header = header_of(name)
            hours = re.findall(r"Time: estimated \d+ to \d+ hours; not run here\.", header)
            assert "Hardware: " in header and len(hours) == (2 if name == PPO else 1)
            one = cell.startswith("qwen3-1.7b/") and variant == ""
            two = cell.startswith("qwen3-4b/") and variant == "two_gpus"
            assert ("H100 80 GB, as in the paper (Appendix A.5)" in header) == (one or two)
            compared = "grpo" if method in ABSENT else method
            row = f"Table 1, row {MODELS[model].removeprefix('Qwen/')}, column {COLUMNS[dataset]}: {compared.upper()} "
            of_the_cell = f"{row}{TABLE_1[cell][compared]} (the base model has {TABLE_1[cell]['base']})."
            after = f"Settings of {of_the_cell}"
            if method in ABSENT or variant in ("lora", "trees"):
                after = of_the_cell
            if name != AUTHORS:
                assert after in header
            assert ("Settings of no table" in header) == (not after.startswith("Settings of") or name == AUTHORS)


def test_every_value_says_whose_it_is(subtests):
    for name in PAPER:
        with subtests.test(name):
            source = "ours|Table|Section|App|medqa.py|train_med_tempo.sh|verl's default"
            text = "\n".join(recipe_path(file).read_text() for file in chain_of(name))
            values = re.findall(r"^(\w+):(.*)$", text, re.MULTILINE)
            silent = {key for key, rest in values if not re.search(f"# ({source})", rest)}
            assert silent <= {"method", "output_dir", "extends"}


def test_the_authors_code_s_values():
    run = run_of(AUTHORS)
    script_args, args, *_ = run.arguments
    assert (script_args.task, script_args.dataset_train_split) == ("medqa_5options", "train[:1000]")
    assert (script_args.dataset_test_split, script_args.prompt_style) == ("test[:100]", "authors-code")
    assert (args.num_generations, args.max_completion_length, args.num_train_epochs) == (7, 8192, 15)
    assert (args.learning_rate, args.weight_decay, args.beta) == (1e-6, 0.01, 0.0)
    assert (args.epsilon, args.epsilon_high, args.delta, args.loss_type) == (0.2, 0.28, 3.0, "bnpo")
    assert args.chat_template_kwargs == {"enable_thinking": True}
    assert (run.update, args.generation_batch_size) == (64 * 7, 512 * 7)
    assert (run.generations, run.updates) == (15, 120)


def test_the_recommended_recipe_samples_as_many_tokens_as_its_method_s():
    own = {"num_generations", "max_steps", "output_dir"}
    assert differing(RECOMMENDED, "qwen3-1.7b/math/prefix_baseline") == own
    run = run_of(RECOMMENDED)
    assert run.args.generation_batch_size == 1920
    assert run.args.max_steps == run_of("qwen3-1.7b/math/grpo").updates == 1150
    assert f"{230 * 1920 / 7500:.0f} episodes per question" in header_of(RECOMMENDED)


def test_methods_beside_the_paper_s_have_the_values_of_their_own():
    args = run_of(PPO).args
    assert (args.gae_gamma, args.gae_lambda, args.whiten_advantages) == (1.0, 1.0, True)
    assert (args.critic_model_name_or_path, args.shared_trunk) == (None, False)  # "matched in size to the actor"
    assert (args.learning_rate, args.critic_learning_rate) == (1e-6, 1e-5)
    args = run_of("qwen3-1.7b/math/trees/treerpo_entropy").args
    assert (args.tree_max_depth, args.tree_min_segment_tokens, args.tree_entropy_threshold) == (7, 150, 1.0)
    assert (args.temperature, args.top_p, args.top_k, args.repetition_penalty) == (0.6, 0.85, 25, 1.1)
    assert not args.vllm_importance_sampling_correction


def test_a_tree_has_as_many_leaves_as_a_group_and_lies_on_one_rank(subtests):
    for name in [name for name in PAPER if "/trees/" in name]:
        with subtests.test(name):
            args, method = run_of(name).args, parts(name)[2]
            assert grows_trees(args) == (method != "grpo")
            assert args.per_device_train_batch_size * args.steps_per_generation % args.num_generations == 0
            if method in ("tempo", "treerpo"):
                assert args.tree_children**args.tree_depth == args.num_generations
                assert args.tree_depth * args.tree_step_tokens >= args.max_completion_length


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_the_flags_of_figure_5_keep_64_prompts_in_an_update(size):
    readme = (recipes_folder() / "README.md").read_text()
    flags = re.search(rf"^\| {size} \| `(.*?)` \|", readme, re.MULTILINE)[1].split()
    run = run_of("qwen3-1.7b/math/tempo", *flags)
    assert run.args.num_generations == size
    assert run.update == 64 * size
    assert (run.generations, run.updates) == (230, 1150)
    assert read_recipe(recipe_path("qwen3-1.7b/math/base"))["num_generations"] == "6"
