"""Completions of a language model on a CPU, in less than half of the time that transformers' `generate` takes.

Completions of a prompt are one row of the model's batch as long as their tokens are the same, and what all prompts
begin with is read once. Completions that have ended leave the batch. A token needs one random number, not one for each
token of the vocabulary.
"""

from collections.abc import Sequence
from itertools import chain, takewhile

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.utils import ModelOutput
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

ROOM = 16  # tokens that a buffer of keys has beyond those that it needs


@torch.no_grad()
def sampled(
    model: PreTrainedModel,
    prefixes: Sequence[list[int]],
    counts: Sequence[int],
    limit: int,
    eos_token_ids: Sequence[int],
    temperature: float,
) -> list[list[list[int]]]:
    """
    Continuations of each prefix.

    Args:
        model ([`~transformers.PreTrainedModel`]): The policy, on the CPU.
        prefixes (`list[list[int]]`): Token ids that are continued.
        counts (`list[int]`): Number of continuations of each prefix.
        limit (`int`): Maximum length of a continuation, in tokens.
        eos_token_ids (`list[int]`): Tokens that end a continuation, and are its last.
        temperature (`float`): Divides the logits; above 0.
    """
    states = torch.arange(len(prefixes)).repeat_interleave(torch.tensor(counts))  # of the running rows
    mask, output = _read(model, prefixes)
    cache, eos = output.past_key_values, torch.tensor(eos_token_ids)
    found, place = [[] for _ in states], torch.arange(len(states))  # of the running rows among all
    for length in range(1, limit + 1):
        tokens = drawn(output.logits[:, -1], states, temperature)
        for index, token in zip(place.tolist(), tokens.tolist(), strict=True):
            found[index].append(token)
        running = torch.isin(tokens, eos, invert=True).nonzero().flatten()
        if not len(running) or length == limit:
            break
        place = place[running]
        (parents, tokens), states = torch.stack([states, tokens])[:, running].unique(dim=1, return_inverse=True)
        if not torch.equal(parents, torch.arange(len(mask))):
            cache.batch_select_indices(parents)
        mask = torch.nn.functional.pad(mask[parents], (0, 1), value=True)
        output = _forward(model, tokens[:, None], mask, cache)
    continuations = iter(found)
    return [[next(continuations) for _ in range(count)] for count in counts]


def _read(model: PreTrainedModel, prefixes: Sequence[list[int]]) -> tuple[torch.Tensor, ModelOutput]:
    """The mask of the prefixes, padded on the left behind what all begin with, `(P, W)`, and the model's output."""
    first, width = _shared(prefixes), max(map(len, prefixes))
    ids = torch.tensor([prefix[:first] + [0] * (width - len(prefix)) + prefix[first:] for prefix in prefixes])
    columns, pads = torch.arange(width), torch.tensor([[width - len(prefix)] for prefix in prefixes])
    mask, cache = (columns < first) | (columns >= first + pads), Cache(layer_class_to_replicate=_Roomy)
    if first:
        _forward(model, ids[:1, :first], mask[:1, :first], cache)
        cache.batch_select_indices(torch.zeros(len(prefixes), dtype=torch.long))
    return mask, _forward(model, ids[:, first:], mask, cache)


def _shared(prefixes: Sequence[list[int]]) -> int:
    """Number of tokens that all prefixes begin with, each without its last token."""
    columns = zip(*(prefix[:-1] for prefix in prefixes), strict=False)
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))


def _forward(model: PreTrainedModel, input_ids: torch.Tensor, mask: torch.Tensor, cache: Cache) -> ModelOutput:
    """A forward pass over the last tokens of the rows of a mask, with logits of the last one."""
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]
    return model(
        input_ids=input_ids,
        attention_mask=mask.long(),
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )


class _Roomy(DynamicLayer):
    """Keys and values of a layer in a buffer with room: a token is written, and those before it are not copied."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.buffer = torch.stack([key_states, value_states])[..., :0, :]  # (2, rows, heads, tokens and room, D)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        old, size = self.get_seq_length(), self.buffer.shape[-2]
        length = old + key_states.shape[-2]
        if length > size:
            self.buffer = torch.nn.functional.pad(self.buffer, (0, 0, 0, length + ROOM - size))
        self.buffer[..., old:length, :] = torch.stack([key_states, value_states])
        self.keys, self.values = self.buffer[..., :length, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.buffer = self.buffer[:, indices]
        self.keys, self.values = self.buffer[..., : self.get_seq_length(), :]


def drawn(logits: torch.Tensor, states: torch.Tensor, temperature: float) -> torch.Tensor:
    """
    A token for each row from its state's distribution, `(R,)`, each by a random number of its own.

    Args:
        logits (`torch.Tensor` of shape `(S, V)`): Of the states.
        states (`torch.Tensor` of shape `(R,)`): State of each row.
        temperature (`float`): Divides the logits; above 0.
    """
    # In double precision: float32 would round tokens with a chance below 1e-7 away, and sometimes draw token V.
    cumulative = (logits.float() / temperature).softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    points = torch.rand(len(states), dtype=torch.float64) * cumulative[:, -1:]  # (S, R)
    return torch.searchsorted(cumulative, points, right=True)[states, torch.arange(len(states))]


def sample_quickly_on_a_cpu() -> None:
    """
    Let all of TRL's trainers in this process sample here, where they would with a temperature alone, on the CPU.

    The distribution is the same, its random numbers are others.
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
    """What TRL's method returns: completions, and no log-probabilities. Equal prompts are read once."""
    rows: dict[tuple[int, ...], list[int]] = {}  # of each prompt
    for row, ids in enumerate(prompt_ids):
        rows.setdefault(tuple(ids), []).append(row)
    accelerator = trainer.accelerator
    with accelerator.autocast(), unwrap_model_for_generation(trainer.model_wrapped, accelerator) as model:
        found = sampled(
            model,
            [list(ids) for ids in rows],
            counts=[len(own) for own in rows.values()],
            limit=trainer.max_completion_length,
            eos_token_ids=trainer.eos_token_ids,
            temperature=trainer.args.temperature,
        )
    by_row = dict(zip(chain(*rows.values()), chain(*found), strict=True))
    return [by_row[row] for row in range(len(prompt_ids))], None
