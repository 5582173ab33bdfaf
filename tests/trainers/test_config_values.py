"""Values that no run can train with are refused when the trainer is built, by a run's parser and by `--check`."""

import re

import pytest
from trl import GRPOConfig, rewards

from tempo_trl import TEMPOTrainer, TreeRPOConfig, TreeRPOEntropyConfig
from tempo_trl.launch import cli
from tempo_trl.launch.arguments import parse
from tempo_trl.rewards import math_reward
from tempo_trl.trainers.settings import CHOICES

from .recording import config, parity, questions, rolled_out, train

VALUES = {
    "loss_type": ("DAPO", "expected one of: grpo, dr_grpo, dapo"),
    "scale_rewards": ("std", "expected one of: group, batch, none"),
    "generation_kwargs": ({"num_return_sequences": 4}, "num_return_sequences=4, expected 1"),
    "mask_truncated_completions": (True, r"is True and `generation_kwargs` stops at \['END'\], expected one"),
    "temperature": (0.0, "must be above 0 and finite, got 0.0"),
    "num_generations": (1, "is 1, expected at least 2"),
    "per_device_train_batch_size": (0, "is 0, expected at least 1"),
    "num_iterations": (0, "is 0, expected at least 1"),
    "top_entropy_quantile": (-0.1, "is -0.1, expected between 0 and 1"),
    "epsilon": (-1.0, "is -1.0, expected at least 0"),
    "dataloader_num_workers": (-1, "is -1, expected at least 0"),
    "seed": (-1, "is -1, expected between 0 and 4294967295"),
    "learning_rate": (float("nan"), "is nan, expected a number"),
    "max_completion_length": (0, "is 0, expected at least 1"),
}


@pytest.mark.parametrize("name", VALUES)
def test_it_is_refused_before_the_model_is_loaded_and_by_the_parser(name, tmp_path, capsys):
    value, message = VALUES[name]
    stops = {"generation_kwargs": {"stop_strings": ["END"]}} if name == "mask_truncated_completions" else {}
    with pytest.raises(ValueError, match=f"`{name}` .*{message}"):
        TEMPOTrainer("nowhere/nothing", parity, config(tmp_path, **{name: value} | stops), questions())
    flag = [part for k, v in ({name: value} | stops).items() for part in (f"--{k}", str(v).replace("'", '"'))]
    for method in ("tempo", "grpo"):
        with pytest.raises(ValueError, match=f"`{name}` .*{message}"):
            parse(["--config", f"sums/{method}", *flag])
    assert cli.main(["train", "--check", "--config", "sums/grpo", *flag]) == 2
    assert re.search(message, capsys.readouterr().err)


NOT_READ = [  # and None where TRL has a meaning for it
    {"num_generations_eval": 0},
    {"ref_model_sync_steps": 0},
    {"max_completion_length": None},
    {"steps_per_generation": None, "generation_batch_size": None},
]


@pytest.mark.parametrize("options", NOT_READ)
def test_a_number_that_the_run_does_not_read_is_left_alone(options, tiny_model, tmp_path):
    def four(prompts, trainer):
        return rolled_out(prompts, trainer, [[5, 6 + i % 2] for i in range(len(prompts))])

    keywords = {"rollout_func": four} if "max_completion_length" in options else {}
    assert train(tiny_model, tmp_path, **options, max_steps=1, trainer=keywords).state.global_step == 1


def test_a_loss_that_divides_by_the_maximum_length_needs_one(tmp_path):
    args = config(tmp_path, max_completion_length=None, loss_type="dr_grpo")
    with pytest.raises(ValueError, match="`max_completion_length` is None, expected a number: dr_grpo's loss divides"):
        TEMPOTrainer("nowhere/nothing", parity, args, questions())


@pytest.mark.parametrize("name", ["per_device_train_batch_size", "steps_per_generation", "generation_batch_size"])
def test_a_batch_size_that_is_changed_later_does_not_leave_out_prompts(name, tmp_path):
    """TRL samples as many prompts as `generation_batch_size` says, and keeps what fits the two others."""
    args = config(tmp_path)
    setattr(args, name, 2 * getattr(args, name))
    with pytest.raises(ValueError, match=r"`generation_batch_size` is .*Build a new configuration"):
        TEMPOTrainer("nowhere/nothing", parity, args, questions())


def test_the_check_knows_trackers(capsys):
    assert cli.main(["train", "--check", "--config", "sums/tempo", "--report_to", "nothing_known"]) == 2
    assert "nothing_known is not supported" in capsys.readouterr().err


def test_the_choices_are_those_of_trl_and_no_name_is_left_out():
    text = {name: GRPOConfig.__dataclass_fields__[name].metadata["help"] for name in CHOICES}
    for name, choices in CHOICES.items():
        assert all(choice in text[name] for choice in choices), name
    listed = re.search(r"Supported values are (.*?)\.", text["loss_type"])[1]
    assert {*re.findall(r"'(\w+)'", listed)} == {*CHOICES["loss_type"]}


def test_the_check_imports_modules_of_the_current_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_own_rewards.py").write_text("def mine(completions, **columns): return [0.0] * len(completions)\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--check", "--config", "sums/tempo", "--reward_funcs", "my_own_rewards.mine"]) == 0
    assert "optimizer step" in capsys.readouterr().out


@pytest.mark.parametrize("function", [rewards.accuracy_reward, rewards.reasoning_accuracy_reward, math_reward])
def test_a_reward_without_its_package_is_refused_before_the_model_is_loaded(function, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trl.rewards.accuracy_rewards.is_math_verify_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"math.verify"):
        TEMPOTrainer("nowhere/nothing", [parity, function], config(tmp_path), questions())
    flags = f"--config sums/tempo --reward_funcs {function.__name__}"
    assert cli.main(["train", "--check", *flags.split()]) == 2
    assert re.search("math.verify", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["kl", "reward", "tempo/added_share", "rewards/parity/mean", "clip_ratio/low_mean"])
def test_a_metric_of_a_name_that_is_logged_anyway_is_refused(name, tiny_model, tmp_path):
    def logging_reward(completions, log_metric, **columns):
        log_metric(name, 1.0)
        return [0.0] * len(completions)

    with pytest.raises(ValueError, match=rf"log_metric\('{name}', ...\).*Choose another"):
        train(tiny_model, tmp_path, reward_funcs=logging_reward, max_steps=1)


def test_a_metric_of_another_name_in_a_family_of_the_trainers_is_taken(tiny_model, tmp_path):
    names = "completions/has_answer", "tools/timeouts", "rewards/length", "rollout/turns", "tempo/mine"

    def logging_reward(completions, log_metric, **columns):
        for name in names:
            log_metric(name, 2.0)
        return [0.0] * len(completions)

    trainer = train(tiny_model, tmp_path, reward_funcs=logging_reward, max_steps=1)
    assert [trainer.state.log_history[0][name] for name in names] == [2.0] * len(names)


def test_a_temperature_that_the_loss_does_not_know_is_refused(tiny_model, tmp_path):
    args = config(tmp_path, generation_kwargs={"temperature": 0.7})
    with pytest.raises(ValueError, match=r"temperature=0.7, expected 1.0: .* Set that instead"):
        TEMPOTrainer(tiny_model, parity, args, questions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree_depth": 2, "tree_children": 3}, "rollout='iid' does not read tree_children, tree_depth: .*'fixed'"),
        ({"rollout": "fixed", "tree_depth": 2, "forced_tokens": "mask"}, "'fixed' does not read forced_tokens: "),
    ],
)
def test_what_another_rollout_would_read_is_warned_of(options, message, tmp_path):
    with pytest.warns(UserWarning, match=message):
        config(tmp_path, **options)


def test_steps_that_a_method_would_not_read_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`step_delimiter` is '.n', but TEMPOTrainer has no steps"):
        TEMPOTrainer("nowhere/nothing", parity, config(tmp_path, step_delimiter="\n"), questions())


def test_every_field_of_a_tree_reaches_its_shape(tmp_path):
    fields = {"max_depth": 3, "min_segment_tokens": 5, "entropy_threshold": 0.7, "coverage_tokens": 9}
    fields |= {"delimiters": ["x"]}
    given = {f"tree_{name}": value for name, value in fields.items()}
    shape = config(tmp_path, TreeRPOEntropyConfig, **given).entropy_tree()
    assert {name: getattr(shape, name) for name in fields} == fields
    shape = config(tmp_path, TreeRPOConfig, tree_children=4, tree_depth=1, tree_step_tokens=5).fixed_tree()
    assert (shape.children, shape.depth, shape.step_tokens) == (4, 1, 5)


def test_an_entropy_tree_without_room_for_its_leaves_is_refused(tmp_path):
    options = {"tree_min_segment_tokens": 12, "tree_coverage_tokens": None}
    with pytest.raises(ValueError, match=r"`num_generations` is 4, .* at most 12 tokens, .* at most 2 leaves"):
        config(tmp_path, TreeRPOEntropyConfig, **options)
    config(tmp_path, TreeRPOEntropyConfig, **options | {"tree_min_segment_tokens": 11})
