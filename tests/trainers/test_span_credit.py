"""Span credit in training: functions in TRL's convention, places of their rewards, what TRL logs, and errors."""

import pytest

from tempo_trl import SpanCreditConfig, SpanCreditTrainer, SpanReward

from .recording import Recording, config, questions


class RecordingSpans(Recording, SpanCreditTrainer):
    pass


def train(model, folder, functions, reward_funcs=None, trainer_cls=RecordingSpans, keywords=None, **overrides):
    args = config(folder, SpanCreditConfig, **overrides)
    keywords = keywords or {}
    trainer = trainer_cls(model, reward_funcs, args, questions(), span_reward_funcs=functions, **keywords)
    trainer.train()
    return trainer


def test_smoke(tiny_model, tmp_path):
    def first_letter(texts, **columns):
        return [[SpanReward("a", float(ord(t[0]) % 2), 0, 1), SpanReward("b", float(len(t) % 2), len(t) - 1, len(t))] for t in texts]

    trainer = train(tiny_model, tmp_path, first_letter, log_trees_steps=0)
    print(trainer.state.log_history[0])
    print(trainer.batches[0].output["advantages"][:4])
