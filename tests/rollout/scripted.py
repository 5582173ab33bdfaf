"""A sampler that reads its continuations from a script, and a tokenizer whose tokens are characters."""

import math
from collections.abc import Sequence

import torch

from tempo_trl.rollout.growth import Continuation, Request, Rules, Top

EOS = 0
SURE, UNSURE = (0.97, 0.01, 0.01, 0.01), (0.25, 0.25, 0.25, 0.25)
CANDIDATES = tuple(ord(c) for c in "wxyz")  # what may come where the script is unsure


class Characters:
    """Token ids are code points; EOS spells nothing."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(chr(token) for token in token_ids if token != EOS)


def ids(text: str) -> list[int]:
    """Token ids of a text, in which `$` is EOS."""
    return [EOS if character == "$" else ord(character) for character in text]


def text(token_ids: list[int]) -> str:
    return "".join("$" if token == EOS else chr(token) for token in token_ids)


def rules(max_tokens: int = 100, **options) -> Rules:
    return Rules(max_tokens, (EOS,), tokenizer=Characters(), **options)


class Script:
    """
    Continuations by what they continue: `{"": ["ab.", "cd$"], "ab.": ["e$"]}`.

    A path's texts are handed out in turn. A text ends at `max_tokens`. After "~", which is no token, comes a token
    from an uncertain distribution over w, x, y and z; every other token is all but certain.
    """

    def __init__(self, continuations: dict[str, list[str]]):
        self.left = {path: list(texts) for path, texts in continuations.items()}
        self.rounds: list[list[Request]] = []

    def sample(self, requests: Sequence[Request], top_k: int = 0) -> list[list[Continuation]]:
        self.rounds.append(list(requests))
        return [[self._next(request, top_k) for _ in range(request.n)] for request in requests]

    def _next(self, request: Request, top_k: int) -> Continuation:
        written = self.left[text(request.path_ids)].pop(0)
        steps = [(token, before == "~") for before, token in zip(" " + written, written, strict=False) if token != "~"]
        steps = steps[: request.max_tokens]
        token_ids = ids("".join(token for token, _ in steps))
        tops = [self._top(token, unsure) for token, (_, unsure) in zip(token_ids, steps, strict=True)]
        logprobs = [math.log(top[0][1]) for top in tops]
        return Continuation(token_ids, logprobs, token_ids[-1] == EOS, self._tensors(tops) if top_k else None)

    def _top(self, token: int, is_unsure: bool) -> list[tuple[int, float]]:
        others = [candidate for candidate in CANDIDATES if candidate != token]
        return list(zip([token, *others], UNSURE if is_unsure else SURE, strict=False))

    def _tensors(self, tops: list[list[tuple[int, float]]]) -> Top:
        probabilities = torch.tensor([[p for _, p in top] for top in tops])
        return Top(torch.tensor([[token for token, _ in top] for top in tops]), probabilities.log())
