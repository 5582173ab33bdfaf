"""Completions of a language model on a CPU, in less than half of the time that transformers' `generate` takes.

Equal prompts are read once, rows that have ended leave the batch, and a token needs one random number, not one for
each token of the vocabulary. A recorder can watch the hidden states, which sampling computes anyway.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils import ModelOutput
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation


class Recorder(Protocol):
    """What watches the sampling."""

    def begin(self, model: PreTrainedModel, rows: int) -> None:
        """So many rows are about to be sampled."""

    def keep(self, place: torch.Tensor, length: int, output: Any, tokens: torch.Tensor) -> None:
        """
        Rows got a token.

        Args:
            place (`torch.Tensor` of shape `(B,)`): The rows, among all.
            length (`int`): Tokens that they have got before.
            output: The model's output with `hidden_states`; the last position is the state before the token.
            tokens (`torch.Tensor` of shape `(B,)`): The tokens.
        """


@torch.no_grad()
def sampled(
    model: PreTrainedModel,
    prefixes: Sequence[list[int]],
    counts: Sequence[int],
    limits: Sequence[int],
    eos_token_ids: Sequence[int],
    temperature: float,
    recorder: Recorder | None = None,
) -> list[list[list[int]]]:
    """
    Continuations of each prefix.

    Args:
        model ([`~transformers.PreTrainedModel`]): The policy, on the CPU.
        prefixes (`list[list[int]]`): Token ids that are continued.
        counts (`list[int]`): Number of continuations of each prefix.
        limits (`list[int]`): Maximum length of a prefix's continuations, in tokens.
        eos_token_ids (`list[int]`): Tokens that end a continuation, and are its last.
        temperature (`float`): Divides the logits; above 0.
        recorder ([`Recorder`], *optional*): Sees each step.
    """
    rows = torch.arange(len(prefixes)).repeat_interleave(torch.tensor(counts))
    mask, output = _read(model, prefixes, recorder is not None)
    cache, mask, output = output.past_key_values, mask[rows], _of_rows(output, rows)
    cache.batch_select_indices(rows)
    limit, eos = torch.tensor(limits)[rows], torch.tensor(eos_token_ids)
    found, place = [[] for _ in rows], torch.arange(len(rows))  # of the rows of the batch among all
    if recorder is not None:
        recorder.begin(model, len(rows))
    for length in range(1, max(limits) + 1):
        tokens = drawn(output.logits[:, -1], temperature)
        if recorder is not None:
            recorder.keep(place, length - 1, output, tokens)
        for index, token in zip(place.tolist(), tokens.tolist(), strict=True):
            found[index].append(token)
        running = (~torch.isin(tokens, eos) & (length < limit)).nonzero().flatten()
        if not len(running):
            break
        if len(running) < len(tokens):
            cache.batch_select_indices(running)
            place, tokens, mask, limit = place[running], tokens[running], mask[running], limit[running]
        mask = torch.nn.functional.pad(mask, (0, 1), value=True)
        output = _forward(model, tokens[:, None], mask, recorder is not None, cache)
    continuations = iter(found)
    return [[next(continuations) for _ in range(count)] for count in counts]


def _read(model: PreTrainedModel, prefixes: Sequence[list[int]], states: bool) -> tuple[torch.Tensor, ModelOutput]:
    """The mask of the prefixes, padded on the left, `(P, W)`, and the model's output for them."""
    width = max(map(len, prefixes))
    ids = torch.tensor([[0] * (width - len(prefix)) + prefix for prefix in prefixes])
    mask = torch.arange(width) >= width - torch.tensor([[len(prefix)] for prefix in prefixes])
    return mask, _forward(model, ids, mask, states)


def _forward(
    model: PreTrainedModel, input_ids: torch.Tensor, mask: torch.Tensor, states: bool, cache: Cache | None = None
) -> ModelOutput:
    """A forward pass over the last tokens of the rows of a mask, with logits of the last one."""
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]
    return model(
        input_ids=input_ids,
        attention_mask=mask.long(),
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
        output_hidden_states=states,
    )


def _of_rows(output: ModelOutput, rows: torch.Tensor) -> ModelOutput:
    """The output for continuations of the prefixes `rows`, at the last position."""
    output.logits = output.logits[rows]
    if output.hidden_states is not None:
        output.hidden_states = tuple(layer[rows, -1:] for layer in output.hidden_states)
    return output


def drawn(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """A token of each row's distribution, `(B,)`."""
    cumulative = (logits.float() / temperature).softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(cumulative, torch.rand(len(logits), 1) * cumulative[:, -1:], right=True)[:, 0]


def sample_quickly_on_a_cpu() -> None:
    """
    Let all of TRL's trainers in this process sample here, where they would with a temperature alone, on the CPU.

    The distribution is the same, its random numbers are others. If the trainer's credit function has an attribute
    `recorded`, this is the recorder.
    """
    theirs = GRPOTrainer._generate_single_turn

    def generate_single_turn(trainer, prompt_ids, images, *args, **kwargs):
        quickly = trainer.accelerator.device.type == "cpu" and samples_plainly(trainer.args) and images is None
        return _completions(trainer, prompt_ids) if quickly else theirs(trainer, prompt_ids, images, *args, **kwargs)

    GRPOTrainer._generate_single_turn = generate_single_turn


def samples_plainly(args: GRPOConfig) -> bool:
    """Whether completions are sampled from the model's distribution at a temperature, by transformers."""
    cut = args.top_k or args.top_p < 1 or args.min_p or args.repetition_penalty != 1 or args.generation_kwargs
    other = args.use_vllm or args.use_transformers_continuous_batching or args.use_transformers_paged
    return not (cut or other)


def _completions(trainer: GRPOTrainer, prompt_ids: list[list[int]]) -> tuple[list[list[int]], None]:
    """What TRL's method returns: completions, and no log-probabilities. Equal prompts are adjacent."""
    groups = [(ids, len(list(group))) for ids, group in groupby(prompt_ids)]
    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
        found = sampled(
            model,
            [ids for ids, _ in groups],
            counts=[count for _, count in groups],
            limits=[trainer.max_completion_length] * len(groups),
            eos_token_ids=trainer.eos_token_ids,
            temperature=trainer.args.temperature,
            recorder=getattr(getattr(trainer, "credit_func", None), "recorded", None),
        )
    return [ids for own in found for ids in own], None
