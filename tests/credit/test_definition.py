"""The fast values and advantages against the definitions in loops, and what they do at the edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo_trl.credit import prefix_values, td_errors, tempo_advantages

from .groups import advantages_by_definition, as_tensors, groups, padded, values_by_definition


@settings(max_examples=400)
@given(groups())
def test_values_are_the_means_of_the_definition(case):
    rows, rewards, num_generations = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    expected = padded(values_by_definition(rows, rewards, num_generations), ids.shape[1] + 1, repeat_last=True)
    torch.testing.assert_close(prefix_values(ids, lengths, reward_tensor, num_generations), expected)


@settings(max_examples=400)
@given(groups(), st.sampled_from(["group", "batch", "none"]), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_advantages_are_those_of_the_definition(case, scale_rewards, td_coef):
    rows, rewards, num_generations = case
    ids, lengths, reward_tensor = as_tensors(rows, rewards)
    expected = padded(advantages_by_definition(rows, rewards, num_generations, scale_rewards, td_coef), ids.shape[1])
    computed = tempo_advantages(
        ids, lengths, reward_tensor, num_generations, scale_rewards=scale_rewards, td_coef=td_coef
    )
    torch.testing.assert_close(computed, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([63, 64, 65, 511, 512, 513, 600]))
def test_values_hold_across_the_windows_of_the_sort(seed, stem):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 2, (12, 640), generator=generator)
    rows[:, :stem] = rows[0, :stem]
    rows[3::4, : stem + 20] = rows[3, : stem + 20]
    lengths = torch.randint(max(0, stem - 2), 641, (12,), generator=generator)
    rewards = torch.rand(12, generator=generator)
    as_lists = [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]
    expected = padded(values_by_definition(as_lists, rewards.tolist(), 6), 641, repeat_last=True)
    torch.testing.assert_close(prefix_values(rows, lengths, rewards, 6), expected)


# The group of the README and of examples/read_a_tree.py: four answers to "7+5-3?", two of them right.
ANSWERS = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]
REWARDS = [1.0, 0.0, 0.0, 1.0]


def hand_worked_group():
    return as_tensors([[ord(c) for c in answer] for answer in ANSWERS], REWARDS)


def test_hand_worked_values():
    values = prefix_values(*hand_worked_group(), num_generations=4)
    # All four write "7+5=": (1 + 0 + 0 + 1) / 4. Then three write 2: (1 + 0 + 1) / 3, one writes 3: 0 / 1.
    # Of the three, two write "2;2-3=9": (1 + 1) / 2, and one writes "2;2-3=8": 0 / 1.
    right, slip_at_8, slip_at_3 = [1 / 2] * 5 + [2 / 3] * 6 + [1] * 3, [1 / 2] * 5 + [2 / 3] * 6 + [0] * 3, [1 / 2] * 5
    torch.testing.assert_close(values, torch.tensor([right, slip_at_8, slip_at_3 + [0] * 9, right]))


def test_hand_worked_td_errors_fall_on_the_digits_that_decided():
    ids, lengths, rewards = hand_worked_group()
    td = td_errors(prefix_values(ids, lengths, rewards, 4), lengths)
    expected = torch.zeros(4, 13)
    expected[[0, 1, 3], 4] = 2 / 3 - 1 / 2  # the right first result, 2
    expected[2, 4] = 0 - 1 / 2  # the slip, 3
    expected[[0, 3], 10] = 1 - 2 / 3  # the right second result, 9
    expected[1, 10] = 0 - 2 / 3  # the slip, 8
    torch.testing.assert_close(td, expected)


def test_hand_worked_advantages():
    advantages = tempo_advantages(*hand_worked_group(), num_generations=4)
    scale = math.sqrt(4 * 0.25 / 3) + 1e-4  # std of (1, 0, 0, 1) with ddof 1, and TRL's epsilon
    assert advantages[1, 10].item() == pytest.approx((0 - 1 / 2 - 2 / 3) / scale)  # the slip
    assert advantages[1, 4].item() == pytest.approx((0 - 1 / 2 + 1 / 6) / scale)  # a right digit of a wrong answer
    assert advantages[1, 0].item() == pytest.approx((0 - 1 / 2) / scale)  # GRPO's advantage elsewhere


def test_ids_beyond_32_bits_and_negative_ids_are_told_apart():
    ids, lengths, rewards = as_tensors([[1, 7], [1 + 2**32, 7], [-1, -1, -1], [-1]], [1.0, 0.0, 0.0, 1.0])
    values = prefix_values(ids, lengths, rewards, 4)
    assert values[0].tolist() == [0.5, 1.0, 1.0, 1.0]
    assert values[2].tolist() == [0.5, 0.5, 0.0, 0.0]
    assert values[3].tolist() == [0.5, 0.5, 0.5, 0.5]


def test_rewards_of_any_dtype_give_float32():
    ids, lengths, rewards = as_tensors([[0, 1], [0, 2]], [1.0, 0.0])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64):
        advantages = tempo_advantages(ids, lengths, rewards.to(dtype), 2)
        assert advantages.dtype == torch.float32
        torch.testing.assert_close(advantages, tempo_advantages(ids, lengths, rewards, 2))


IDS, LENGTHS, SCORES = torch.zeros(4, 3, dtype=torch.long), torch.tensor([3, 2, 1, 0]), torch.zeros(4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((IDS[0], LENGTHS, SCORES, 2), {}, r"must be \(B, T\), got shape \(3,\)"),
        ((IDS.float(), LENGTHS, SCORES, 2), {}, "integer token ids, got dtype torch.float32"),
        ((IDS, LENGTHS[:3], SCORES, 2), {}, r"must be \(4,\) integers.*got shape \(3,\)"),
        ((IDS, LENGTHS + 1, SCORES, 2), {}, "between 0 and T = 3, got 1 to 4"),
        ((IDS, LENGTHS, SCORES[:2], 2), {}, r"must be \(4,\).*got shape \(2,\)"),
        ((IDS, LENGTHS, SCORES + math.inf, 2), {}, "must be finite"),
        ((IDS, LENGTHS, SCORES, 3), {}, "4 rows is not a multiple of num_generations = 3"),
        ((IDS, LENGTHS, SCORES, 2), {"scale_rewards": "std"}, "must be one of.*got 'std'"),
        ((IDS, LENGTHS, SCORES, 2), {"td_coef": -1.0}, "at least 0, got -1.0"),
    ],
)
def test_bad_input_is_named_with_what_was_got_and_expected(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        tempo_advantages(*arguments, **options)


def test_td_errors_refuse_values_that_do_not_fit_the_lengths():
    with pytest.raises(ValueError, match="between 0 and T = 2, got 3 to 3"):
        td_errors(torch.zeros(1, 3), torch.tensor([3]))
    with pytest.raises(ValueError, match=r"must be \(B, T \+ 1\)"):
        td_errors(torch.zeros(3), torch.tensor([3]))


def test_td_errors_are_zero_past_the_length_whatever_the_values_say_there():
    assert td_errors(torch.tensor([[0.0, 1.0, 5.0]]), torch.tensor([1])).tolist() == [[1.0, 0.0]]
