"""TreeRPO's credit against the definitions in recursion, and what they imply."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tempo_trl.credit.grown_tree import GrownTree, Segment, branches
from tempo_trl.credit.siblings import count_once, segment_values, sibling_advantages
from tempo_trl.credit.traces import eligibility_trace

# Two prompts. The first: segments 0 and 1 below it, 2 and 3 below 0, and 1 ends early. The second: 4, 5, 6.
PARENT = torch.tensor([7, 7, 0, 0, 8, 8, 8])
LEAF = torch.tensor([2, 3, 1, 1, 4, 5, 6])
REWARDS = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0])


def tree_of(shape) -> GrownTree:
    """A tree from nested lists, `[[], [[], []]]`: a leaf, and a node of two leaves. Segments vary in length."""
    tree = GrownTree()

    def grow(children, parent):
        for number, child in enumerate(children):
            tree.segments.append(Segment(parent, [len(tree.segments)] * (1 + number % 3)))
            grow(child, len(tree.segments) - 1)

    grow(shape, -1)
    tree.rows = tree.leaves()
    return tree


shapes = st.recursive(st.just([]), lambda children: st.lists(children, min_size=1, max_size=3), max_leaves=12)
forests = st.lists(shapes.filter(bool), min_size=1, max_size=3)
reward = st.sampled_from([0.0, 1.0, 0.5, float("nan")])


@st.composite
def rewarded_forests(draw):
    trees = [tree_of(shape) for shape in draw(forests)]
    for tree in trees:
        tree.rows += draw(st.lists(st.sampled_from(tree.rows), max_size=2))  # some leaves stand for several rows
    rewards = [draw(st.lists(reward, min_size=len(tree.rows), max_size=len(tree.rows))) for tree in trees]
    return trees, rewards


def mean(values):
    values = [value for value in values if value == value]
    return sum(values) / len(values) if values else float("nan")


def value_in_recursion(tree, rewards, segment, average):
    leaf_value = {
        leaf: mean([r for r, end in zip(rewards, tree.rows, strict=True) if end == leaf]) for leaf in tree.rows
    }
    children = tree.children()

    def below(index):
        return [index] if not children[index] else [leaf for child in children[index] for leaf in below(child)]

    def value(index):
        if not children[index]:
            return leaf_value[index]
        return mean([value(child) for child in children[index]])

    return value(segment) if average == "children" else mean([leaf_value[leaf] for leaf in below(segment)])


def tensors(trees, rewards):
    width = max(len(tree.completion_ids(leaf)) for tree in trees for leaf in tree.rows)
    return branches(trees, width), torch.tensor([value for tree in rewards for value in tree])


@given(rewarded_forests(), st.sampled_from(["children", "leaves"]))
def test_values_are_the_means_of_the_definition(forest, average):
    grown, flat = tensors(*forest)
    values = segment_values(grown.parent, grown.leaf, flat, average)
    expected = [
        value_in_recursion(tree, rewards, index, average)
        for tree, rewards in zip(*forest, strict=True)
        for index in range(len(tree.segments))
    ]
    roots = [value_in_recursion(tree, rewards, -1, average) for tree, rewards in zip(*forest, strict=True)]
    torch.testing.assert_close(values.tolist(), expected + roots, equal_nan=True)


@pytest.mark.parametrize(
    ("scale", "below_0", "below_7"),
    [("none", 0.5, 0.25), ("std", 0.5 / (0.5**0.5 + 1e-4), 0.25 / (0.125**0.5 + 1e-4)),
     ("bernoulli", 0.5 / 0.5, 0.25 / (0.75 * 0.25) ** 0.5)],
)  # fmt: skip
def test_advantages_are_relative_to_the_siblings_by_hand(scale, below_0, below_7):
    advantages = sibling_advantages(torch.arange(7)[:, None], PARENT, LEAF, REWARDS, scale=scale)[:, 0]
    torch.testing.assert_close(advantages[:4], torch.tensor([-below_7, below_7, below_0, -below_0]))


@given(rewarded_forests(), st.sampled_from(["children", "leaves"]), st.sampled_from(["none", "std", "bernoulli"]))
def test_advantages_of_scorable_siblings_add_up_to_zero_and_flat_ones_are_exactly_zero(forest, average, scale):
    grown, flat = tensors(*forest)
    one_a_segment = torch.arange(len(grown.parent))[:, None]
    advantages = sibling_advantages(one_a_segment, grown.parent, grown.leaf, flat, average=average, scale=scale)[:, 0]
    values = segment_values(grown.parent, grown.leaf, flat, average)[: len(grown.parent)]
    for parent in grown.parent.unique():
        siblings = grown.parent == parent
        assert advantages[siblings].sum().abs() < 1e-5
        if values[siblings].nan_to_num(nan=values[siblings].nanmean().item()).unique().numel() <= 1:
            assert (advantages[siblings] == 0).all()
    assert (advantages[values.isnan()] == 0).all()


def test_the_tokens_of_a_segment_share_its_advantage_and_padding_gets_none():
    segment = torch.tensor([[0, 0, 2], [0, 0, 3], [1, -1, -1], [1, -1, -1]])
    advantages = sibling_advantages(segment, torch.tensor([4, 4, 0, 0]), LEAF[:4], REWARDS[:4])
    assert advantages.tolist() == [[-0.25, -0.25, 0.5], [-0.25, -0.25, -0.5], [0.25, 0, 0], [0.25, 0, 0]]


def test_with_one_level_and_trls_scale_it_is_grpo():
    from tempo_trl.credit.advantages import outcome_advantages

    rewards = torch.tensor([1.0, 0.0, 0.0, 0.7])
    advantages = sibling_advantages(
        torch.arange(4)[:, None], torch.full((4,), 4), torch.arange(4), rewards, scale="std"
    )
    torch.testing.assert_close(advantages[:, 0], outcome_advantages(rewards, 4).float())


def test_a_token_of_several_leaves_counts_once_in_the_first_row_that_trains():
    segment = torch.tensor([[0, 0, 2], [0, 0, 3], [1, 1, -1], [1, 1, -1]])
    everything = torch.ones(4, 3)
    assert count_once(segment, everything).int().tolist() == [[1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]]
    truncated = everything.clone()
    truncated[0] = 0
    assert count_once(segment, truncated).int().tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]]


def test_bernoulli_refuses_rewards_that_are_no_probabilities():
    with pytest.raises(ValueError, match=r"got values from -1 to .* between 0 and 1"):
        sibling_advantages(torch.arange(7)[:, None], PARENT, LEAF, REWARDS - 1, scale="bernoulli")


def test_a_scale_an_average_or_a_style_that_does_not_exist_is_refused():
    segment = torch.arange(7)[:, None]
    with pytest.raises(ValueError, match=r"`scale` must be one of"):
        sibling_advantages(segment, PARENT, LEAF, REWARDS, scale="variance")
    with pytest.raises(KeyError, match="leafs"):
        sibling_advantages(segment, PARENT, LEAF, REWARDS, average="leafs")
    with pytest.raises(KeyError, match="latest"):
        eligibility_trace(torch.ones(1, 2), 0.9, "latest")
