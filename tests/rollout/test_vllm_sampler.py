"""What the sampler of grown trees makes of a server's answers. tests/vllm_server/ has the real one."""

from types import SimpleNamespace

import pytest

from tempo_trl.rollout.growth import Request
from tempo_trl.rollout.vllm_sampler import VLLMSampler


def sampler(logprobs: list) -> VLLMSampler:
    """A sampler whose server answers two tokens with these log-probabilities."""
    answer = {"completion_ids": [[7, 8]], "logprobs": [logprobs], "logprob_token_ids": [[[7, 3], [8, 3]]]}
    client = SimpleNamespace(generate=lambda **options: answer)
    options = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None}
    trainer = SimpleNamespace(
        vllm_generation=SimpleNamespace(generation_kwargs={}, vllm_client=client, **options),
        args=SimpleNamespace(generation_kwargs=None),
        state=SimpleNamespace(global_step=3),
        use_vllm=True,
        eos_token_ids=[2],
    )
    return VLLMSampler(trainer)


@pytest.mark.parametrize("logprobs", [[[None, -1.0], [-0.25, -2.0]], [[-0.5, -1.0], [-0.25, None]]])
def test_a_log_probability_that_is_not_a_number_is_an_error_that_says_so(logprobs):
    with pytest.raises(ValueError, match="returned NaN as a log-probability at step 3"):
        sampler(logprobs)._call([Request([1], [], 1, 4)], 0, top_k=2)
