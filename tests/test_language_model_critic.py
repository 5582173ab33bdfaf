"""Credit from hidden states: what it is fed, what the critic learns, and SHEAR's distances."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from transformers import AutoModelForCausalLM

from benchmarks.language_model import critic, hidden, shear
from benchmarks.language_model.critic import HiddenCritic
from benchmarks.language_model.recorded import Recorded
from benchmarks.language_model.ridge import Ridge
from benchmarks.language_model.rollouts import GROUP, TEMPERATURE, Rolled
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.demo.sampling import sampled


@pytest.fixture(scope="module")
def model(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


@pytest.fixture(scope="module")
def sample(model):
    """A recorded group of a prompt, and its completions."""
    torch.manual_seed(0)
    recorded = Recorded(sketched=True)
    (rows,) = sampled(model, [[7, 8, 9]], [GROUP], [12], list(range(0, 300, 7)), TEMPERATURE, recorded)
    assert len(set(map(len, rows))) > 2
    return recorded, rows


def test_recorded_states_are_those_of_a_forward_pass(model, sample):
    recorded, rows = sample
    expected = hidden.states_of(model, [Rolled("no_comma", [7, 8, 9], rows, [0.0] * GROUP, [], [])])
    assert recorded.lengths.tolist() == expected.lengths.tolist()
    torch.testing.assert_close(recorded.states, torch.from_numpy(expected.features), rtol=1e-4, atol=1e-5)


def test_products_of_sketches_are_those_of_gradients_before_the_head(model, sample, monkeypatch):
    recorded, rows = sample
    sketches = [recorded.sketches[row, : len(ids)].sum(dim=0) for row, ids in enumerate(rows)]
    exact = []
    for ids in rows:
        states = model.model(torch.tensor([[7, 8, 9, *ids]])).last_hidden_state[0, 2:-1].detach()
        moved = torch.eye(states.shape[1], requires_grad=True)
        logps = (states @ moved @ model.lm_head.weight.T / TEMPERATURE).log_softmax(dim=-1)
        (gradient,) = torch.autograd.grad(logps[range(len(ids)), ids].sum(), moved)
        exact.append(gradient.flatten())
    ours, theirs = (torch.stack(own) @ torch.stack(own).T for own in (sketches, exact))
    assert torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1] > 0.95
    assert ours.diagonal().sum() / theirs.diagonal().sum() == pytest.approx(1, abs=0.2)


def test_ridge_regression_from_sums_is_that_of_all_batches_at_once():
    torch.manual_seed(0)
    x, y, inside = torch.randn(6, 4, 3), torch.randn(6), torch.arange(4) < torch.tensor([4, 2, 3, 4, 1, 4])[:, None]
    x *= inside[:, :, None]
    y -= y.mean()
    ours = Ridge()
    for part in (slice(0, 2), slice(2, 6)):
        ours.add(Ridge.sums(x[part], y[part], inside[part]), 1.0)
    weights = (inside / inside.sum(dim=1, keepdim=True))[inside].double()
    rows, targets = x[inside].double(), y.repeat_interleave(inside.sum(dim=1)).double()
    mean = (weights[:, None] * rows).sum(0) / weights.sum()
    scale = ((weights[:, None] * (rows - mean) ** 2).sum(0) / weights.sum()).sqrt()
    # The penalty as observations of 0: ordinary least squares then gives the ridge's coefficients.
    design = torch.cat([weights[:, None].sqrt() * (rows - mean) / scale, 10**0.5 * torch.eye(3).double()])
    observed = torch.cat([weights.sqrt() * targets, torch.zeros(3).double()])
    slope = torch.linalg.lstsq(design, observed[:, None]).solution[:, 0]
    expected = ((x.double() - mean) / scale @ slope).float()
    torch.testing.assert_close(ours.predicted(x, 10.0), expected, rtol=1e-3, atol=1e-4)


LENGTHS = torch.tensor([3, 2, 3, 1] * 8)


def batch_of(seed: int, learnable: bool):
    """Eight groups of four; the first feature tells the reward, if it is learnable, from the second token on."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.cat([(torch.randperm(4, generator=generator) < 2).float() for _ in range(8)])
    states = torch.randn(32, 3, 5, generator=generator)
    if learnable:
        states[:, :, 0] = (rewards[:, None] * 2 - 1) * torch.tensor([0.0, 1.0, 1.0])
    states *= (torch.arange(3) < LENGTHS[:, None])[:, :, None]
    batch = SimpleNamespace(
        completion_ids=torch.ones(32, 3, dtype=torch.long),
        lengths=LENGTHS,
        rewards=rewards,
        num_generations=4,
        training=True,
    )
    sketches = torch.randn(32, 3, 6, generator=generator)
    return batch, SimpleNamespace(states=states, lengths=LENGTHS, sketches=sketches, size=6, seconds=0.5)


def credit_of(own: HiddenCritic, batch, recorded):
    own.recorded = recorded
    return own(batch)


def taught(learnable: bool, learns_lambda: bool = False, batches: int = 12) -> HiddenCritic:
    own = HiddenCritic(learns_lambda)
    own.gradients = own.gradients[:, :, :6]
    for seed in range(batches):
        own.update([credit_of(own, *batch_of(seed, learnable)).statistics])
    return own


def grpo(batch) -> torch.Tensor:
    own = outcome_advantages(batch.rewards, batch.num_generations)[:, None].float()
    return own * (torch.arange(3) < batch.lengths[:, None])


def test_its_seconds_are_those_of_recording_and_its_own():
    batch, recorded = batch_of(0, True)
    assert credit_of(HiddenCritic(False), batch, recorded).metrics["hidden/seconds"][0] > 0.5


def test_before_it_has_learned_its_credit_is_grpo_s():
    batch, recorded = batch_of(0, True)
    torch.testing.assert_close(credit_of(HiddenCritic(True), batch, recorded).advantages, grpo(batch))


def test_it_takes_the_credit_of_what_the_state_tells_and_no_other():
    own = taught(True)
    batch, recorded = batch_of(100, True)
    ours, theirs = credit_of(own, batch, recorded).advantages, grpo(batch)
    torch.testing.assert_close(ours[:, 0], theirs[:, 0], atol=0.3, rtol=0)
    assert ours[:, 1:].square().sum() < 0.1 * theirs[:, 1:].square().sum()


def test_states_that_tell_nothing_are_shrunk_to_nothing():
    own = taught(False, batches=40)
    batch, recorded = batch_of(100, False)
    ours, theirs = credit_of(own, batch, recorded).advantages, grpo(batch)
    assert (ours - theirs).square().mean() < 0.02 * theirs.square().mean()


def test_groups_of_equal_rewards_have_no_credit():
    own = taught(True)
    batch, recorded = batch_of(100, True)
    batch.rewards[:4] = 1.0
    assert not credit_of(own, batch, recorded).advantages[:4].any()


def test_groups_of_equal_rewards_teach_nothing():
    batch, recorded = batch_of(0, True)
    batch.rewards[4:] = 1.0
    whole = credit_of(taught(True), batch, recorded).statistics
    (first, alone), part = batch_of(0, True), slice(0, 4)
    for name in ("completion_ids", "lengths", "rewards"):
        setattr(first, name, getattr(first, name)[part])
    for name in ("states", "sketches", "lengths"):
        setattr(alone, name, getattr(alone, name)[part])
    expected = credit_of(taught(True), first, alone).statistics
    torch.testing.assert_close(whole["ridge"], expected["ridge"])
    torch.testing.assert_close(whole["agreement"], expected["agreement"])


def test_lambda_stays_one_where_gradients_are_noise():
    own = taught(True, learns_lambda=True)
    assert credit_of(own, *batch_of(100, True)).metrics["hidden/lambda"] == (1.0, 1.0)


def test_lambda_falls_where_the_td_errors_point_along_the_gradient_and_the_rest_is_noise():
    own = HiddenCritic(learns_lambda=True)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(32, 6, generator=generator)
    levels = torch.tensor(critic.COEFFICIENTS)[:, None, None]
    own.gradients = torch.eye(6)[0] * (1 + 0 * noise) + (1 - levels) * 2 * noise
    batch, recorded = batch_of(100, True)
    assert credit_of(own, batch, recorded).metrics["hidden/lambda"][0] < 0.5


def test_a_resumed_critic_gives_the_same_credit(tmp_path):
    own, again = taught(True, True), HiddenCritic(True)
    torch.save(own.state_dict(), tmp_path / "state.pt")
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    batch, recorded = batch_of(100, True)
    one, other = credit_of(own, batch, recorded), credit_of(again, batch, recorded)
    assert torch.equal(one.advantages, other.advantages)


def test_an_evaluation_gets_grpo_s_credit_and_teaches_nothing():
    outcome = torch.tensor([0.0, torch.nan])
    credit = HiddenCritic(True)(SimpleNamespace(training=False, outcome=outcome, num_generations=1))
    assert credit.advantages.tolist() == [0.0, 0.0]
    assert credit.statistics is None


def test_a_batch_that_was_not_recorded_is_refused():
    batch, recorded = batch_of(0, True)
    recorded.lengths = LENGTHS.flip(0)
    with pytest.raises(RuntimeError, match="not what was sampled last"):
        credit_of(HiddenCritic(False), batch, recorded)


def test_sinkhorn_distances_are_those_of_the_best_assignment_where_the_penalty_is_small(monkeypatch):
    monkeypatch.setattr(shear, "PENALTY", 0.005)
    monkeypatch.setattr(shear, "ITERATIONS", 2000)
    torch.manual_seed(0)
    one, other = torch.randn(2, 4, 3), torch.randn(3, 4, 3)
    for m, n in np.ndindex(2, 3):
        cost = torch.cdist(one[m], other[n]).numpy()
        expected = cost[linear_sum_assignment(cost)].mean()
        assert shear.distances(one, other)[m, n] == pytest.approx(expected, abs=0.02)


def test_tokens_like_those_of_the_other_outcome_weigh_nothing_and_others_their_distance():
    same, far = torch.zeros(8, 3), torch.tensor([3.0, 4.0, 0.0]).expand(8, 3)
    states = [torch.cat([same + 1e-6, far]), same, same]
    weights = shear.token_weights(states, torch.tensor([True, False, False]), 20)
    norm = 5 * 8 / 32
    assert weights[0, 0] == pytest.approx(0, abs=1e-4)
    assert weights[0, 15] == pytest.approx(5 / norm, rel=1e-4)
    assert weights[1, :8].max() == pytest.approx(0, abs=1e-4)  # its nearest span of the other outcome is the first
    assert (weights[0, 16:] == 1).all()


def test_every_token_lies_in_a_span():
    for length in range(1, 41):
        covered = {t for a in shear.spans_of(length) for t in range(a, min(a + shear.WIDTH, length))}
        assert covered == set(range(length))
        assert shear.spans_of(length)[-1] == max(length - shear.WIDTH, 0)


def test_shear_is_grpo_where_all_completions_have_one_outcome():
    states = [torch.randn(4, 3) for _ in range(3)]
    assert (shear.token_weights(states, torch.ones(3, dtype=torch.bool), 4) == 1).all()
