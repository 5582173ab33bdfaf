"""What the sampler of grown trees makes of a server's answers. tests/vllm_server/ has the real one."""

from types import SimpleNamespace

import pytest

from tempo_trl.rollout.growth import Request
from tempo_trl.rollout.vllm_sampler import VLLMSampler


def sampler(logprobs: list = (), seed: int | None = None, step: int = 3, micro_step: int = 0) -> VLLMSampler:
    """A sampler whose server answers two tokens with these log-probabilities."""
    answer = {"completion_ids": [[7, 8]], "logprobs": [logprobs], "logprob_token_ids": [[[7, 3], [8, 3]]]}
    client = SimpleNamespace(generate=lambda **options: answer)
    options = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None}
    trainer = SimpleNamespace(
        vllm_generation=SimpleNamespace(generation_kwargs={"seed": seed}, vllm_client=client, **options),
        args=SimpleNamespace(generation_kwargs=None, gradient_accumulation_steps=4),
        state=SimpleNamespace(global_step=step),
        _step=micro_step,
        use_vllm=True,
        eos_token_ids=[2],
    )
    return VLLMSampler(trainer)


@pytest.mark.parametrize("logprobs", [[[None, -1.0], [-0.25, -2.0]], [[-0.5, -1.0], [-0.25, None]]])
def test_a_log_probability_that_is_not_a_number_is_an_error_that_says_so(logprobs):
    with pytest.raises(ValueError, match="returned NaN as a log-probability at step 3"):
        sampler(logprobs)._call([Request([1], [], 1, 4)], 0, top_k=2)


def test_seeds_differ_by_generation_and_are_the_same_after_a_resume():
    """Of a run with four micro-batches a step, resumed in its second epoch, where TRL counts them from 0 again."""
    seeds = [sampler(seed=7, step=step, micro_step=n)._seed(0) for step, n in ((3, 12), (3, 14), (4, 16))]
    assert len({seed["seed"] for seed in seeds}) == 3
    assert sampler(seed=7, step=4, micro_step=0)._seed(0) == seeds[2]
    assert sampler()._seed(0) == {}


def test_the_log_probability_is_that_of_the_sampled_token_wherever_the_server_lists_it():
    found = sampler()._continuation([7, 8], [[-0.5, -1.0], [-0.25, -2.0]], [[3, 7], [8, 3]], 4, 1)
    assert found.logprobs == [-1.0, -0.25]
    assert found.top.token_ids.tolist() == [[3], [8]]


def test_seeds_differ_by_round_and_request():
    own, seeds = sampler(seed=7), set()
    for own.rounds in range(3):
        seeds |= {own._seed(place)["seed"] for place in range(3)}
    assert len(seeds) == 9
