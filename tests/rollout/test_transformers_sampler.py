"""The transformers sampler against loops without a cache: same tokens, same log-probabilities, same distribution."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen3ForCausalLM

from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import Request, Rules, grow
from tempo_trl.rollout.transformers_sampler import TransformersSampler

from ..tiny import tiny_model_config
from .naive import NaiveGreedySampler, assert_same_trees

PROMPTS = [[30, 40, 50, 60, 70], [33], [44, 55]]  # of unequal length


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def model(tiny_model):
    """Sharp enough that rounding does not decide between tokens."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    with torch.no_grad():
        model.lm_head.weight *= 30
    model.generation_config.eos_token_id = None  # it would stand in where a test has none
    return model


def settings(tokenizer, **options) -> GenerationConfig:
    defaults = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 1}
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return GenerationConfig(**(defaults | ends | options), disable_compile=True)


def sampler(model, tokenizer, **options) -> TransformersSampler:
    return TransformersSampler(model, settings(tokenizer, **options), tokenizer)


def rules(tokenizer, max_tokens: int = 24, eos=(), **options) -> Rules:
    return Rules(max_tokens, (tokenizer.eos_token_id, *eos), tokenizer=tokenizer, **options)


GROWERS = {
    "fixed": FixedTree(2, 3, 5),
    "entropy": EntropyTree(
        8, min_segment_tokens=2, entropy_threshold=0.3, delimiters=[chr(c) for c in range(33, 126)]
    ),
}


@pytest.mark.parametrize("eos", [(), tuple(range(20, 100, 3))], ids=["one EOS", "several EOS"])
@pytest.mark.parametrize("name", GROWERS)
def test_greedy_trees_are_those_of_a_loop_without_a_cache(name, eos, model, tokenizer):
    ends = rules(tokenizer, eos=eos, greedy=True)
    greedy = sampler(model, tokenizer, do_sample=False, eos_token_id=[tokenizer.eos_token_id, *eos])
    trees = grow(GROWERS[name], PROMPTS, ends, greedy)
    assert_same_trees(trees, grow(GROWERS[name], PROMPTS, ends, NaiveGreedySampler(model, ends.eos_token_ids)))
    assert any(len(tree.segments) > 4 for tree in trees)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.6}], ids=["T = 1", "T = 0.6"])
def test_log_probabilities_are_those_of_a_fresh_forward_pass(options, model, tokenizer):
    torch.manual_seed(0)
    requests = [Request(prompt, [90, 91], 4, 12) for prompt in PROMPTS]
    answers = sampler(model, tokenizer, **options).sample(requests, top_k=20)
    for request, continuations in zip(requests, answers, strict=True):
        for continuation in continuations:
            ids = torch.tensor([request.prefix_ids + continuation.token_ids])
            with torch.no_grad():
                logits = model(ids).logits[0, len(request.prefix_ids) - 1 : -1] / options.get("temperature", 1.0)
            logps = logits.log_softmax(dim=-1)
            own = logps.gather(1, torch.tensor(continuation.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(continuation.logprobs), own, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(continuation.top.logprobs, logps.topk(20).values, atol=1e-4, rtol=1e-4)
            assert continuation.top.token_ids.shape == (len(continuation.token_ids), 20)


def test_truncated_sampling_is_described_after_truncation(model, tokenizer):
    answers = sampler(model, tokenizer, top_k=3).sample([Request([30, 31], [], 5, 6)], top_k=20)
    for continuation in answers[0]:
        probabilities = continuation.top.logprobs.exp()
        torch.testing.assert_close(probabilities[:, :3].sum(dim=1), torch.ones(len(continuation.token_ids)))
        assert (probabilities[:, 3:] == 0).all()


@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.3, "top_k": 25, "top_p": 0.95, "temperature": 0.6}])
def test_siblings_are_independent_samples_of_the_policy(options, tokenizer):
    """Pairs of siblings against the products of probabilities that a loop enumerates: chi-square at 0.1%."""
    torch.manual_seed(0)
    small = Qwen3ForCausalLM(tiny_model_config(6)).eval()
    with torch.no_grad():
        small.lm_head.weight *= 8
    drawing = TransformersSampler(small, settings(tokenizer, eos_token_id=None, pad_token_id=0, **options), Padded)
    torch.manual_seed(1)
    prefixes, pairs = [[3, 1, 4, 1], [5, 2, 5, 5]], 3000
    answers = drawing.sample([Request(prefix, [], 2 * pairs, 2) for prefix in prefixes])
    for prefix, continuations in zip(prefixes, answers, strict=True):
        expected = {}
        whole = settings(tokenizer, eos_token_id=None, pad_token_id=0, **options)
        for token, first in enumerate(step(small, prefix, whole)):
            if first > 0:
                second = step(small, [*prefix, token], whole)
                expected |= {(token, after): float(first) * p for after, p in enumerate(second.tolist()) if p > 0}
        drawn = [tuple(continuation.token_ids) for continuation in continuations]
        joint = {(a, b): expected[a] * expected[b] * pairs for a in expected for b in expected}
        assert len(joint) >= 9, "nothing to tell apart"
        seen = dict.fromkeys(joint, 0)
        for pair in zip(drawn[::2], drawn[1::2], strict=True):
            seen[pair] += 1
        assert chi_square_p(list(seen.values()), list(joint.values())) > 1e-3


class Padded:
    pad_token_id = 0


@torch.no_grad()
def step(model, prefix: list[int], config: GenerationConfig) -> torch.Tensor:
    """Next-token probabilities as transformers processes them, without a cache."""
    config = copy.deepcopy(config)
    config.update(max_new_tokens=1, return_dict_in_generate=True, output_scores=True, use_cache=False)
    ids = torch.tensor([prefix])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return output.scores[0][0].double().softmax(dim=-1)


def chi_square_p(seen: list[int], expected: list[float]) -> float:
    """P-value of Pearson's test; cells that expect less than 5 are one."""
    many = np.array(expected) >= 5
    cells = [[*np.array(x)[many], np.array(x)[~many].sum()] for x in (seen, expected)]
    return float(chisquare(*cells, sum_check=False).pvalue)


def test_padding_is_not_penalized_as_a_repetition(model, tokenizer):
    """transformers 5.17 penalizes what the attention mask hides; later versions do not."""
    short, long = Request([30, 31], [], 1, 6), Request([30, 31], list(range(40, 50)), 1, 6)
    penalizing = sampler(model, tokenizer, do_sample=False, repetition_penalty=1.5)
    padded, alone = (penalizing.sample(requests, len(tokenizer))[0][0] for requests in ([short, long], [short]))
    of_tokens = [top.logprobs.gather(1, top.token_ids.argsort(dim=1)) for top in (padded.top, alone.top)]
    torch.testing.assert_close(*of_tokens, atol=1e-4, rtol=1e-4)


def test_an_empty_round_makes_as_many_calls_as_any_other(model, tokenizer):
    calls = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    try:
        assert sampler(model, tokenizer).sample([]) == []
        empty = len(calls)
        sampler(model, tokenizer).sample([Request([30], [], 2, 1)])
    finally:
        hook.remove()
    assert empty == 2 == len(calls) - empty


def test_a_stop_string_ends_a_continuation_and_leaves_no_padding(model, tokenizer):
    greedy = sampler(model, tokenizer, do_sample=False, eos_token_id=None)
    ((whole,),) = greedy.sample([Request([30, 31], [], 1, 12)])
    stop = tokenizer.decode(whole.token_ids[4:6])
    end = next(n for n in range(1, 13) if stop in tokenizer.decode(whole.token_ids[:n]))
    options = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id, "stop_strings": stop}
    requests = [Request([30, 31], [], 2, 12), Request([40], [], 1, 12)]
    answers = sampler(model, tokenizer, **options).sample(requests)
    assert all(c.stopped and c.token_ids == whole.token_ids[:end] for c in answers[0])
    assert all(len(c.logprobs) == end for c in answers[0])


def test_a_stop_string_that_begins_in_the_prompt_does_not_end_a_continuation(model, tokenizer):
    options = {"do_sample": False, "eos_token_id": None}
    ((whole,),) = sampler(model, tokenizer, **options).sample([Request([30, 31], [], 1, 6)])
    stop = tokenizer.decode([31, whole.token_ids[0]])
    ((answer,),) = sampler(model, tokenizer, **options, stop_strings=stop).sample([Request([30, 31], [], 1, 6)])
    assert stop not in tokenizer.decode(whole.token_ids)
    assert answer.token_ids == whole.token_ids


def test_prefixes_go_to_where_the_model_computes_whatever_holds_its_parameters(model, tokenizer):
    """Under FSDP2 with offload the parameters lie on the CPU, and `model.device` with them."""
    there = TransformersSampler(model, settings(tokenizer), tokenizer, torch.device("meta"))
    assert {tensor.device.type for tensor in there._distinct([Request([5, 6], [], 2, 4)])} == {"meta"}
