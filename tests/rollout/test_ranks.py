"""Two ranks under DDP and ZeRO grow the trees of the weights that they have trained, in as many rounds on each."""

import pytest
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM

from tempo_trl.rollout.growth import Rules, grow

from ..tiny import tiny_tokenizer
from ..trainers.engines import launcher_of
from ..trainers.launching import run_ranks
from .naive import NaiveGreedySampler, assert_same_trees
from .rank import FLAT, GROWERS

pytestmark = pytest.mark.matrix

CASES = [
    ("ddp", "entropy", "full"),
    ("zero2", "fixed", "lora"),
    ("zero3", "entropy", "full"),
]


@pytest.mark.parametrize(("engine", "grower", "weights"), CASES)
def test_ranks_grow_the_trees_of_the_trained_weights(engine, grower, weights, tiny_model, tmp_path):
    ranks = run_ranks(launcher_of(engine, tmp_path), 2, "tests.rollout.rank", tiny_model, tmp_path, grower, weights)
    cls = AutoPeftModelForCausalLM if weights == "lora" else AutoModelForCausalLM
    oracle = NaiveGreedySampler(cls.from_pretrained(tmp_path), ranks[0]["eos_token_ids"])
    rules = Rules(12, ranks[0]["eos_token_ids"], tokenizer=tiny_tokenizer(), greedy=True)
    for rank, shape in zip(ranks, (GROWERS[grower], FLAT), strict=True):
        assert_same_trees(rank["trees"], grow(shape, rank["prompt_ids"], rules, oracle))
    assert len(ranks[0]["sizes"]) == len(ranks[1]["sizes"])
    assert ranks[1]["sizes"][-1] == 0 < ranks[0]["sizes"][-1], "the second rank has not waited for the first"
    if engine == "zero3":
        assert ranks[0]["resident"] == 0
