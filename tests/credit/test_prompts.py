"""Groups in which prompts differ: a state is the prompt and what was sampled after it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit import tempo_advantages
from tempo_trl.credit.prefix_covariance import PrefixCovariance, pair_statistics
from tempo_trl.credit.prefix_tree import prefix_tree
from tests.credit.groups import as_tensors, groups, prefix_baselines


@st.composite
def cases(draw, **options):
    """Groups of two or more as (ids, lengths, rewards, num_generations), and the number of each row's prompt."""
    rows, rewards, size = draw(groups(min_size=2, **options))
    prompts = draw(st.lists(st.sampled_from([-3, 0, 2**62]), min_size=len(rows), max_size=len(rows)))
    return (*as_tensors(rows, rewards), size), torch.tensor(prompts)


def after_their_prompt(case, prompts):
    """The same rows with their prompt as the first token."""
    ids, lengths, rewards, size = case
    return torch.cat([prompts[:, None], ids], dim=1), lengths + 1, rewards, size


def covariance_of(case, prompts=None) -> PrefixCovariance:
    ids, lengths, rewards, size = case
    covariance = PrefixCovariance()
    covariance.update([pair_statistics(prefix_tree(ids, lengths, size, prompts), rewards)])
    return covariance


@given(cases(), st.sampled_from(["group", "batch", "none"]))
def test_tempo_s_advantages_are_those_of_a_prompt_that_is_the_token_before_the_first(drawn, scale):
    case, prompts = drawn
    ours = tempo_advantages(*case, scale_rewards=scale, prompts=prompts)
    assert ours.equal(tempo_advantages(*after_their_prompt(case, prompts), scale_rewards=scale)[:, 1:])


@given(cases())
def test_predicted_baselines_are_those_of_a_prompt_that_is_the_token_before_the_first(drawn):
    case, prompts = drawn
    longer = after_their_prompt(case, prompts)
    ours = prefix_baselines(*case, covariance_of(case, prompts), prompts=prompts)
    torch.testing.assert_close(ours, prefix_baselines(*longer, covariance_of(longer))[:, 1:])
    assert covariance_of(case, prompts).explained == pytest.approx(covariance_of(longer).explained)


@pytest.mark.parametrize("size", [4, 80])
def test_a_hard_prompt_is_not_the_doing_of_the_token_that_gives_it_away(size):
    hard = torch.arange(size) % 4 < 2
    ids = torch.where(hard[:, None], torch.tensor([1, 2, 3]), torch.tensor([7, 2, 3]))
    case = ids, torch.full((size,), 3), (~hard).float(), size
    grpo = tempo_advantages(*case, td_coef=0.0)
    assert tempo_advantages(*case, prompts=hard.long()).equal(grpo)
    torch.testing.assert_close(tempo_advantages(*case)[0], grpo[0] * torch.tensor([2, 1, 1]))


@pytest.mark.parametrize("prompts", [torch.zeros(3, dtype=torch.long), torch.zeros(4)])
def test_prompts_that_are_no_numbers_of_the_rows_are_refused(prompts):
    case = torch.zeros(4, 2, dtype=torch.long), torch.full((4,), 2), torch.zeros(4), 2
    with pytest.raises(ValueError, match=r"`prompts` must be \(4,\) integers"):
        tempo_advantages(*case, prompts=prompts)
