"""What the first batch is judged by, number by number."""

import math
import weakref
from unittest.mock import MagicMock

import pytest
import torch

from tempo_trl.tree_forward import first_batch
from tempo_trl.tree_forward.first_batch import (
    LARGEST_DIFFERENCE,
    SHORT_ROW,
    Difference,
    FirstBatch,
)
from tempo_trl.tree_forward.tree_pass import State

from .batches import random_tree_batch
from .models import model_of, trainer_of

FINE = Difference(largest=1e-6, total=1e-4, worst_row=1e-6, compared=1000)
ROUNDED = Difference(largest=0.3, total=10.0, worst_row=0.02, compared=1000)  # half precision: 0.01 on average


@pytest.mark.parametrize("wrong", ["logps", "entropies"])
def test_nan_in_one_of_them_is_a_mistake(wrong):
    fine, mask = torch.zeros(2, 3), torch.ones(2, 3)
    ours = {"logps": fine, "entropies": fine} | {wrong: fine * math.nan}
    found = FirstBatch(Difference.of((ours["logps"], ours["entropies"]), (fine, fine), mask))
    assert found.mistake() is not None


def test_it_is_measured_on_the_tokens_of_the_completions_alone_with_entropies_where_there_are_some():
    logps, entropies = torch.zeros(2, 3), torch.ones(2, 3)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    theirs = logps + torch.tensor([[0.0, 0.5, 9.0], [0.25, 9.0, 9.0]])
    assert Difference.of((logps, None), (theirs, None), mask) == (0.5, 0.75, 0.5 / SHORT_ROW, 3)
    assert Difference.of((logps, entropies), (theirs, entropies - 1), mask) == (1.0, 3.75, 1.25 / SHORT_ROW, 6)


def test_the_worst_row_is_a_mean_over_its_tokens():
    logps = torch.zeros(2, 2 * SHORT_ROW)
    theirs = logps + torch.tensor([[0.25], [1.0]])
    mask = torch.ones(2, 2 * SHORT_ROW)
    mask[1, 1:] = 0  # one token of a short row: it rounds by chance
    assert Difference.of((logps, None), (theirs, None), mask).worst_row == 0.25


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (FirstBatch(FINE), FirstBatch(FINE._replace(largest=0.5)), "differs from TRL's by 0.5 nats at a token"),
        (
            FirstBatch(ROUNDED, ROUNDED),
            FirstBatch(ROUNDED._replace(worst_row=0.1), ROUNDED),
            "differs from TRL's by 0.1 nats on average over one row",
        ),
        (FirstBatch(FINE, ROUNDED), FirstBatch(FINE, ROUNDED, by_row=True), "no variable-length attention"),
    ],
    ids=["wrong at a token", "wrong over a row, in half precision", "slow"],
)
def test_one_rank_that_is_wrong_or_slow_is_enough(one, other, told):
    assert one.mistake() is None and one.slowness() is None
    batch = FirstBatch.of_all_ranks([one, other])
    assert batch.tree.compared == 2000
    assert told in (batch.mistake() or batch.slowness())


@pytest.mark.parametrize("rounding", [FINE, ROUNDED])
def test_rounding_is_no_mistake_and_nan_is(rounding):
    assert FirstBatch(FINE, rounding).mistake() is None
    assert FirstBatch(Difference(*[math.nan] * 3, compared=1000), rounding).mistake() is not None


def test_full_precision_is_held_by_the_largest_difference_and_half_by_what_trl_itself_rounds():
    outlier = FINE._replace(largest=2 * LARGEST_DIFFERENCE)
    assert FirstBatch(outlier, FINE).mistake() is not None
    assert FirstBatch(outlier, ROUNDED).mistake() is None
    assert FirstBatch(ROUNDED, ROUNDED).mistake() is None
    everywhere = ROUNDED._replace(total=2 * ROUNDED.total)
    assert "differs from TRL's by 0.02 nats on average" in FirstBatch(everywhere, ROUNDED).mistake()


def test_a_model_that_padding_does_not_move_is_held_to_the_bound_of_full_precision():
    nothing = Difference(compared=1000)
    assert FirstBatch(FINE, nothing).mistake() is None
    assert FirstBatch(ROUNDED, nothing).mistake() is not None


class Saved:
    """Bytes of the tensors that are saved for backward: those alive, and the most that ever were."""

    def __init__(self):
        self.alive = self.most = 0

    def keep(self, tensor):
        handle = Handle(tensor.detach())  # with its history it would keep its own graph alive
        size = tensor.numel() * tensor.element_size()
        self.alive += size
        self.most = max(self.most, self.alive)
        weakref.finalize(handle, self.drop, size)
        return handle

    def drop(self, size):
        self.alive -= size


class Handle:
    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize("reason", ["shares too little", "is wrong"])
def test_a_tree_that_is_left_is_never_saved_for_backward_beside_trls_way(reason, tmp_path, monkeypatch):
    ids, mask, width = random_tree_batch(2, 5, prompt_tokens=24, completion_tokens=20, vocabulary=260)

    def most(mode):
        trainer, saved = trainer_of(model_of("qwen3"), tmp_path / mode, tree_forward=mode), Saved()
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda handle: handle.tensor):
            result = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width)
        assert result[0].requires_grad
        return saved.most

    off, on = most("off"), most("on")
    if reason == "is wrong":
        monkeypatch.setattr(FirstBatch, "mistake", lambda *_: "it is wrong")
    else:
        monkeypatch.setattr(first_batch, "PAYING_RATIO", 1e9)
    with pytest.warns(UserWarning, match="is off for this run"):
        left = most("auto")
    assert left == (max(on, off) if reason == "is wrong" else off)


@pytest.mark.parametrize(("asked", "state"), [("auto", State.OFF), ("on", State.IN_USE)])
@pytest.mark.filterwarnings("ignore:tree_forward='auto' is off")
def test_a_tree_that_is_only_slow_is_left_unless_it_is_insisted_on(asked, state, tmp_path, monkeypatch):
    monkeypatch.setattr(FirstBatch, "slowness", lambda _: "it is slow")
    trainer = trainer_of(model_of("qwen3"), tmp_path, tree_forward=asked)
    ids, mask, width = random_tree_batch(2, 5, prompt_tokens=24, completion_tokens=20, vocabulary=260)
    trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width)
    assert trainer.tree_pass.state is state


@pytest.mark.filterwarnings("ignore:tree_forward='auto' is off")
def test_it_is_measured_until_the_policy_has_been_which_is_the_pass_with_a_gradient(tmp_path, monkeypatch):
    """A reference, the policy without its adapter, may be right where the policy is wrong."""
    trainer = trainer_of(model_of("qwen3"), tmp_path, tree_forward="auto")
    ids, mask, width = random_tree_batch(2, 5, prompt_tokens=24, completion_tokens=20, vocabulary=260)
    with torch.no_grad():
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width)
    assert trainer.tree_pass.state is State.UNTRIED
    monkeypatch.setattr(FirstBatch, "mistake", lambda *_: "it is wrong")
    trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width)
    assert trainer.tree_pass.state is State.OFF


def test_it_is_measured_until_a_token_has_been(tmp_path):
    """TRL may mask all completions of a batch as truncated."""
    trainer = trainer_of(model_of("qwen3"), tmp_path)
    ids, mask, width = random_tree_batch(2, 5, prompt_tokens=24, completion_tokens=20, vocabulary=260)
    masked = mask.clone()
    masked[:, -width:] = 0
    for seen, state in ((masked, State.UNTRIED), (mask, State.IN_USE)):
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, width)
        assert trainer.tree_pass.state is state


@pytest.mark.parametrize("by_name", [True, False])
def test_rows_are_computed_in_trls_chunks_however_their_size_is_passed(by_name, tmp_path):
    """TRL passes it by name, PPO where it needs the old policy by position."""
    trainer = trainer_of(model_of("qwen3"), tmp_path)
    ids, mask, width = random_tree_batch(2, 4, prompt_tokens=24, completion_tokens=8, vocabulary=260)
    size = ({"batch_size": 4}, ()) if by_name else ({}, (4,))
    chunks = MagicMock(wraps=trainer.tree_pass._chunk)
    trainer.tree_pass._chunk = chunks
    for _ in range(2):  # the first batch, and one after it
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, width, *size[1], **size[0])
    assert chunks.call_count == 4
