"""Continuations from TRL's vLLM server: token ids in, token ids and log-probabilities out."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.trainer.utils import get_config_model_id

from tempo_trl.rollout.completion_rules import end_token_ids
from tempo_trl.rollout.growth import Continuation, Request, Top
from tempo_trl.rollout.ranks import gather_on_main, scatter_from_main
from tempo_trl.rollout.vllm_server import advice_if_server_stops

CONNECTIONS = 64  # concurrent calls, as in TRL's client; the server batches them
_GREEDY = 1e-5  # below this temperature vLLM takes the most likely token


class VLLMSampler:
    """
    Continues prefixes on the vLLM server of a trainer. The main process sends the requests of all ranks, with one call
    for all requests of the same number and length, and all calls at once.

    With a fixed `seed` in `generation_kwargs` every request of every round would get the same random numbers, so
    siblings grown in different rounds would be equal. Each request is then sent in its own call, with a seed derived
    from the given one, the optimizer step, the round and its index in the round. A run with the same seed and number
    of ranks samples the same trees.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer, whose `vllm_generation` has the server and the sampling settings.
    """

    def __init__(self, trainer: GRPOTrainer):
        vllm = trainer.vllm_generation
        self.trainer = trainer
        self.options = dict(vllm.generation_kwargs or {})
        self.how = {
            "repetition_penalty": vllm.repetition_penalty,
            "temperature": self.options.get("temperature", vllm.temperature),
            "top_p": vllm.top_p,
            "top_k": vllm.top_k,
            "min_p": vllm.min_p or 0.0,
        }
        self.ends = end_token_ids(trainer)
        self.rounds = 0

    def sample(self, requests: Sequence[Request], top_k: int = 0) -> list[list[Continuation]]:
        """
        The continuations of each request. This is a collective: every rank must call it in every round.

        Raises:
            ConnectionError: if the server does not answer; the message says what to do.
        """
        of_ranks = gather_on_main(list(requests))
        answers = None
        if of_ranks is not None:
            found = iter(self._ask([request for of_rank in of_ranks for request in of_rank], top_k))
            answers = [[next(found) for _ in of_rank] for of_rank in of_ranks]
        self.rounds += 1
        return scatter_from_main(answers)

    def _ask(self, requests: list[Request], top_k: int) -> list[list[Continuation]]:
        def ask(call: list[int]) -> list[list[Continuation]]:
            return self._call([requests[index] for index in call], call[0], top_k)

        calls = self._calls(requests)
        name = getattr(self.trainer, "_model_name", None) or get_config_model_id(self.trainer.model.config)
        with (
            advice_if_server_stops(self.trainer.args, name, self.trainer.state.global_step),
            profiling_context(self.trainer, "vLLM.generate"),
            ThreadPoolExecutor(max_workers=CONNECTIONS) as executor,
        ):
            found = [answer for answers in executor.map(ask, calls) for answer in answers]
        order = [index for call in calls for index in call]
        return [answer for _, answer in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def _calls(self, requests: list[Request]) -> list[list[int]]:
        """Groups of requests for one call: those of the same number and length, or single ones if they have seeds."""
        alike = {}
        for index, request in enumerate(requests):
            seeded = index if self.options.get("seed") is not None else None
            alike.setdefault((request.n, request.max_tokens, seeded), []).append(index)
        return list(alike.values())

    def _call(self, requests: list[Request], place: int, top_k: int) -> list[list[Continuation]]:
        n, max_tokens = requests[0].n, requests[0].max_tokens
        copies = n if self.how["temperature"] < _GREEDY else 1  # vLLM rejects n above 1 with greedy sampling
        answer = self.trainer.vllm_generation.vllm_client.generate(
            prompts=[request.prefix_ids for request in requests],
            n=n // copies,
            max_tokens=max_tokens,
            logprobs=top_k,
            generation_kwargs=self.options | self._seed(place),
            **self.how,
        )
        columns = answer["completion_ids"], answer["logprobs"], answer["logprob_token_ids"]
        rows = [row for row in zip(*columns, strict=True) for _ in range(copies)]
        found = [self._continuation(*row, max_tokens, top_k) for row in rows]
        return [found[start : start + n] for start in range(0, len(found), n)]

    def _seed(self, place: int) -> dict[str, int]:
        seed = self.options.get("seed")
        if seed is None:
            return {}
        micro_step = self.trainer._step % self.trainer.args.gradient_accumulation_steps  # a step may generate twice
        steps = self.trainer.state.global_step, micro_step
        origin = np.random.SeedSequence([seed, *steps, self.rounds, place])
        return {"seed": int(origin.generate_state(1)[0] >> 1)}

    def _continuation(
        self,
        token_ids: list[int],
        logprobs: list[list[float]],
        candidates: list[list[int]],
        max_tokens: int,
        top_k: int,
    ) -> Continuation:
        """One completion of the server, with the most likely tokens and the sampled token at each position.

        Raises:
            ValueError: if a log-probability is NaN, which TRL's client returns as None.
        """
        if any(None in of_step for of_step in logprobs):
            raise ValueError(
                f"The vLLM server returned NaN as a log-probability at step {self.trainer.state.global_step}: its "
                "weights contain NaN or infinity. Lower the learning rate or `max_grad_norm`, and resume from a "
                "checkpoint before that step."
            )
        return Continuation(
            token_ids,
            [of_step[ids.index(token)] for token, of_step, ids in zip(token_ids, logprobs, candidates, strict=True)],
            stopped=len(token_ids) < max_tokens or token_ids[-1] in self.ends,
            top=_top(candidates, logprobs, top_k) if top_k else None,
        )


def _top(candidates: list[list[int]], logprobs: list[list[float]], top_k: int) -> Top:
    """The `top_k` most likely tokens of each position, which vLLM returns first, sorted."""
    width = min(top_k, *map(len, logprobs))
    token_ids = torch.tensor([ids[:width] for ids in candidates], dtype=torch.int32)  # half the size to send to ranks
    return Top(token_ids, torch.tensor([x[:width] for x in logprobs]))
