"""What is refused or warned about before a step is spent."""

import math
import warnings

import pytest
from trl import GRPOConfig

from tempo_trl import TEMPOConfig, TEMPOTrainer

from .recording import config, parity, questions


def test_a_grpo_config_is_refused_with_what_to_change(tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"must be a TEMPOConfig, got GRPOConfig.*change the name"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, GRPOConfig), questions())


@pytest.mark.parametrize("td_coef", [-0.5, math.nan, math.inf])
def test_a_coefficient_that_is_no_weight_is_refused(td_coef, tmp_path):
    with pytest.raises(ValueError, match=r"`td_coef` must be a finite number of at least 0, got"):
        config(tmp_path, td_coef=td_coef)


def test_the_config_is_grpos_but_for_the_upper_clip(tmp_path):
    ours, stock = (
        TEMPOConfig(str(tmp_path), use_cpu=True, bf16=False),
        GRPOConfig(str(tmp_path), use_cpu=True, bf16=False),
    )
    ours, stock = ours.to_dict(), stock.to_dict()
    assert {key for key in stock if ours[key] != stock[key] and key != "logging_dir"} == {"epsilon_high"}
    assert ours.keys() - stock.keys() == {"td_coef"}


def test_every_field_is_documented_twice():
    for name in ("td_coef", "epsilon_high"):
        assert f"{name} (`float`" in TEMPOConfig.__doc__
        assert TEMPOConfig.__dataclass_fields__[name].metadata["help"]


@pytest.mark.parametrize(
    "sampling", [{"top_k": 1}, {"generation_kwargs": {"do_sample": False}}, {"generation_kwargs": {"top_k": 1}}]
)
def test_greedy_sampling_warns(sampling, tiny_model, tmp_path):
    with pytest.warns(UserWarning, match="Sampling is greedy"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **sampling), questions())


SAVING = {"save_strategy": "steps", "gradient_accumulation_steps": 2, "steps_per_generation": 8, "num_iterations": 1}


@pytest.mark.parametrize("save_steps", [1, 3, 6])
def test_saving_between_generations_warns_with_the_arithmetic(save_steps, tiny_model, tmp_path):
    with pytest.warns(UserWarning, match=r"save_steps \* gradient_accumulation_steps a multiple of .* = 8"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path, save_steps=save_steps, **SAVING), questions())


@pytest.mark.parametrize(
    "saving", [SAVING | {"save_steps": 8}, SAVING | {"save_strategy": "epoch", "save_steps": 3}, {}]
)
def test_aligned_saving_and_sampling_do_not_warn(saving, tiny_model, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        TEMPOTrainer(tiny_model, parity, config(tmp_path, **saving), questions())
