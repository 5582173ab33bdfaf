"""A run with span credit on answers that are written beforehand, and its criteria counted by hand."""

import torch

from tempo_trl import SpanCreditConfig, SpanCreditTrainer, SpanReward

from ..credit.test_spans import relative
from ..tiny import tiny_tokenizer
from .recording import Recording, config, questions

EOS = "<|im_end|>"
# Two groups of four. `?` is a city that cannot be judged.
ANSWERS = ["rome,3!", "rome,7", "oslo,3", "?,12", "rome,3", "oslo,3!", "oslo,3", "oslo,3"]
FLAT = [*ANSWERS[:4], *["rome,3"] * 4]


class Answers:
    """Mixin: row i of all ranks' batch writes answer i."""

    answers = ANSWERS

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        encode, first = self.processing_class.encode, self.accelerator.process_index * len(prompt_ids)
        rows = range(first, first + len(prompt_ids))
        return [encode(self.answers[row % len(self.answers)] + EOS) for row in rows], None


class RecordingAnswers(Answers, Recording, SpanCreditTrainer):
    pass


class FlatAnswers(RecordingAnswers):
    answers = FLAT


class RecordingSpans(Recording, SpanCreditTrainer):
    pass


def fields(texts, **columns) -> list[list[SpanReward]]:
    """City and item on their places, the item with the end of the sequence; a stop anywhere; each letter o."""
    return [_fields(text) for text in texts]


def _fields(text: str) -> list[SpanReward]:
    comma, city = text.index(","), text[: text.index(",")]
    found = [
        SpanReward("city", None if city == "?" else float(city == "rome"), 0, comma),
        SpanReward("item", float(text[comma + 1] == "3"), comma + 1, len(text)),
        SpanReward("stop", float("!" in text)),
    ]
    return found + [SpanReward("o", float(city.count("o") == 1), i, i + 1) for i, x in enumerate(city) if x == "o"]


def swapped(texts, **columns) -> list[list[SpanReward]]:
    """Each completion has one of two criteria right: the mean is the same for all."""
    return [[SpanReward("a", i % 2, 0, 1), SpanReward("b", (i + 1) % 2, 1, 2)] for i in range(len(texts))]


CRITERIA = ("city", "item", "stop", "o")


def counted_by_hand(ids: list[list[int]], size: int = 4) -> tuple:
    """The case of [`fields`], from token ids alone: one token is one character, and EOS one token."""
    tokenizer = tiny_tokenizer()
    scores, places = [], []
    for row in ids:
        tokens = tokenizer.convert_ids_to_tokens(row)
        comma, end = tokens.index(","), len(tokens)
        os = [t for t in range(comma) if tokens[t] == "o"]
        city = float("nan") if tokens[0] == "?" else float(tokens[0] == "r")
        scores.append([city, float(tokens[comma + 1] == "3"), float("!" in tokens), float(len(os) == 1)])
        scores[-1][3] = scores[-1][3] if os else float("nan")
        places.append([[(0, comma)], [(comma + 1, end)], [], [(t, t + 1) for t in os]])
    return scores, places, list(map(len, ids)), size


def whole_advantages(case: tuple, scale: str = "group") -> torch.Tensor:
    """The sum of the criteria's advantages of each completion."""
    scores, _, _, size = case
    rows = [sum(relative(scores, row, k, size, scale) for k in range(len(scores[row]))) for row in range(len(scores))]
    return torch.tensor(rows)


def train(model, folder, functions=fields, reward_funcs=None, cls=RecordingAnswers, trainer=None, **overrides):
    args = config(folder, SpanCreditConfig, **{"max_steps": 1, "trace_lambda": 0.0} | overrides)
    made = cls(model, reward_funcs, args, questions(), span_reward_funcs=functions, **(trainer or {}))
    made.train()
    return made


def assert_close(ours: torch.Tensor, expected: torch.Tensor):
    torch.testing.assert_close(ours, expected.to(ours.dtype), rtol=1e-4, atol=1e-5)
