"""`--check` of grown trees and of PPO: what their own checks and trainers would refuse once the run has started."""

import pytest

from tempo_trl.launch.plan import ALL

from .test_check import checked, line_of, nothing_is_started_or_loaded  # noqa: F401 (a fixture that runs by itself)

TREES = "--config qwen3-1.7b/math/trees/"
PPO = "--config qwen3-1.7b/math/two_gpus/ppo"
BY_COMPLETION = (
    "treerpo_entropy --vllm_importance_sampling_correction true --vllm_importance_sampling_mode sequence_mask "
    "--count_shared_tokens per_leaf"
)
CUT = "Over hundreds of tokens that ratio is nearly 0"


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        ("treerpo --num_generations 16", ["2 ** 3 = 8, got 16", "Change one of the three"]),
        ("tempo --num_generations 4", ["tree_children ** tree_depth = 2 ** 3 = 8, got 4"]),
        ("tempo --vllm_mode colocate", ["got vllm_mode='colocate'. Set vllm_mode='server'"]),
        ("tempo --vllm_mode colocate --rollout entropy", ["got vllm_mode='colocate'. Set vllm_mode='server'"]),
        ("treerpo_entropy --vllm_mode colocate", ["got vllm_mode='colocate'. Set vllm_mode='server'"]),
        ("treerpo_entropy --tree_coverage_tokens 100", ["must be at least tree_min_segment_tokens = 150"]),
        ("treerpo --vllm_structured_outputs_regex a+", ["Unset `vllm_structured_outputs_regex`"]),
        ("treerpo --use_transformers_continuous_batching true --use_vllm false", ["Continuous batching keeps no"]),
        (
            "treerpo --num_processes 2 --per_device_train_batch_size 6 --steps_per_generation 5 "
            "--gradient_accumulation_steps 5 --tree_depth 2 --num_generations 4",
            ["6 * 5 = 30 is not a multiple of 4", "A `steps_per_generation` of 10 works"],
        ),
        (
            "treerpo --num_processes 2 --per_device_train_batch_size 4 --steps_per_generation 3 "
            "--gradient_accumulation_steps 2",
            ["4 * 3 = 12 is not a multiple of 8", "A `steps_per_generation` of 4 works"],
        ),
    ],
)
def test_trees_that_cannot_grow_are_refused_with_what_to_change(flags, messages, capsys):
    error = checked(f"{TREES}{flags}", capsys, status=2)
    assert all(message in error for message in messages), error


@pytest.mark.parametrize(
    "flags",
    [
        "grpo --vllm_mode colocate --num_generations 4",
        "tempo --vllm_mode colocate --num_generations 4 --rollout iid",
        "treerpo --use_vllm false",
        "treerpo --num_processes 2 --per_device_train_batch_size 4 --steps_per_generation 4 "
        "--gradient_accumulation_steps 2",
    ],
)
def test_completions_that_are_no_trees_or_trees_that_can_grow_pass(flags, tiny_model, capsys):
    checked(f"{TREES}{flags} --model_name_or_path {tiny_model}", capsys)


@pytest.mark.parametrize(
    ("flags", "trees"),
    [
        ("treerpo", "2 ** 3 = 8 completions, segments of at most 342 tokens, completions of at most 1,024"),
        (
            "tempo --tree_step_tokens 100",
            "2 ** 3 = 8 completions, segments of at most 100 tokens, completions of at most 300",
        ),
        ("tempo --rollout entropy", "at most 8 leaves, 7 segments deep, only segments of at least 150 tokens split"),
        ("treerpo_entropy", "at most 8 leaves, 7 segments deep, only segments of at least 150 tokens split"),
    ],
)
def test_the_shape_of_a_tree_is_shown(flags, trees, tiny_model, capsys):
    output = checked(f"{TREES}{flags} --model_name_or_path {tiny_model}", capsys)
    assert line_of(output, "trees") == trees
    assert line_of(output, "groups") == "each on one device"


@pytest.mark.parametrize("name", ["sums/tempo", "sums/ppo", "qwen3-1.7b/math/tempo", "qwen3-1.7b/math/trees/grpo"])
def test_independent_completions_have_no_tree_to_show(name, tiny_model, capsys):
    assert "\ntrees " not in checked(f"--config {name} --model_name_or_path {tiny_model}", capsys)


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        ("treerpo_entropy", False),
        ("treerpo_entropy --vllm_importance_sampling_correction true", False),  # by token, as both TreeRPOs have it
        (BY_COMPLETION, True),
        (f"{BY_COMPLETION} --use_vllm false", False),
        ("grpo", False),
        ("grpo --temperature 0.6", False),  # TRL's loss has the temperature, too
        ("grpo --top_p 0.9", True),
        ("grpo --top_k 20", True),
        ("grpo --min_p 0.1", True),
        ("grpo --repetition_penalty 1.1", True),
    ],
)
def test_a_correction_that_would_leave_nothing_to_train_on_is_told(flags, warned, tiny_model, capsys):
    output = checked(f"{TREES}{flags} --model_name_or_path {tiny_model}", capsys)
    assert (CUT in " ".join(output.split())) == warned


@pytest.mark.parametrize("engine", ["zero3", "zero3_offload", "fsdp2", "fsdp1"])
@pytest.mark.parametrize("trunk", ["true", "false"])
def test_engines_that_split_the_weights_are_refused_for_ppo(engine, trunk, capsys):
    error = checked(f"{PPO} --accelerate_config {engine} --shared_trunk {trunk}", capsys, status=2)
    assert "every rank needs the whole critic" in error
    assert "`--accelerate_config zero2`" in error


@pytest.mark.parametrize("engine", ["zero1", "zero2", "ddp", "single_gpu"])
def test_the_critic_is_in_the_estimate(engine, tiny_model, capsys):
    output = checked(f"{PPO} --accelerate_config {engine} --model_name_or_path {tiny_model}", capsys)
    assert [line_of(output, f"critic's {part}").split("  ")[-1][:4] for part in ALL] == ["4 B ", "4 B ", "8 B "]
    shared = checked(
        f"{PPO} --accelerate_config {engine} --model_name_or_path {tiny_model} --shared_trunk true", capsys
    )
    assert "\ncritic's " not in shared
