"""The oracle: greedy continuations by one forward pass over everything for every token."""

import torch

from tempo_trl.rollout.growth import Continuation, Request, Top


class NaiveGreedySampler:
    def __init__(self, model, eos_token_ids):
        self.model, self.eos_token_ids = model, eos_token_ids

    @torch.no_grad()
    def sample(self, requests, top_k=0):
        return [[self._continue(request, top_k) for _ in range(request.n)] for request in requests]

    def _continue(self, request: Request, top_k: int) -> Continuation:
        ids, logprobs, tops = [], [], []
        while len(ids) < request.max_tokens and not (ids and ids[-1] in self.eos_token_ids):
            logits = self.model(torch.tensor([request.prefix_ids + ids])).logits[0, -1]
            step = logits.float().log_softmax(dim=-1)
            ids.append(int(step.argmax()))
            logprobs.append(float(step.max()))
            tops.append(step.topk(max(top_k, 1)))
        top = Top(torch.stack([t.indices for t in tops]), torch.stack([t.values for t in tops]))
        return Continuation(ids, logprobs, ids[-1] in self.eos_token_ids, top)


def assert_same_trees(trees, expected, tolerance: float = 1e-4) -> None:
    """The same segments, tokens and rows, and log-probabilities within a tolerance."""
    for tree, other in zip(trees, expected, strict=True):
        assert tree.rows == other.rows
        for segment, wanted in zip(tree.segments, other.segments, strict=True):
            assert segment.token_ids == wanted.token_ids
            assert (segment.parent, segment.forced) == (wanted.parent, wanted.forced)
            torch.testing.assert_close(segment.logprobs, wanted.logprobs, atol=tolerance, rtol=tolerance)
