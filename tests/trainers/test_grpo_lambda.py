"""GRPO-lambda by gradients and weights: where it is GRPO, and TRL's real loss against objectives written out here."""

from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer

from tempo_trl import GRPOLambdaConfig, GRPOLambdaTrainer

from . import probing
from .probing import assert_same_gradients
from .recording import assert_refused, assert_same_weights, config, moved, questions, share_of_threes, train
from .test_equivalence import OFF_POLICY

pytestmark = pytest.mark.matrix

STYLES = ("recent", "both")
LAMBDA = 0.9
MASK = torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])  # a tool token, and padding
ADVANTAGES = torch.tensor([1.5, -0.8])
# Traced, these leave the trust region above and below, on both rows: see `clipped`.
DRIFT = torch.tensor([[0.3, -0.05, 0.7, 0.1], [-0.4, 0.02, 0.3, 9.0]])


STEPS = MASK.cumsum(dim=1) - 1  # a tool's token takes no time


def decay_of(t: int, j: int, style: str) -> torch.Tensor:
    """What token j counts for in the trace of token t, in each row."""
    recent = LAMBDA ** (STEPS[:, t] - STEPS[:, j])
    return recent if style == "recent" else torch.maximum(recent, LAMBDA ** STEPS[:, j])


def traced(log_ratio: torch.Tensor, style: str) -> torch.Tensor:
    log_ratio = log_ratio * MASK
    columns = [sum(decay_of(t, j, style) * log_ratio[:, j] for j in range(t + 1)) for t in range(4)]
    return torch.stack(columns, dim=1)


class LossProbe(probing.LossProbe, GRPOLambdaTrainer):
    """Keeps the log-probabilities that the off-policy mask is given."""

    inputs = probing.LossProbe.inputs | {
        "tool_mask": torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]]),
        "advantages": ADVANTAGES,
        "num_items_in_batch": torch.tensor(6),
    }

    def gradient(self, old_logps=None, **extra):
        if old_logps is not None:
            extra["old_per_token_logps"] = old_logps
        scored = SimpleNamespace(
            outcome=ADVANTAGES, loss_mask=MASK.bool(), completion_ids=self.inputs["completion_ids"]
        )
        if (advantages := self.credit(scored)).ndim == 2:
            extra |= {"advantages": advantages, "outcome": ADVANTAGES}
        return super().gradient(**extra)

    def get_off_policy_mask(self, advantages, **arguments):
        self.seen = arguments["sampling_per_token_logps"]
        return GRPOTrainer.get_off_policy_mask(advantages, **arguments)


def probe(model, folder, **options):
    defaults = {"loss_type": "grpo", "beta": 0.0, "trace_lambda": LAMBDA, "advantage_floor": None}
    return LossProbe(model, share_of_threes, config(folder, GRPOLambdaConfig, **(defaults | options)), questions())


def clipped(ratio, advantages):
    """The clipped objective of a token; asserts that the case at hand clips above and below."""
    inside = MASK == 1
    assert ((ratio > 1.2) & (advantages > 0) & inside).any()
    assert ((ratio < 0.8) & (advantages < 0) & inside).any()
    return torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


@pytest.mark.parametrize("zero", ["trace_lambda", "trace_gamma"])
@pytest.mark.parametrize(
    "options",
    [
        {"trace_update": "trace"},
        {"trace_update": "weight", "trace_style": "both", "beta": 0.1, "use_bias_correction_kl": True},
        {"trace_style": "both", "importance_sampling_level": "sequence", "loss_type": "grpo"},
    ],
)
def test_lambda_or_gamma_zero_is_stock_grpo_bit_for_bit(zero, options, tiny_model, tmp_path):
    shared = {"reward_funcs": share_of_threes, "beta": 0.0} | OFF_POLICY
    shared |= {name: value for name, value in options.items() if not name.startswith("trace")}
    ours = {name: value for name, value in options.items() if name.startswith("trace")} | {zero: 0.0}
    stock = train(tiny_model, tmp_path / "grpo", GRPOTrainer, **shared)
    traces = train(tiny_model, tmp_path / "ours", GRPOLambdaTrainer, **shared, **ours)
    assert_same_weights(stock, traces)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_of_hardly_any_trace_train_as_grpo_does(level, tiny_model, tmp_path):
    shared = OFF_POLICY | {"loss_type": "grpo", "importance_sampling_level": level, "reward_funcs": share_of_threes}
    shared |= {"beta": 0.0, "optim": "sgd", "learning_rate": 0.1}  # SGD is linear in the gradient
    stock = train(tiny_model, tmp_path / "grpo", GRPOTrainer, **shared)
    hardly = {"trace_update": "weight", "trace_lambda": 1e-12, "advantage_floor": None}
    ours = train(tiny_model, tmp_path / "ours", GRPOLambdaTrainer, **shared, **hardly)
    assert moved(stock, tiny_model)
    assert_same_weights(stock, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("old_logps_are_given", [True, False])
@pytest.mark.parametrize("loss_type", ["grpo", "sapo"])
@pytest.mark.parametrize("style", STYLES)
def test_on_policy_the_gradient_is_policy_gradient_with_trace_summed_advantages(
    style, loss_type, old_logps_are_given, tiny_model, tmp_path
):
    temperatures = {"sapo_temperature_neg": 1.0} if loss_type == "sapo" else {}
    trainer = probe(tiny_model, tmp_path, trace_style=style, loss_type=loss_type, **temperatures)
    computed = trainer.gradient(trainer.logps().detach() if old_logps_are_given else None)
    summed = torch.zeros(2, 4)
    for j in range(4):
        for t in range(j, 4):
            summed[:, j] += decay_of(t, j, style) * ADVANTAGES * MASK[:, t]
    assert_same_gradients(computed, trainer.gradient_of(lambda logps: summed * logps))


@pytest.mark.parametrize("style", STYLES)
def test_off_policy_epsilon_trace_is_the_clipped_objective_of_traced_ratios(style, tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, trace_style=style)
    old = trainer.logps().detach() - DRIFT
    computed = trainer.gradient(old)

    def objective(logps):
        return clipped(traced(logps - old, style).exp(), ADVANTAGES[:, None])

    assert_same_gradients(computed, trainer.gradient_of(objective))


@pytest.mark.parametrize("style", STYLES)
def test_off_policy_epsilon_weight_weighs_each_tokens_clipped_loss(style, tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, trace_style=style, trace_update="weight")
    old = trainer.logps().detach() - DRIFT
    computed = trainer.gradient(old)
    weight = traced(torch.ones(2, 4), style)
    expected = trainer.gradient_of(lambda logps: weight * clipped((logps - old).exp(), ADVANTAGES[:, None]))
    assert_same_gradients(computed, expected)


@pytest.mark.parametrize("update", ["trace", "weight"])
def test_the_kl_term_sees_the_plain_log_probabilities(update, tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, beta=0.3, trace_update=update)
    old = trainer.logps().detach() - DRIFT
    reference = old - 0.2
    with_kl = trainer.gradient(old, ref_per_token_logps=reference)
    trainer.beta = 0.0
    without = trainer.gradient(old)

    def minus_kl(logps):
        return -0.3 * ((reference - logps).exp() - (reference - logps) - 1)

    kl = trainer.gradient_of(minus_kl)
    assert_same_gradients(with_kl, {name: without[name] + kl[name] for name in kl})


def test_vllms_importance_sampling_correction_multiplies_the_traced_loss(tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path)
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    old, correction = trainer.logps().detach() - DRIFT, torch.tensor([[0.5], [2.0]])
    computed = trainer.gradient(old, importance_sampling_ratio=correction)

    def objective(logps):
        return correction * clipped(traced(logps - old, "recent").exp(), ADVANTAGES[:, None])

    assert_same_gradients(computed, trainer.gradient_of(objective))


def test_the_off_policy_mask_sees_the_plain_log_probabilities(tiny_model, tmp_path):
    trainer = probe(tiny_model, tmp_path, off_policy_mask_threshold=0.5)
    old = trainer.logps().detach() - DRIFT
    trainer.gradient(old)
    assert trainer.seen is old
    trainer.gradient(old, sampling_per_token_logps=old + 1)
    assert torch.equal(trainer.seen, old + 1)


REFUSED = [
    ({"trace_lambda": 1.01}, "`trace_lambda` must be between 0 and 1, got 1.01"),
    ({"trace_gamma": float("nan")}, "`trace_gamma` .* nan"),
    ({"trace_style": "late"}, r"`trace_style` must be one of .*, got 'late'"),
    ({"trace_update": "both"}, r"`trace_update` must be one of .*, got 'both'"),
    ({"advantage_floor": 0.5}, "`advantage_floor` must be at most 0, or None"),
    ({"importance_sampling_level": "sequence"}, "would average out the traces.*Use 'token', or trace_update"),
    ({"loss_type": "cispo"}, "no gradient through the importance ratio.*or trace_update='weight'"),
    ({"use_bias_correction_kl": True}, "which epsilon-trace replaces. Unset it"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_traces_cannot_go_with_is_refused_with_what_to_do(options, message, tmp_path, tiny_model):
    assert_refused(GRPOLambdaTrainer, options, message, tiny_model, tmp_path)


def test_the_decay_is_gamma_times_lambda(tmp_path):
    assert config(tmp_path, GRPOLambdaConfig, trace_gamma=0.5, trace_lambda=0.8).trace_decay == pytest.approx(0.4)
