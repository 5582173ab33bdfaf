"""What is refused or warned about before a step is spent, or at the first batch."""

import re
import warnings
from contextlib import nullcontext
from dataclasses import fields

import pytest
from transformers import GenerationConfig, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tempo_trl import GRPOLambdaTrainer, PPOTrainer, TEMPOTrainer, TokenCreditConfig
from tempo_trl.launch.arguments import class_of
from tempo_trl.methods import METHODS
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree_rollout import TreeRollout

from ..tiny import tiny_model_config, tiny_tokenizer
from .recording import RecordingBaseline, config, parity, questions, rolled_out, train


@pytest.mark.parametrize("cls", [TEMPOTrainer, GRPOLambdaTrainer, PPOTrainer])
def test_a_grpo_config_is_refused_with_what_to_change(cls, tiny_model, tmp_path):
    expected = cls._config_cls.__name__
    with pytest.raises(ValueError, match=f"must be a {expected}, got GRPOConfig.*Create a {expected}"):
        cls(tiny_model, parity, config(tmp_path, GRPOConfig), questions())


each_method = pytest.mark.parametrize("method", METHODS)
DIFFERENT = {
    "tempo": {"epsilon_high": 0.28},
    "prefix_baseline": {"epsilon_high": 0.28},
    "hepo": {"top_entropy_quantile": 0.2},
    "grpo_lambda": {"beta": 0.04, "use_bias_correction_kl": False, "advantage_floor": -0.1},
    "treerpo": {"vllm_importance_sampling_mode": "token_truncate"},
    "treerpo_entropy": {
        "temperature": 0.6,
        "top_p": 0.85,
        "top_k": 25,
        "repetition_penalty": 1.1,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_correction": False,
    },
    "ppo": {"beta": 1e-4, "num_iterations": 2},
}


@each_method
def test_a_configuration_is_grpos_but_for_what_the_paper_has_otherwise(method, tmp_path):
    ours, shared, stock = (
        cls(str(tmp_path), use_cpu=True, bf16=False).to_dict()
        for cls in (class_of(method, "Config"), TokenCreditConfig, GRPOConfig)
    )
    base = shared | stock
    changed = {key: ours[key] for key in base if ours[key] != base[key] and key != "logging_dir"}
    assert changed == DIFFERENT.get(method, {})


@each_method
def test_every_field_of_a_configuration_is_documented_and_has_a_help(method):
    config_cls = class_of(method, "Config")
    documented = " ".join(base.__doc__ for base in config_cls.__mro__ if base is not GRPOConfig and base.__doc__)
    for field in fields(config_cls):
        stock = GRPOConfig.__dataclass_fields__.get(field.name)
        if stock is None or (stock.default, stock.default_factory) != (field.default, field.default_factory):
            assert re.search(rf"\b{field.name}(, \w+)* \(`", documented), field.name
            assert field.metadata["help"], field.name


def repeats_itself(prompts, trainer):
    """Two completions for the prompts of the first batch, one of them the other's beginning, and many later."""
    first = trainer.state.global_step == 0
    ids = [[30, 31][: 1 + i % 2] if first else [30 + i] for i in range(len(prompts))]
    return rolled_out(prompts, trainer, ids)


def test_a_first_batch_without_branches_is_told_whatever_sampled_it(tiny_model, tmp_path):
    def flat(completions, **columns):
        return [1.0] * len(completions)

    with pytest.warns(UserWarning, match="The first batch has no branch") as told:
        train(tiny_model, tmp_path, reward_funcs=flat, trainer={"rollout_func": repeats_itself})
    assert len([warning for warning in told if "no branch" in str(warning.message)]) == 1
    for rollout, reward in ((None, flat), (repeats_itself, parity)):  # branches; a value that differs after a prefix
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The first batch")
            train(tiny_model, tmp_path, reward_funcs=reward, max_steps=1, trainer={"rollout_func": rollout})


def test_the_prefix_baseline_adds_nothing_to_a_first_batch_and_is_told_so(tiny_model, tmp_path):
    with pytest.warns(UserWarning, match="The first batch has no branch"):
        options = {"cls": RecordingBaseline, "trainer": {"rollout_func": repeats_itself}, "max_steps": 1}
        trainer = train(tiny_model, tmp_path, reward_funcs=parity, **options)
    assert trainer.state.log_history[0]["tempo/added_share"] == 0


def without_end(**tokens):
    """Model and tokenizer without an end-of-sequence token."""
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    tokenizer.pad_token = tokens.get("pad", "<|endoftext|>")
    model = Qwen3ForCausalLM(tiny_model_config(len(tokenizer)))
    model.generation_config = GenerationConfig(eos_token_id=None)
    return model, tokenizer


@pytest.mark.parametrize(
    ("tokens", "rollout"),
    [
        ({}, None),
        ({"pad": None}, None),
        ({}, TreeRollout(FixedTree(2, 2, 6))),
    ],
)
def test_a_tokenizer_without_an_end_is_refused_where_trl_would_fail_at_the_first_batch(tokens, rollout, tmp_path):
    model, tokenizer = without_end(**tokens)
    keywords = {"processing_class": tokenizer, "rollout_func": rollout}
    with pytest.raises(ValueError, match=r"must have an end-of-sequence token, got eos_token=None.*Set `eos_token`"):
        TEMPOTrainer(model, parity, config(tmp_path), questions(), **keywords)
    with pytest.raises(TypeError):
        GRPOTrainer(model, parity, config(tmp_path, GRPOConfig), questions(), **keywords).train()


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({}, "Grow trees"),
        ({"rollout": "fixed", "tree_depth": 2, "eval_strategy": "steps", "eval_steps": 1}, "Set eval_strategy='no'"),
    ],
)
def test_stop_strings_are_refused_where_trl_would_fail_at_the_first_batch(options, instead, tiny_model, tmp_path):
    options = {"generation_kwargs": {"stop_strings": ["END"]}} | options
    with pytest.raises(ValueError, match=rf"stop_strings=\['END'\], which TRL cannot find.* {instead}"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **options), questions(), eval_dataset=questions(4))


def test_stop_strings_are_not_refused_where_they_are_found(tiny_model, tmp_path):
    options = {"generation_kwargs": {"stop_strings": ["END"]}, "max_steps": 1}
    train(tiny_model, tmp_path, rollout="fixed", tree_depth=2, **options)
    train(tiny_model, tmp_path, trainer={"rollout_func": repeats_itself}, **options)


@pytest.mark.parametrize("method", METHODS)
def test_grown_trees_are_refused_by_methods_that_do_not_read_them(method, tmp_path):
    reads = method in ("tempo", "prefix_baseline", "treerpo", "treerpo_entropy", "grpo", "hepo", "token_credit")
    cls, given = class_of(method, "Trainer"), {"credit_func": len} if method == "token_credit" else {}
    given |= {"span_reward_funcs": [len]} if method == "span_credit" else {}
    with nullcontext() if reads else pytest.raises(ValueError, match=r"grows trees, which \w+ does not read"):
        cls.check_functions(None, rollout_func=TreeRollout(FixedTree(2, 2, 6)), **given)


class StopsWithinAStep(TrainerCallback):
    def on_substep_end(self, args, state, control, **kwargs):
        control.should_training_stop = True


def test_a_run_that_a_callback_stops_before_its_first_step_ends_as_trls(tiny_model, tmp_path):
    options = {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 2}
    trainer = train(tiny_model, tmp_path, **options, trainer={"callbacks": [StopsWithinAStep()]})
    assert trainer.state.global_step == 0
