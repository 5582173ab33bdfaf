"""In half precision the first batch passes trees that only round, and refuses trees that hide or show a token."""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from tempo_trl.demo.task import policy_path
from tempo_trl.tree_forward import tree_attention
from tempo_trl.tree_forward.tree_pass import State

from .models import trainer_of

PROMPT, COMPLETION, GROUP = 96, 64, 8
plain_mask = tree_attention._mask


@cache
def sampled() -> torch.Tensor:
    """Input ids of two groups of the demonstration's policy."""
    model, generator = AutoModelForCausalLM.from_pretrained(policy_path()), torch.Generator().manual_seed(1)
    ids = torch.randint(3, model.config.vocab_size, (2, PROMPT), generator=generator).repeat_interleave(GROUP, 0)
    for _ in range(COMPLETION):
        with torch.no_grad():
            chances = model(input_ids=ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], dim=1)
    return ids


def sampled_rows(pads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """These rows, as completions come: (input ids, mask), with left padding."""
    return F.pad(sampled(), (pads, 0)), F.pad(torch.ones_like(sampled()), (pads, 0))


def first_batch(folder, dtype: torch.dtype, temperature: float = 1.0, pads: int = 7):
    """Compute a first batch with weights, or with activations, in bfloat16, where a tree that is refused raises."""
    model = AutoModelForCausalLM.from_pretrained(policy_path(), dtype=dtype)
    autocast = dtype == torch.float32
    trainer = trainer_of(model, folder, bf16=autocast, temperature=temperature, tree_forward="on")
    trainer.model.train()
    rows = sampled_rows(pads)
    trainer._get_per_token_logps_and_entropies(trainer.model, *rows, COMPLETION, compute_entropy=True)
    return trainer.tree_pass


AUTOCAST, WEIGHTS = torch.float32, torch.bfloat16


@pytest.mark.matrix
@pytest.mark.both_stacks
@pytest.mark.parametrize(
    ("dtype", "pads", "temperature"),
    [(AUTOCAST, 0, 1.0), (AUTOCAST, 7, 0.6), (AUTOCAST, 300, 1.0), (WEIGHTS, 7, 0.6), (WEIGHTS, 300, 1.0)],
)
def test_a_right_tree_is_taken(dtype, pads, temperature, tmp_path):
    assert first_batch(tmp_path, dtype, temperature, pads).state is State.IN_USE


def one_key_too_many(tail, length, window, device, masks):
    columns = torch.arange(length, device=device)
    return (columns[-tail:, None] - columns >= -1)[None, None]


def a_prompt_token_hidden(tail, length, window, device, masks):
    mask = plain_mask(tail, length, window, device, {}).clone()
    mask[..., 5] = False
    return mask


def the_last_shared_token_hidden(tail, length, window, device, masks):
    mask = plain_mask(tail, length, window, device, {}).clone()
    mask[..., length - tail - 1] = False
    return mask


def one_key_too_many_in_one_row(tail, length, window, device, masks):
    if masks.setdefault("wrong row", tail) == tail:
        return one_key_too_many(tail, length, window, device, masks)
    return plain_mask(tail, length, window, device, {})


@pytest.mark.matrix
@pytest.mark.both_stacks
@pytest.mark.parametrize(
    "mistake", [one_key_too_many, a_prompt_token_hidden, the_last_shared_token_hidden, one_key_too_many_in_one_row]
)
def test_a_wrong_tree_is_refused(mistake, tmp_path, monkeypatch):
    monkeypatch.setattr(tree_attention, "_mask", mistake)
    with pytest.raises(ValueError, match="rounding explains"):
        first_batch(tmp_path, torch.float32)
