"""The recipes of the TEMPO paper (https://huggingface.co/papers/2509.18314): its values, the arithmetic, the sources.

`model/dataset/method` is a cell of Table 1 on one GPU, `model/dataset/variant/method` the same run but for what the
variant is about.
"""

import re
from typing import NamedTuple

import pytest

from tempo_trl.launch.arguments import RunArguments
from tempo_trl.launch.check import grows_trees
from tempo_trl.runs.recipes import recipe_path, recipes_folder

from .test_recipes import PAPER, RECOMMENDED, arguments_on, devices_of, differing, of_the_method

MODELS = {"qwen3-1.7b": "Qwen/Qwen3-1.7B", "qwen3-4b": "Qwen/Qwen3-4B"}
COLUMNS = {"math": "MATH", "medqa": "MedQA"}
TABLE_1 = {  # the base model, then each method
    "qwen3-1.7b/math": {"base": "68.5", "ppo": "81.6", "grpo": "82.4", "hepo": "81.7", "tempo": "87.0"},
    "qwen3-1.7b/medqa": {"base": "46.11", "grpo": "56.24", "hepo": "54.28", "tempo": "59.15"},
    "qwen3-4b/math": {"base": "71.3", "grpo": "87.6", "hepo": "88.2", "tempo": "91.0"},
    "qwen3-4b/medqa": {"base": "65.36", "grpo": "76.12", "hepo": "74.31", "tempo": "79.18"},
}
ALL, TWO = ("grpo", "hepo", "tempo"), ("grpo", "tempo")
TREES = ("grpo", "tempo", "treerpo", "treerpo_entropy")
# Methods that the paper does not have, and why.
ABSENT = dict.fromkeys(("grpo_lambda", "treerpo", "treerpo_entropy"), "the paper does not have this method")
ABSENT["prefix_baseline"] = "the method is ours"
GROUPS = {f"group_{size}": size for size in (3, 5, 7, 9)}  # Figure 5
COMPLETIONS = {**GROUPS, "trees": 8}  # of a prompt, where they are not the paper's 6
GRID = {
    "qwen3-1.7b/math": {
        "": (*ALL, "grpo_lambda", "prefix_baseline"),
        "two_gpus": (*TWO, "ppo"),
        "eight_gpus": TWO,
        "lora": TWO,
        "trees": TREES,
        **dict.fromkeys(GROUPS, TWO),
    },
    "qwen3-1.7b/medqa": {"": ALL, "lora": TWO, "authors-code": ("tempo",)},
    "qwen3-4b/math": {"": ALL, "two_gpus": ALL, "eight_gpus": TWO},
    "qwen3-4b/medqa": {"": ALL, "two_gpus": ALL},
}
# What a variant may differ in from the plain recipe of its cell, the output folder aside.
BATCHES = {"per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"}
SHAPE = {*BATCHES, "vllm_mode", "vllm_gpu_memory_utilization", "vllm_enable_sleep_mode", "vllm_server_host"}
LORA = {"use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "learning_rate", "save_total_limit"}
OF_THE_VARIANT = {
    "": set(),
    "two_gpus": SHAPE,
    "eight_gpus": SHAPE,
    "lora": BATCHES | LORA | {"vllm_gpu_memory_utilization"},
    "trees": BATCHES | SHAPE | {"num_generations"},
    **dict.fromkeys(GROUPS, BATCHES | {"num_generations"}),
}
OF_THE_DATASET = {"task", "reward_funcs", "steps_per_generation", "logging_steps", "save_steps"}
AUTHORS = "qwen3-1.7b/medqa/authors-code/tempo"
PPO = "qwen3-1.7b/math/two_gpus/ppo"
README = (recipes_folder() / "README.md").read_text()
PLAIN = [name for name in PAPER if name != AUTHORS]
TRAIN_PROMPTS = {"math": 7500, "medqa": 10_178}  # rows of the Hub's train splits


class Run(NamedTuple):
    """A recipe on the devices of its header's command; `prompts` are those of an epoch."""

    name: str
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

    @property
    def episodes(self) -> int:
        """Completions of a question, as the paper counts them: an epoch leaves out what fills no generation."""
        return round(self.args.num_generations * self.args.num_train_epochs)


def parts(name: str) -> tuple[str, str, str]:
    """`qwen3-4b/math/two_gpus/tempo` as `qwen3-4b/math`, `two_gpus`, `tempo`; a plain recipe has no variant."""
    model, dataset, *variant, method = name.split("/")
    return f"{model}/{dataset}", "".join(variant), method


def text_of(name: str) -> str:
    return recipe_path(name).read_text()


def header_of(name: str) -> str:
    """The recipe's first comment, on one line."""
    return text_of(name).split("\n\n")[0].replace("\n#", "")


@pytest.fixture
def run_of():
    def run_of(name: str) -> Run:
        devices = devices_of(name)
        arguments = arguments_on(devices, ["--config", name])
        prompts = 1000 if name == AUTHORS else TRAIN_PROMPTS[arguments.script.task]
        return Run(name, arguments, devices, prompts)

    return run_of


@pytest.fixture
def args_of(run_of):
    """The method's config of a recipe, on the devices of its header's command."""
    return lambda name: run_of(name).args


def test_the_grid_holds_what_the_paper_has_and_no_more():
    names = [
        "/".join(filter(None, (cell, variant, method)))
        for cell, variants in GRID.items()
        for variant, methods in variants.items()
        for method in methods
    ]
    assert sorted(names) == PAPER


def test_the_values_are_those_of_table_2(subtests, run_of):
    for name in PLAIN:
        with subtests.test(name):
            run, (cell, variant, method) = run_of(name), parts(name)
            model, dataset = cell.split("/")
            script_args, args, model_args, _ = run.arguments
            assert model_args.model_name_or_path == MODELS[model]
            assert (script_args.task, script_args.reward_funcs) == {
                "math": ("math", ["math_reward"]),
                "medqa": ("medqa", ["choice_reward"]),
            }[dataset]
            assert (args.optim.startswith("adamw"), args.adam_beta1, args.adam_beta2) == (True, 0.9, 0.999)
            assert (args.weight_decay, args.warmup_steps, args.max_completion_length) == (0.0, 0, 1024)
            of_ppo = method == "ppo"
            assert (args.beta, args.num_iterations) == ((1e-4, 2) if of_ppo else (0.0, 1))
            assert (args.epsilon, args.epsilon_high, args.loss_type) == (0.2, 0.2 if of_ppo else 0.28, "dapo")
            assert args.learning_rate == (1e-5 if variant == "lora" else 1e-6)
            assert args.num_generations == COMPLETIONS.get(variant, 6)
            assert run.update == 64 * args.num_generations
            assert args.generation_batch_size == {"math": 5, "medqa": 4}[dataset] * run.update
            assert args.num_train_epochs == 10  # with 6 completions 60 episodes per question
            assert args.chat_template_kwargs == {"enable_thinking": False}


def test_the_steps_are_about_the_paper_s(subtests, run_of):
    for name in PLAIN:
        with subtests.test(name):
            run = run_of(name)
            # MATH: 10 x floor(7,500 / 320) = 230 for 220. MedQA: 10 x floor(10,178 / 256) = 390 for 420.
            assert run.generations == (230 if run.arguments.script.task == "math" else 390)
            assert run.args.save_steps * 10 == run.updates
            assert run.args.logging_steps * run.generations == run.updates


def test_a_variant_differs_from_the_plain_recipe_in_what_it_is_about(subtests):
    for name in PLAIN:
        with subtests.test(name):
            cell, variant, method = parts(name)
            if f"{cell}/{method}" in PAPER and variant != "trees":
                assert differing(name, f"{cell}/{method}") - {"output_dir"} <= OF_THE_VARIANT[variant]
            else:
                assert differing(name, f"{cell}/grpo") - of_the_method(name) <= OF_THE_VARIANT[variant]


def test_the_arithmetic_in_a_recipe_s_comment_is_that_of_its_values(subtests, run_of):
    for name in PAPER:
        with subtests.test(name):
            run, text = run_of(name), text_of(name).replace("\n#", "")
            products = r"(\d+) prompts x (\d+) completions = (\d+) devices? x (\d+) x (\d+)"
            update, generation = (tuple(map(int, numbers)) for numbers in re.findall(products, text))
            size = run.args.num_generations
            per_device = size, run.devices, run.args.per_device_train_batch_size
            assert update == (run.update // size, *per_device, run.args.gradient_accumulation_steps)
            assert generation == (run.args.generation_batch_size // size, *per_device, run.args.steps_per_generation)
            assert f"A generation serves {run.updates // run.generations} updates" in text
            an_epoch = run.generations // run.args.num_train_epochs
            assert re.search(rf"; {an_epoch:g} generations? per epoch, {run.generations} in all", text)


def test_a_header_tells_the_steps_and_the_hours(subtests, run_of):
    for name in PAPER:
        with subtests.test(name):
            run, header = run_of(name), header_of(name)
            completions = run.generations * run.args.generation_batch_size  # for 1,000 questions, 512 of them an epoch
            episodes = f"about {completions / run.prompts:.0f}" if name == AUTHORS else run.episodes
            assert ("80 episodes per question, where the paper has 60." in header) == (parts(name)[1] == "trees")
            steps = f"Steps: {run.generations} generations, {run.updates:,} updates; {episodes} episodes per question"
            assert steps in header
            assert (f"{steps} (Appendix A.3)." in header) == (run.episodes == 60)
            assert re.search(r"Time: estimated \d+ to \d+ hours; not run here\. ", header)


def test_a_header_names_what_the_recipe_is_after(subtests):
    for name in PLAIN:
        with subtests.test(name):
            cell, variant, method = parts(name)
            model, dataset = cell.split("/")
            compared = "grpo" if method in ABSENT else method
            row = f"Table 1, row {MODELS[model].removeprefix('Qwen/')}, column {COLUMNS[dataset]}: {compared.upper()} "
            of_the_cell = f"{row}{TABLE_1[cell][compared]} (the base model has {TABLE_1[cell]['base']})."
            after = {"lora": f"Reproduces no table: the paper trains whole models. Compare with {of_the_cell}"}
            after |= {
                group: f"Reproduces Figure 5, group size {size}, {method.upper()}." for group, size in GROUPS.items()
            }
            independent = "samples independently, and 6" if method == "tempo" else "samples 6"
            after["trees"] = (
                f"Reproduces no table: the paper {independent} completions per prompt. Compare with {of_the_cell}"
            )
            if method in ABSENT:
                after = {variant: f"Reproduces no table: {ABSENT[method]}. Compare with {of_the_cell}"}
            assert after.get(variant, f"Reproduces {of_the_cell}") in header_of(name)


def test_the_paper_s_hardware_is_one_h100_for_the_small_model_and_two_for_the_large(subtests):
    for name in PAPER:
        with subtests.test(name):
            cell, variant, _ = parts(name)
            one = cell.startswith("qwen3-1.7b/") and variant in ("", *GROUPS)
            two = cell.startswith("qwen3-4b/") and variant == "two_gpus"
            ours = {True: "one H100 80 GB, as in the paper", False: "two H100 80 GB, as in the paper"}
            assert ("as in the paper (Appendix A.5)" in header_of(name)) == (one or two)
            assert not (one or two) or ours[one] in header_of(name)


def test_every_value_says_whose_it_is(subtests):
    for name in PAPER:
        with subtests.test(name):
            source = (
                "ours|medqa.py|train_med_tempo.sh|verl's default|Section"
                if name == AUTHORS
                else "ours|Table|Section|App"
            )
            values = re.findall(r"^(\w+):(.*)$", text_of(name), re.MULTILINE)
            silent = {key for key, rest in values if not re.search(f"# ({source})", rest)}
            assert silent <= {"method", "output_dir"} <= {key for key, _ in values}


def test_the_authors_code_s_values(run_of):
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


# Methods beside TEMPO and GRPO: the values of their own, and where they fit


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
            assert grows_trees(args) == (method != "grpo")
            assert args.per_device_train_batch_size * args.steps_per_generation % args.num_generations == 0
            if method in ("tempo", "treerpo"):
                assert args.tree_children**args.tree_depth == args.num_generations
                assert args.tree_depth * args.tree_step_tokens >= args.max_completion_length


def test_the_entropy_tree_is_its_text_s(args_of):
    args = args_of("qwen3-1.7b/math/trees/treerpo_entropy")
    assert (args.tree_max_depth, args.tree_min_segment_tokens, args.tree_entropy_threshold) == (7, 150, 1.0)
    assert (args.temperature, args.top_p, args.top_k, args.repetition_penalty) == (0.6, 0.85, 25, 1.1)
    assert not args.vllm_importance_sampling_correction
