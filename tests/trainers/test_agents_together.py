"""Agents on ranks that sample together: each conversation gets its own turns, whatever the others play."""

import pytest

from .engines import NEEDS_DEEPSPEED, runs_of

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return runs_of("tests.trainers.agents_together", tiny_model, tmp_path_factory.mktemp)


@pytest.mark.parametrize(
    ("engine", "sampler"), [("ddp", "server"), pytest.param("zero3", "zero3", marks=NEEDS_DEEPSPEED)]
)
def test_a_conversation_gets_its_own_turns_though_ranks_have_other_numbers_of_them(engine, sampler, run):
    _, ranks = run(engine, sampler)
    for rank in ranks:
        assert rank["steps"] == 2
        assert len(rank["ends"]) == 8
        for prompt, end in rank["ends"]:
            assert end == f"done {prompt[len('Question ')]}"


def test_a_server_is_asked_for_as_many_turns_of_each_rank(run):
    asked = run("ddp", "server")[1][0]["asked"]
    # The prompts of a step once each; then twice as many conversations as the rank has that has most in play.
    assert asked == [4, 8, 4, 4, 8, 8, 4]
