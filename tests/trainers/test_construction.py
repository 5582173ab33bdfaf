"""What is refused or warned about before a step is spent, or at the first batch."""

import re
import warnings
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import BloomConfig, GenerationConfig, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tempo_trl import (
    GRPOLambdaConfig,
    GRPOLambdaTrainer,
    PPOConfig,
    PPOTrainer,
    TEMPOConfig,
    TEMPOTrainer,
    TokenCreditConfig,
    TreeRPOConfig,
    TreeRPOEntropyConfig,
)
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.trainers import checks, settings

from ..tiny import tiny_model_config, tiny_tokenizer
from .recording import config, parity, questions, rolled_out, train


@pytest.mark.parametrize("cls", [TEMPOTrainer, GRPOLambdaTrainer, PPOTrainer])
def test_a_grpo_config_is_refused_with_what_to_change(cls, tiny_model, tmp_path):
    expected = cls._config_cls.__name__
    with pytest.raises(ValueError, match=f"must be a {expected}, got GRPOConfig.*Create a {expected}"):
        cls(tiny_model, parity, config(tmp_path, GRPOConfig), questions())


DIFFERENT = {
    TEMPOConfig: {"epsilon_high": 0.28},
    GRPOLambdaConfig: {"beta": 0.04, "use_bias_correction_kl": False, "advantage_floor": -0.1},
    PPOConfig: {"beta": 1e-4, "num_iterations": 2},
}


@pytest.mark.parametrize("config_cls", DIFFERENT)
def test_a_configuration_is_grpos_but_for_what_the_paper_has_otherwise(config_cls, tmp_path):
    ours, shared, stock = (
        cls(str(tmp_path), use_cpu=True, bf16=False).to_dict() for cls in (config_cls, TokenCreditConfig, GRPOConfig)
    )
    base = shared | stock
    changed = {key: ours[key] for key in base if ours[key] != base[key] and key != "logging_dir"}
    assert changed == DIFFERENT[config_cls]


@pytest.mark.parametrize("config_cls", [TEMPOConfig, TreeRPOConfig, TreeRPOEntropyConfig, GRPOLambdaConfig, PPOConfig])
def test_every_field_of_a_configuration_is_documented_and_has_a_help(config_cls):
    documented = " ".join(base.__doc__ for base in config_cls.__mro__ if base is not GRPOConfig and base.__doc__)
    for field in fields(config_cls):
        stock = GRPOConfig.__dataclass_fields__.get(field.name)
        if stock is None or (stock.default, stock.default_factory) != (field.default, field.default_factory):
            assert re.search(rf"\b{field.name}(, \w+)* \(`", documented), field.name
            assert field.metadata["help"], field.name


SAVING = {"save_strategy": "steps", "gradient_accumulation_steps": 2, "steps_per_generation": 8, "num_iterations": 1}


NEARLY = r"Sampling is nearly greedy \({}\).*nothing can be learned from comparing them"
ALIGNED = r"save_steps \* gradient_accumulation_steps a multiple of .* = 8"
WARNED = [
    ({"top_k": 1}, "Sampling is greedy"),
    ({"generation_kwargs": {"do_sample": False}}, "Sampling is greedy"),
    ({"temperature": 0.1}, NEARLY.format("temperature=0.1")),
    ({"top_p": 0.05}, NEARLY.format("top_p=0.05")),
    ({"generation_kwargs": {"min_p": 0.95}}, NEARLY.format("min_p=0.95")),
    *((SAVING | {"save_steps": steps}, ALIGNED) for steps in (1, 6)),
]


@pytest.mark.parametrize(("options", "message"), WARNED)
def test_sampling_that_is_greedy_and_saving_between_generations_warn_with_the_setting(
    options, message, tiny_model, tmp_path
):
    with pytest.warns(UserWarning, match=message):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **options), questions())


@pytest.mark.parametrize(
    "saving",
    [
        SAVING | {"save_steps": 8},
        SAVING | {"save_strategy": "epoch", "save_steps": 3},
        {"temperature": 0.6, "top_p": 0.9, "min_p": 0.05, "top_k": 20},
        {"top_k": 1, "generation_kwargs": {"top_k": 20}},  # which overrides it
        {},
    ],
)
def test_aligned_saving_and_sampling_do_not_warn(saving, tiny_model, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **saving), questions())


def test_other_ranks_leave_the_warning_to_the_main_one(tmp_path, monkeypatch):
    args = config(tmp_path, top_k=1)
    monkeypatch.setattr(type(args), "process_index", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        settings.check_settings(args)


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


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_generations", 0, "at least 2"),
        ("max_completion_length", 0, "at least 1"),
        ("temperature", 0.0, "above 0"),
    ],
)
def test_numbers_that_no_run_can_have_are_refused(name, value, expected, tiny_model, tmp_path):
    with pytest.raises(ValueError, match=f"`{name}` must be {expected}, got {value}"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **{name: value}), questions())


def without_end(**tokens):
    """Model and tokenizer without an end-of-sequence token."""
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    tokenizer.pad_token = tokens.get("pad", "<|endoftext|>")
    model = Qwen3ForCausalLM(tiny_model_config(len(tokenizer)))
    model.generation_config = GenerationConfig(eos_token_id=tokens.get("model"))
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
    [({}, "Grow trees"), ({"rollout": "fixed", "eval_strategy": "steps", "eval_steps": 1}, "Set eval_strategy='no'")],
)
def test_stop_strings_are_refused_where_trl_would_fail_at_the_first_batch(options, instead, tiny_model, tmp_path):
    options = {"generation_kwargs": {"stop_strings": ["END"]}, "tree_depth": 2} | options
    with pytest.raises(ValueError, match=rf"stop_strings=\['END'\], which TRL cannot find.* {instead}"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **options), questions(), eval_dataset=questions(4))


def test_stop_strings_are_not_refused_where_they_are_found(tiny_model, tmp_path):
    options = {"generation_kwargs": {"stop_strings": ["END"]}, "max_steps": 1}
    train(tiny_model, tmp_path, rollout="fixed", tree_depth=2, **options)
    train(tiny_model, tmp_path, trainer={"rollout_func": repeats_itself}, **options)


def test_a_rollout_may_end_its_completions_itself_and_is_told_what_counts_as_truncated(tmp_path):
    model, tokenizer = without_end()
    keywords = {"processing_class": tokenizer, "rollout_func": repeats_itself}
    with pytest.warns(UserWarning, match="Neither the tokenizer nor the generation config has an end-of-sequence"):
        trainer = train(model, tmp_path, trainer=keywords)
    assert trainer.state.log_history[0]["completions/clipped_ratio"] == 1


def long_prompts(iterable: bool):
    dataset = Dataset.from_dict({"prompt": ["Two?", "Four?", "Eight?", "What is one and two and four?"] * 2})
    return dataset.to_iterable_dataset() if iterable else dataset


def of_context(tokens: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(tiny_model_config(len(tiny_tokenizer()), max_position_embeddings=tokens))


@pytest.mark.parametrize("iterable", [False, True])
def test_a_prompt_longer_than_the_context_leaves_room_for_is_told_once_and_training_goes_on(
    iterable, tmp_path, said_once
):
    options = {"dataset": long_prompts(iterable), "shuffle_dataset": False}
    tokens = {"processing_class": tiny_tokenizer()}
    train(of_context(41), tmp_path, max_steps=4, trainer=dict(tokens), **options)
    assert not said_once("A prompt is longer than")
    trainer = train(of_context(40), tmp_path, max_steps=4, trainer=tokens, **options)
    (message,) = said_once("A prompt is longer than")
    assert re.search(r"longer than the 28 tokens .*Drop longer prompts", message)
    assert trainer.state.global_step == 4


def test_a_completion_as_long_as_the_context_is_told_at_construction(tmp_path):
    with pytest.warns(UserWarning, match=r"max_completion_length=12 leaves no room .* context of 12 tokens"):
        TEMPOTrainer(of_context(12), parity, config(tmp_path), questions(), processing_class=tiny_tokenizer())


def test_the_context_is_that_of_colocated_vllm_where_it_has_one(tmp_path):
    trainer = SimpleNamespace(model=of_context(40))
    vllm = {"use_vllm": True, "vllm_max_model_length": 32}
    for more, room in (({"vllm_mode": "colocate"}, 20), ({"vllm_mode": "server"}, 28), ({"use_vllm": False}, 28)):
        trainer.args = config(tmp_path, **(vllm | more))
        assert checks.room_for_prompts(trainer) == room
    trainer.model = SimpleNamespace(config=BloomConfig())  # which has no limit
    assert checks.room_for_prompts(trainer) is None


HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("use_vllm", "dtype", "warned"), [(True, HALF, True), (True, FULL, False), (False, HALF, False)]
)
def test_adapters_that_vllm_would_merge_into_half_precision_weights_are_told(use_vllm, dtype, warned, recwarn):
    plain = Qwen3ForCausalLM(tiny_model_config(32)).to(dtype)
    adapted = get_peft_model(plain, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    checks.warn_of_merging_into_half_precision(SimpleNamespace(use_vllm=use_vllm, model=adapted))
    assert any("dtype: float32" in str(warning.message) for warning in recwarn) == warned
