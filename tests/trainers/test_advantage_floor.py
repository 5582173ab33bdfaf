"""A floor under advantages: it lifts what is below it, under any method, and changes nothing else."""

import pytest
import torch

from tempo_trl import GRPOLambdaTrainer, PlainGRPOTrainer, PrefixBaselineTrainer, TEMPOTrainer
from tempo_trl.credit.traces import trace_weights

from .recording import Recording, config, train

FLOOR = -0.1
METHODS = {
    "grpo": (PlainGRPOTrainer, {}),
    "tempo": (TEMPOTrainer, {}),
    "prefix baseline": (PrefixBaselineTrainer, {}),
}


def first_batch(tiny_model, folder, trainer, **options) -> dict[str, torch.Tensor]:
    recording = type("Recorded", (Recording, trainer), {})
    return train(tiny_model, folder, recording, max_steps=1, **options).batches[0].output


@pytest.mark.parametrize("method", METHODS)
def test_the_floor_lifts_what_is_below_it_and_leaves_the_rest(method, tiny_model, tmp_path):
    trainer, options = METHODS[method]
    plain = first_batch(tiny_model, tmp_path / "plain", trainer, **options)
    floored = first_batch(tiny_model, tmp_path / "floor", trainer, advantage_floor=FLOOR, **options)
    assert (plain["advantages"] < FLOOR).any()
    assert torch.equal(floored["advantages"], plain["advantages"].clamp(min=FLOOR))
    others = {name for name in plain if name != "advantages" and name in floored}
    assert all(torch.equal(plain[name], floored[name]) for name in others)


def test_the_weights_of_a_trace_come_after_the_floor_as_in_the_paper(tiny_model, tmp_path):
    weighted = {"trace_update": "weight", "trace_lambda": 0.9, "beta": 0.0}
    output = first_batch(tiny_model, tmp_path, GRPOLambdaTrainer, **weighted)
    outcome, weights = output["outcome"][:, None], trace_weights(output["completion_mask"], 0.9)
    assert (outcome < FLOOR).any()
    torch.testing.assert_close(output["advantages"], outcome.clamp(min=FLOOR) * weights)


@pytest.mark.parametrize("floor", [0.1, float("nan")])
def test_a_floor_above_zero_is_refused(floor, tmp_path):
    with pytest.raises(ValueError, match=r"`advantage_floor` must be"):
        config(tmp_path, advantage_floor=floor)
