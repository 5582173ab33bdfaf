"""Trees grown on a real vLLM server are those of the trained weights, with the log-probabilities of the policy."""

from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM

from tempo_trl.rollout.growth import Request, Rules, grow

from ..rollout.naive import NaiveGreedySampler, assert_same_trees
from ..rollout.rank import GROWERS
from ..tiny import tiny_tokenizer
from ..trainers.launching import free_port, run_ranks, torchrun
from ..trainers.recording import questions

pytest.importorskip("vllm", reason="not run here: vLLM has an environment of its own, `make test-vllm`")

LENGTH = 12


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def run(request, server, served_model, tmp_path_factory):
    """The model that was trained, and what each rank wrote."""
    ranks, folder = request.param, tmp_path_factory.mktemp("grown")
    arguments = served_model, folder, server.url, f"vllm_group_port={free_port()}"
    written = run_ranks(torchrun(ranks), ranks, "tests.rollout.server_rank", *arguments)
    return AutoModelForCausalLM.from_pretrained(folder).eval(), written


def rules(rank: dict, **options) -> Rules:
    return Rules(LENGTH, rank["eos_token_ids"], tokenizer=tiny_tokenizer(), greedy=True, **options)


@pytest.mark.parametrize("grower", GROWERS)
def test_greedy_trees_are_those_of_the_trained_weights_in_a_loop_without_a_cache(grower, run):
    model, ranks = run
    for rank in ranks:
        grown = rank["grown"][grower, "greedy"]
        oracle = NaiveGreedySampler(model, rank["eos_token_ids"])
        assert_same_trees(grown["trees"], grow(GROWERS[grower], grown["prompt_ids"], rules(rank), oracle), 1e-3)


@pytest.mark.parametrize("sampling", ["sampled", "without a seed"])
@pytest.mark.parametrize("grower", GROWERS)
def test_log_probabilities_are_those_of_the_policy_on_every_token_forced_or_not(grower, sampling, run):
    model, ranks = run
    for rank in ranks:
        for tree, prompt_ids in zip(
            *(rank["grown"][grower, sampling][x] for x in ("trees", "prompt_ids")), strict=True
        ):
            for leaf in tree.leaves():
                completion = tree.completion_ids(leaf)
                with torch.no_grad():
                    logits = model(torch.tensor([prompt_ids + completion])).logits[0, len(prompt_ids) - 1 : -1]
                own = logits.log_softmax(dim=-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
                torch.testing.assert_close(torch.tensor(tree.logprobs(leaf)), own, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("grower", GROWERS)
def test_trl_gets_the_completions_of_the_trees_with_their_log_probabilities(grower, run):
    for rank in run[1]:
        grown = rank["grown"][grower, "sampled"]
        rows = [(tree, leaf) for tree in grown["trees"] for leaf in tree.rows]
        assert grown["completion_ids"] == [tree.completion_ids(leaf) for tree, leaf in rows]
        assert grown["logprobs"] == [tree.logprobs(leaf) for tree, leaf in rows]


def test_a_fixed_seed_makes_the_same_trees_again_and_no_two_requests_alike(run):
    for rank in run[1]:
        grown = rank["grown"]["fixed", "sampled"]["trees"]
        again = rank["grown"]["fixed", "again"]["trees"]
        assert [tree.completion_ids(leaf) for tree in grown for leaf in tree.rows] == [
            tree.completion_ids(leaf) for tree in again for leaf in tree.rows
        ]
    pieces = [
        tuple(segment.token_ids)
        for rank in run[1]
        for tree in rank["grown"]["fixed", "sampled"]["trees"]
        for segment in tree.segments
        if len(segment.token_ids) > 2
    ]
    assert len(set(pieces)) > 0.8 * len(pieces)


def test_a_stop_string_ends_a_completion(server, served_model, tmp_path):
    stops = frequent_characters(served_model)
    options = f"generation_kwargs={ {'stop': list(stops)} }", "learning_rate=0.0", f"vllm_group_port={free_port()}"
    (rank,) = run_ranks(torchrun(1), 1, "tests.rollout.server_rank", served_model, tmp_path, server.url, *options)
    grown = rank["grown"]["fixed", "greedy"]
    oracle = NaiveGreedySampler(AutoModelForCausalLM.from_pretrained(served_model), rank["eos_token_ids"])
    expected = grow(GROWERS["fixed"], grown["prompt_ids"], rules(rank, stop_strings=stops), oracle)
    assert_same_trees(grown["trees"], expected, 1e-3)
    trees = [tree for sampling in ("greedy", "sampled") for tree in rank["grown"]["fixed", sampling]["trees"]]
    completions = [tree.completion_ids(leaf) for tree in trees for leaf in tree.leaves()]
    assert any(has(stops, ids) for ids in completions)
    assert not any(has(stops, ids[:-1]) for ids in completions)


def has(stops: tuple[str, ...], token_ids: list[int]) -> bool:
    return any(stop in tiny_tokenizer().decode(token_ids) for stop in stops)


def frequent_characters(served_model: str) -> tuple[str, ...]:
    """Those that the policy writes most, as many as the server takes for stop strings."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(served_model), tiny_tokenizer()
    prompts = [Request(tokenizer(prompt)["input_ids"], [], 1, LENGTH) for prompt in questions(2)["prompt"]]
    answers = NaiveGreedySampler(model, [tokenizer.eos_token_id]).sample(prompts)
    texts = [tokenizer.decode(continuation.token_ids) for (continuation,) in answers]
    counts = Counter(c for text in texts for c in text if c.isascii() and c.isalnum())
    return tuple(character for character, _ in counts.most_common(4))
