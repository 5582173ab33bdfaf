"""Continuations from transformers' own `generate`, with one prefill per distinct prefix."""

import contextlib
import copy
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import torch
from transformers import Cache, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import StoppingCriteria, StoppingCriteriaList, StopStringCriteria
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models.utils import unwrap_model_for_generation

from tempo_trl.rollout.completion_rules import end_token_ids
from tempo_trl.rollout.growth import Continuation, Request, Top


class TransformersSampler:
    """
    Continues prefixes with a transformers model: one forward pass over the distinct prefixes, then one `generate` for
    all continuations, on copies of the prefixes' cache. Sampling and stopping are those of transformers.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            The policy, ready for generation, possibly in PEFT's wrapper.
        generation_config ([`~transformers.GenerationConfig`]):
            Sampling settings. Its `max_new_tokens` is replaced by the requests', its `cache_implementation` by a
            dynamic cache, which can be copied.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Provides the pad token, and decodes stop strings.
        device (`torch.device`, *optional*):
            Device of the computation, if parameters may be elsewhere, as under FSDP2 with offload.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        generation_config: GenerationConfig,
        tokenizer: PreTrainedTokenizerBase,
        device: torch.device | None = None,
    ):
        self.model, self.pad_token_id = model, tokenizer.pad_token_id
        self.device = device or model.device
        self.config = copy.deepcopy(generation_config)
        stop_strings, self.config.stop_strings = self.config.stop_strings, None
        self.stop_strings = StopStringCriteria(tokenizer, stop_strings) if stop_strings else None
        eos = self.config.eos_token_id
        self.eos_token_ids = [eos] if isinstance(eos, int) else list(eos or ())
        self.config.cache_implementation = None
        self.config.use_cache = True
        self.config.return_dict_in_generate = self.config.output_scores = True

    @torch.no_grad()
    def sample(self, requests: Sequence[Request], top_k: int = 0) -> list[list[Continuation]]:
        """
        The continuations of each request.

        Every call makes one prefill and one `generate`, even without requests, because a forward pass is a collective
        under ZeRO-3 and FSDP.
        """
        if not requests:
            self._continue([Request([self.pad_token_id], [], 1, 1)], top_k=0)
            return []
        return self._continue(requests, top_k)

    def _continue(self, requests: Sequence[Request], top_k: int) -> list[list[Continuation]]:
        input_ids, attention_mask, rows = self._distinct(requests)
        cache = self._prefill(input_ids[:, :-1], attention_mask[:, :-1])
        cache.reorder_cache(rows)  # a copy of its prefix's cache for each continuation
        limits = torch.tensor([request.max_tokens for request in requests for _ in range(request.n)])
        recorder = StepRecorder(input_ids.shape[1], limits.to(input_ids.device), self.stop_strings, top_k)
        self.config.max_new_tokens = int(limits.max())
        # Where ours has None, `generate` would take the kind of cache that the model's file names.
        with patch.object(self.model.generation_config, "cache_implementation", None):
            output = self.model.generate(
                input_ids=input_ids[rows],
                attention_mask=attention_mask[rows],
                past_key_values=cache,
                generation_config=self.config,
                stopping_criteria=StoppingCriteriaList([recorder]),
            )
        found = iter(recorder.continuations(output.sequences, self.eos_token_ids))
        return [[next(found) for _ in range(request.n)] for request in requests]

    def _distinct(self, requests: Sequence[Request]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Distinct prefixes, left-padded, their mask, and the prefix of each continuation."""
        prefixes = {tuple(request.prefix_ids): None for request in requests}
        row = {prefix: index for index, prefix in enumerate(prefixes)}
        width = max(2, *map(len, prefixes))  # at least one token to prefill, so that there is a cache
        padding = [width - len(prefix) for prefix in prefixes]
        # With a row's own first token: a repetition penalty reads masked tokens, too, and padding is often EOS.
        ids = [[prefix[0]] * left + [*prefix] for left, prefix in zip(padding, prefixes, strict=True)]
        mask = [[0] * left + [1] * (width - left) for left in padding]
        rows = [row[tuple(request.prefix_ids)] for request in requests for _ in range(request.n)]
        return tuple(torch.tensor(x, device=self.device) for x in (ids, mask, rows))

    def _prefill(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Cache:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        keep = {"logits_to_keep": 1} if self.model._supports_logits_to_keep() else {}
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, use_cache=True, **keep
        )
        return output.past_key_values


class StepRecorder(StoppingCriteria):
    """
    Ends each row of `generate` at its own limit or at a stop string, and keeps the requested part of each step's
    distribution. `output_scores` alone would keep (B, V) numbers per step.

    Args:
        width (`int`):
            Tokens before the continuations.
        limits (`torch.Tensor` of shape `(B,)`):
            Maximum length of each row's continuation, in tokens.
        stop_strings ([`~transformers.StopStringCriteria`], *optional*):
            Returns which rows end with a stop string.
        top_k (`int`):
            Number of most likely tokens to keep at each position.
    """

    def __init__(self, width: int, limits: torch.Tensor, stop_strings: StopStringCriteria | None, top_k: int):
        self.width, self.limits, self.stop_strings, self.top_k = width, limits, stop_strings, top_k
        self.never = torch.full_like(limits, torch.iinfo(limits.dtype).max)
        self.stop_string_at = self.never  # tokens of a continuation up to its first stop string
        self.logprobs, self.top_logprobs, self.top_ids = [], [], []

    def __call__(self, input_ids, scores, **kwargs) -> torch.Tensor:
        self._keep(input_ids[:, -1:], scores[-1])
        length = input_ids.shape[1] - self.width
        if self.stop_strings is not None:
            # Read the continuation alone: the prompt does not count, and [`Rules`] finds what begins in the path.
            spelled = self.stop_strings(input_ids[:, self.width :], scores)
            here = torch.where(spelled, length, self.never)
            self.stop_string_at = torch.minimum(self.stop_string_at, here)
        return length >= torch.minimum(self.limits, self.stop_string_at)

    def _keep(self, sampled: torch.Tensor, scores: torch.Tensor) -> None:
        logprobs = scores.log_softmax(dim=-1)
        self.logprobs.append(logprobs.gather(1, sampled))
        if self.top_k:
            top = logprobs.topk(min(self.top_k, logprobs.shape[1]))
            self.top_logprobs.append(top.values)
            self.top_ids.append(top.indices)
        scores.data = scores.new_empty(0)  # `generate` keeps the tensors of all steps: free their memory

    def continuations(self, sequences: torch.Tensor, eos_token_ids: list[int]) -> list[Continuation]:
        """The continuation in each row of `generate`'s result, up to its end."""
        new = sequences[:, self.width :]
        is_eos = torch.isin(new, torch.tensor(eos_token_ids, device=new.device, dtype=new.dtype))
        eos_at = torch.where(is_eos.any(dim=1), is_eos.int().argmax(dim=1) + 1, self.never)
        stops = torch.minimum(eos_at, self.stop_string_at)
        lengths = torch.minimum(stops, self.limits)
        logprobs = torch.cat(self.logprobs, dim=1)
        columns = [x.tolist() for x in (new, logprobs, lengths, stops <= self.limits)]
        tops = self._tops(lengths.tolist())
        return [
            Continuation(ids[:length], row_logprobs[:length], stopped, top)
            for ids, row_logprobs, length, stopped, top in zip(*columns, tops, strict=True)
        ]

    def _tops(self, lengths: list[int]) -> list[Top | None]:
        if not self.top_k:
            return [None] * len(lengths)
        ids, logprobs = torch.stack(self.top_ids, dim=1).cpu(), torch.stack(self.top_logprobs, dim=1).cpu()
        return [Top(ids[row, :length], logprobs[row, :length]) for row, length in enumerate(lengths)]


@contextlib.contextmanager
def transformers_sampler(trainer: GRPOTrainer) -> Iterator[TransformersSampler]:
    """A sampler with the trainer's policy, prepared inside the block as in TRL's own generation.

    With ZeRO-3 the weights are gathered once for all rounds.
    """
    with (
        profiling_context(trainer, "transformers.generate"),
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            generation_kwargs=trainer.generation_kwargs,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        torch.no_grad(),
        trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
    ):
        config = copy.deepcopy(trainer.generation_config)
        # `generation_kwargs` may name other end tokens, or none. TRL cuts completions at its own nevertheless.
        config.eos_token_id = sorted(end_token_ids(trainer))
        yield TransformersSampler(model, config, trainer._tokenizer, trainer.accelerator.device)
