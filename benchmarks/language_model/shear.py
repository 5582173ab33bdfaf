r"""SHEAR (https://huggingface.co/papers/2604.23318) on short completions, for `credit_func`.

GRPO's advantage times how far the hidden states around a token lie from those of the completions with the other
outcome. For the spans S of w tokens, a new one every s,

$$d(S) = \min_{S'} W(S, S') / \bar n, \quad A_t = A \max_{S \ni t} d(S)$$

with S' any span of an opposing completion of the group, W the Wasserstein distance of the two sets of hidden states
with an entropic penalty, and n the mean norm of the group's hidden states.

The paper has w = 100 and s = 25 for completions of up to 3,000 tokens; here they have 10 to 30. It does not give the
penalty, nor whether the state of a token is the one before or after it: here it is the one that predicts the token.
"""

from collections.abc import Sequence
from itertools import product

import torch

from benchmarks.language_model.recorded import Recorded
from tempo_trl import Batch

WIDTH, STRIDE = 8, 2
PENALTY, ITERATIONS = 0.05, 30  # the penalty in units of the mean norm


class Shear:
    """The credit function."""

    def __init__(self):
        self.recorded = Recorded()

    def __call__(self, batch: Batch) -> torch.Tensor:
        states, size = self.recorded.last_layer, batch.num_generations
        weights = torch.ones(batch.completion_ids.shape)
        for begin in range(0, len(states), size):
            rows = slice(begin, begin + size)
            own = [row[:length] for row, length in zip(states[rows], batch.lengths[rows].tolist(), strict=True)]
            weights[rows] = token_weights(own, batch.rewards[rows] > 0.5, states.shape[1])
        return batch.outcome.nan_to_num(0.0)[:, None] * weights


def token_weights(states: Sequence[torch.Tensor], right: torch.Tensor, width: int) -> torch.Tensor:
    """
    The weights of a group's tokens, `(G, width)`; 1 where all completions have one outcome.

    Args:
        states (`list` of `torch.Tensor` of shape `(T, D)`): Of the tokens of each completion.
        right (`torch.Tensor` of shape `(G,)`, bool): Whether the completion is right.
        width (`int`): Columns of the result.
    """
    weights = torch.ones(len(states), width)
    if right.all() or not right.any():
        return weights
    norm = torch.cat(list(states)).norm(dim=1).mean()
    spans = [spans_of(len(own)) for own in states]
    cut = [torch.stack([own[a : a + WIDTH] for a in starts]) / norm for own, starts in zip(states, spans, strict=True)]
    nearest = [torch.full((len(own),), torch.inf) for own in cut]
    for i, j in product(right.nonzero().flatten().tolist(), (~right).nonzero().flatten().tolist()):
        between = distances(cut[i], cut[j])
        nearest[i], nearest[j] = nearest[i].minimum(between.amin(dim=1)), nearest[j].minimum(between.amin(dim=0))
    for row, own in enumerate(nearest):
        for t in range(len(states[row])):
            weights[row, t] = max(d for a, d in zip(spans[row], own.tolist(), strict=True) if a <= t < a + WIDTH)
    return weights


def spans_of(length: int) -> list[int]:
    """Where the spans of a completion begin; the last one ends with it."""
    last = max(length - WIDTH, 0)
    return sorted({*range(0, last, STRIDE), last})


def distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """
    Distances of all pairs of spans by Sinkhorn's iterations, `(M, N)`: the cost of the transport, without its penalty.

    Args:
        one (`torch.Tensor` of shape `(M, w, D)`), other (`torch.Tensor` of shape `(N, v, D)`): States of spans.
    """
    cost = torch.cdist(one[:, None], other[None])  # (M, N, w, v)
    kernel = -cost / PENALTY
    rows, columns = -torch.tensor(cost.shape[2:]).log()
    f, g = torch.zeros(cost.shape[:3]), torch.zeros(*cost.shape[:2], cost.shape[3])
    for _ in range(ITERATIONS):
        f = rows - (kernel + g[:, :, None]).logsumexp(dim=3)
        g = columns - (kernel + f[..., None]).logsumexp(dim=2)
    plan = (kernel + f[..., None] + g[:, :, None]).exp()
    return (plan * cost).sum(dim=(2, 3))


shear = Shear()
