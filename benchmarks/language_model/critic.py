r"""A critic that costs little: the value of a state, from the policy's own hidden states, for `credit_func`.

A ridge regression on earlier batches predicts how much a completion's reward differs from the mean of the others of
its group. With b the prediction f, times what earlier batches justify, plus that mean, the advantages are those of GAE
with the reward at the end:

$$\delta_t = b_{t+1} - b_t, \quad A_t = \delta_t + \lambda A_{t+1}$$

`hidden_baseline` has lambda 1, A = r - b_t, which is unbiased: the fit has seen neither the group nor later tokens.
`hidden_td` learns lambda from gradients of earlier groups, and begins with 1.

Groups with equal rewards are not trained on. They teach nothing either, or their deviations of 0 would shrink the
predictions for the groups that are trained on.
"""

import time
from dataclasses import replace

import torch

from benchmarks.estimators.learned_td import COEFFICIENTS, justified, over_values
from benchmarks.language_model.recorded import Recorded
from benchmarks.language_model.ridge import PENALTIES, Ridge
from benchmarks.language_model.values import leave_one_out
from benchmarks.learning.oracles import scaled
from tempo_trl import Batch
from tempo_trl.credit.advantages import flat_groups
from tempo_trl.trainers.batch import Credit

BOUNDS = torch.tensor([1, 2, 4, 8, 16, 32])  # positions that share a shrinkage lie between two of them
FORGETTING = 0.95  # of what was learned, for each batch
ENOUGH, REMEMBERED = 24, 64  # groups whose gradients choose lambda: at least, and at most


class HiddenCritic:
    """
    The credit function. It learns in training, and its memory is saved in checkpoints.

    Args:
        learns_lambda (`bool`): Whether lambda may fall below 1.
    """

    def __init__(self, learns_lambda: bool):
        self.learns_lambda, self.recorded = learns_lambda, Recorded(sketched=learns_lambda)
        self.ridge, self.agreement = Ridge(), torch.zeros(len(PENALTIES), 3, len(BOUNDS) + 1)
        self.gradients, self._learning = torch.zeros(len(COEFFICIENTS), 0, self.recorded.size), 0.0  # seconds

    def __call__(self, batch: Batch) -> Credit:
        if not batch.training:  # an evaluation teaches nothing, and its groups may have one completion
            return Credit(batch.outcome.nan_to_num(0.0))
        inside = torch.arange(batch.completion_ids.shape[1]) < batch.lengths[:, None]
        if not torch.equal(self.recorded.lengths, batch.lengths):
            raise RuntimeError(
                "The batch is not what was sampled last. Train with benchmarks.language_model.training."
            )
        begun = time.perf_counter()
        credit = self._credit(batch, inside)
        seconds = self.recorded.seconds + time.perf_counter() - begun + self._learning
        return replace(credit, metrics=credit.metrics | {"hidden/seconds": (seconds, 1.0)})

    def _credit(self, batch: Batch, inside: torch.Tensor) -> Credit:
        states = self.recorded.states  # put together on each access
        rewards = batch.rewards.double().view(-1, batch.num_generations).numpy()
        deviations = torch.from_numpy(rewards - leave_one_out(rewards)).flatten().float()
        predictions = torch.stack([self.ridge.predicted(states, p) for p in PENALTIES]) * inside
        best, shrinkage = self._justified()
        over_baseline = (deviations[:, None] - shrinkage[_bucket(inside)] * predictions[best]) * inside
        over_baseline *= 1 - 1 / batch.num_generations  # without a prediction these are GRPO's advantages
        by_coefficient = [scaled(batch, over_values(over_baseline, c)) for c in COEFFICIENTS]
        trained = ~flat_groups(batch.rewards, batch.num_generations)
        taught = inside & trained.repeat_interleave(batch.num_generations)[:, None]
        enough = self.learns_lambda and self.gradients.shape[1] >= ENOUGH  # two errors are soon exceeded by chance
        chosen = justified(self.gradients.double().numpy()) if enough else 0
        return Credit(
            by_coefficient[chosen],
            metrics={"hidden/lambda": (1 - COEFFICIENTS[chosen], 1.0), "hidden/explained": self._explained()},
            statistics={
                "ridge": Ridge.sums(states, deviations, taught),
                "agreement": _agreement(predictions, deviations, taught),
                "gradients": self._gradients(by_coefficient, trained) if self.learns_lambda else None,
            },
        )

    def update(self, statistics: list[dict]) -> None:
        """Learn from a batch, after its credit was computed."""
        begun = time.perf_counter()
        for own in statistics:
            self.ridge.add(own["ridge"], FORGETTING)
            self.agreement = FORGETTING * self.agreement + own["agreement"]
            if self.learns_lambda:
                self.gradients = torch.cat([self.gradients, own["gradients"]], dim=1)[:, -REMEMBERED:]
        self._learning = time.perf_counter() - begun

    def state_dict(self) -> dict:
        return {"ridge": self.ridge.state_dict(), "agreement": self.agreement, "gradients": self.gradients}

    def load_state_dict(self, state: dict) -> None:
        self.ridge.load_state_dict(state["ridge"])
        self.agreement, self.gradients = state["agreement"], state["gradients"]

    def _justified(self) -> tuple[int, torch.Tensor]:
        """The penalty that explained earlier batches best before it saw them, and its shrinkage by position."""
        product, square, _ = self.agreement.unbind(dim=1)
        shrinkage = (product / square.clamp(min=1e-9)).clamp(0, 1)
        best = int((2 * shrinkage * product - shrinkage**2 * square).sum(dim=1).argmax())
        return best, shrinkage[best]

    def _explained(self) -> tuple[float, float]:
        """Share of the squared deviations that shrunk predictions have explained: numerator and denominator."""
        best, shrinkage = self._justified()
        product, square, target = self.agreement[best]
        explained = (2 * shrinkage * product - shrinkage**2 * square).sum()
        return float(explained), max(float(target.sum()), 1e-9)

    def _gradients(self, by_coefficient: list[torch.Tensor], trained: torch.Tensor) -> torch.Tensor:
        """Sketched gradients of the groups that have one, `(coefficients, groups, entries)`."""
        sketches = self.recorded.sketches
        rows = torch.stack([torch.einsum("rt,rte->re", own, sketches) for own in by_coefficient])
        return rows.view(len(rows), len(trained), -1, rows.shape[-1]).sum(dim=2)[:, trained]


def _bucket(inside: torch.Tensor) -> torch.Tensor:
    """Which shrinkage the tokens of a row have, `(T,)`."""
    return torch.bucketize(torch.arange(inside.shape[1]), BOUNDS, right=True)


def _agreement(predictions: torch.Tensor, deviations: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Products of predictions and deviations, and the squares of both, summed by penalty and position."""
    target, predictions = deviations[:, None] * inside, predictions * inside
    terms = torch.stack([predictions * target, predictions**2, target.expand_as(predictions) ** 2], dim=1).sum(dim=2)
    return torch.zeros(*terms.shape[:2], len(BOUNDS) + 1).index_add(2, _bucket(inside), terms)


hidden_baseline, hidden_td = HiddenCritic(learns_lambda=False), HiddenCritic(learns_lambda=True)
