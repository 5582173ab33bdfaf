"""Entropy trees by hand: each gate alone, distinct tokens, budget, depth, coverage, and the rows."""

import math
from collections import defaultdict

import pytest
import torch

from tempo_trl.rollout.entropy import EntropyTree, alternative, entropies
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import Top, grow

from .scripted import Script, rules, text

PROMPT = [7, 7]


class Anything(Script):
    """What the script leaves open is EOS."""

    def __init__(self, continuations):
        super().__init__(continuations)
        self.left = defaultdict(lambda: ["$"] * 9, self.left)


def grown(script: Script, num_generations: int = 8, most=100, greedy=True, stop_strings=(), **options):
    shape = EntropyTree(num_generations, **({"min_segment_tokens": 2, "delimiters": (".",)} | options))
    (tree,) = grow(shape, [PROMPT], rules(most, greedy=greedy, stop_strings=stop_strings), script)
    return tree


def segments(tree) -> list[tuple[int, str]]:
    return [(segment.parent, text(segment.token_ids)) for segment in tree.segments]


def test_the_root_splits_in_two_with_distinct_first_tokens():
    tree = grown(Anything({"": ["ab$"], "w": ["cd$"]}))
    assert segments(tree) == [(-1, "ab$"), (-1, "wcd$")]
    assert [segment.forced for segment in tree.segments] == [False, True]


def test_a_forced_token_has_the_log_probability_of_the_distribution_sampled_from():
    tree = grown(Anything({"": ["~ab$"]}))
    assert tree.segments[1].logprobs[0] == pytest.approx(math.log(0.25))
    tree = grown(Anything({"": ["ab$"]}))
    assert tree.segments[1].logprobs[0] == pytest.approx(math.log(0.01))


def test_where_all_gates_are_open_the_sampled_tokens_stay_and_another_begins_the_second_child():
    tree = grown(Anything({"": ["ab.~wcd$"], "ab.x": ["ef$"]}))
    assert segments(tree) == [(-1, "ab."), (0, "wcd$"), (-1, "w$"), (0, "xef$")]
    assert [segment.forced for segment in tree.segments] == [False, False, True, True]
    assert [len(s.logprobs) for s in tree.segments] == [len(s.token_ids) for s in tree.segments]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("ab~wcd$", "no delimiter"),
        ("ab.wcd$", "no entropy"),
        (".~wcd$", "too short"),
        ("a.b~wcd$", "the delimiter is not at the end"),
        ("ab.", "nothing comes after"),
        ("ab~.", "the entropy is before the delimiter"),
    ],
)
def test_a_segment_does_not_split_with_a_gate_closed(written, why):
    tree = grown(Anything({"": [written]}), most=8)
    assert len(tree.segments) == 2, why


def test_trailing_spaces_of_a_token_do_not_hide_its_delimiter():
    class Spaced:
        def decode(self, token_ids, skip_special_tokens=False):
            return {1: ". ", 2: " .x", 3: ".\n", 4: " "}[token_ids[0]]

    shape = EntropyTree(2, delimiters=(".",))
    spaced = rules()
    spaced.tokenizer = Spaced()
    assert [shape._ends_a_thought([token], spaced) for token in (1, 2, 3, 4)] == [True, False, False, False]
    newline = EntropyTree(2, delimiters=("\n",))
    assert [newline._ends_a_thought([token], spaced) for token in (1, 2, 3, 4)] == [False, False, True, False]


def test_a_delimiter_of_several_tokens_is_found_within_its_segment():
    written = {"": ["a</s>~wcd$"], "a</s>x": ["ef$"]}
    assert segments(grown(Anything(written), delimiters=("</s>",)))[0] == (-1, "a</s>")
    tree = grown(Anything({"": ["a<.~/s>~wcd$"]}), delimiters=(".", "</s>"))
    assert segments(tree)[0] == (-1, "a<.")
    assert all(not text.endswith("/s>") for _, text in segments(tree)), "its beginning is in the segment before"


@pytest.mark.parametrize("most", range(1, 13))
@pytest.mark.parametrize("options", [{}, {"max_depth": 2}, {"min_segment_tokens": 3}, {"coverage_tokens": 4}])
def test_a_tree_that_splits_wherever_it_may_has_its_most_leaves(most, options):
    shape = EntropyTree(64, **({"delimiters": ("",), "min_segment_tokens": 2} | options))
    everywhere = Anything({})
    everywhere.left = defaultdict(lambda: ["~a" * 20] * 64)
    (tree,) = grow(shape, [PROMPT], rules(most), everywhere)
    assert len(tree.leaves()) <= shape.most_leaves(most)
    if "coverage_tokens" not in options:
        assert len(tree.leaves()) == shape.most_leaves(most)


def test_a_child_is_scanned_from_its_own_beginning_in_the_same_round():
    script = Anything({"": ["ab.~w.~ww.~wc$"]})
    tree = grown(script)
    # "w." is long enough again, counted from the split; "w" alone would not be
    assert segments(tree) == [
        (-1, "ab."),
        (0, "w."),
        (1, "ww."),
        (2, "wc$"),
        (-1, "w$"),
        (0, "x$"),
        (1, "x$"),
        (2, "x$"),
    ]
    assert len(script.rounds) == 2


def test_forced_children_are_scanned_too():
    tree = grown(Anything({"": ["ab$"], "w": ["c.~yd$"], "wc.w": ["e$"]}))
    assert segments(tree) == [(-1, "ab$"), (-1, "wc."), (1, "yd$"), (1, "we$")]


def test_no_segment_is_deeper_than_the_limit():
    written = "ab.~ww.~ww.~ww.~ww$"
    for max_depth in (1, 2, 3, 4):
        tree = grown(Anything({"": [written]}), max_depth=max_depth)
        assert max(len(tree.path(leaf)) for leaf in tree.leaves()) == max_depth


@pytest.mark.parametrize("budget", [2, 3, 4, 5])
def test_no_tree_has_more_leaves_than_the_group_has_completions(budget):
    tree = grown(Anything({"": ["ab.~ww.~ww.~ww.~ww$"]}), budget)
    assert len(tree.leaves()) == budget == len(set(tree.rows)) == len(tree.rows)


def test_within_a_round_the_gate_with_the_fewest_tokens_before_it_splits_first():
    script = {"": ["ab.~wc$"], "w": ["cdef.~wg$"], "ab.x": [".~wf$"]}
    assert segments(grown(Anything(script), 4)) == [
        (-1, "ab."),
        (0, "wc$"),
        (-1, "wcdef.wg$"),  # asked for first, but its gate lies behind six tokens
        (0, "x."),  # five
        (3, "wf$"),
        (3, "x$"),
    ]


def test_an_earlier_round_goes_before_an_earlier_gate():
    script = {"": ["abcdef.~wg$"], "w": ["a.~wb$"]}
    assert segments(grown(Anything(script), 3)) == [(-1, "abcdef."), (0, "wg$"), (-1, "wa.wb$"), (0, "x$")]


def test_leaves_fill_the_group_in_turn():
    tree = grown(Anything({"": ["ab.~wcd$"]}), 8)
    leaves = tree.leaves()
    assert len(leaves) == 3
    assert [tree.rows.count(leaf) for leaf in leaves] == [3, 3, 2]


def test_a_long_leaf_gets_a_sibling_that_is_sampled_to_its_end():
    script = Anything({"": ["ab.~wcdefgh$"], "ab.": ["wi.~wjklmnop$"]})
    tree = grown(script, coverage_tokens=5)
    assert segments(tree) == [(-1, "ab."), (0, "wcdefgh$"), (-1, "w$"), (0, "x$"), (0, "wi.wjklmnop$")]
    assert not tree.segments[-1].forced
    assert [text(r.path_ids) for r in script.rounds[-1]] == ["ab."]


def test_the_longest_leaf_is_covered_first_while_there_is_room():
    script = {"": ["abcdef$", "nnn$", "mmm$"], "w": ["abcdefgh$"]}
    covered = [grown(Anything(script), budget, coverage_tokens=3) for budget in (2, 3, 4, 8)]
    assert [len(tree.leaves()) for tree in covered] == [2, 3, 4, 4]


def test_a_forced_token_that_ends_the_completion_is_a_leaf_of_its_own():
    tree = grown(Anything({"": ["ab$"]}), most=1)
    assert segments(tree) == [(-1, "a"), (-1, "w")]
    tree = grown(Anything({"": ["ab.~wEw$"]}), stop_strings=(".x",))
    assert segments(tree) == [(-1, "ab."), (0, "wEw$"), (0, "x"), (-1, "w$")]


def one_step(probabilities: list[float]) -> Top:
    return Top(torch.arange(len(probabilities))[None], torch.tensor([probabilities]).log())


def test_the_root_falls_back_to_a_second_sample_where_no_other_token_is_possible():
    class Certain(Script):
        def _top(self, token, is_unsure):
            return list(zip([token, 1, 2, 3], (1.0, 0.0, 0.0, 0.0), strict=True))

    tree = grown(Certain({"": ["ab$", "cd$"]}))
    assert segments(tree) == [(-1, "ab$"), (-1, "cd$")]
    assert not any(segment.forced for segment in tree.segments)


def test_the_alternative_is_drawn_from_the_rest_in_proportion():
    generator = torch.Generator().manual_seed(0)
    top = one_step([0.5, 0.3, 0.1, 0.06, 0.04])
    draws = [alternative(top, 1, 4, False, generator) for _ in range(4000)]
    counts = torch.bincount(torch.tensor([forced.token for forced in draws]), minlength=5) / 4000
    expected = torch.tensor([0.5, 0.0, 0.1, 0.06, 0.0]) / 0.66
    torch.testing.assert_close(counts, expected, atol=0.025, rtol=0)
    assert all(forced.logprob == pytest.approx(math.log(0.1)) for forced in draws if forced.token == 2)


def test_the_greedy_alternative_is_the_likeliest_other_token():
    top = one_step([0.5, 0.3, 0.2])
    assert [alternative(top, taken, 3, True, torch.Generator())[0] for taken in (0, 1, 2)] == [1, 0, 0]


def test_without_another_possible_token_there_is_no_alternative():
    assert alternative(one_step([1.0, 0.0]), 0, 2, True, torch.Generator()) is None
    never = Top(torch.tensor([[4, 5]]), torch.tensor([[0.0, -9999.0]]))  # what a server says of an excluded token
    assert alternative(never, 4, 2, False, torch.Generator()) is None


def test_the_entropy_is_of_the_likeliest_tokens_made_to_add_up_to_one():
    top = one_step([0.4, 0.4, 0.1, 0.1])
    assert entropies(top, 2).item() == pytest.approx(math.log(2))
    p = torch.tensor([0.4, 0.4, 0.1, 0.1], dtype=torch.float64)
    assert entropies(top, 4).item() == pytest.approx(-(p * p.log()).sum().item())
    assert entropies(one_step([1.0, 0.0]), 2).item() == 0


def test_the_same_seed_draws_the_same_tree():
    def forced(seed):
        torch.manual_seed(seed)
        tree = grown(Anything({"": ["~ab.~wcd$"]}), greedy=False)
        return [text(s.token_ids) for s in tree.segments if s.forced]

    assert forced(1) == forced(1)
    assert len({tuple(forced(seed)) for seed in range(20)}) > 1


FIXED, ENTROPY = {"children": 2, "depth": 2, "step_tokens": 3}, {"num_generations": 4}
BELOW = [(FixedTree, FIXED, least) for least in ({"children": 1}, {"depth": 0}, {"step_tokens": 0})]
BELOW += [(EntropyTree, ENTROPY, {"num_generations": 1}), (EntropyTree, ENTROPY, {"min_segment_tokens": 0})]
BELOW += [(EntropyTree, ENTROPY, {"entropy_threshold": -0.1}), (EntropyTree, ENTROPY, {"coverage_tokens": 149})]


@pytest.mark.parametrize(("shape", "options", "below"), BELOW)
def test_settings_below_their_least_are_refused(shape, options, below):
    (name,) = below
    with pytest.raises(ValueError, match=f"`{name}` must be a.* number of at least"):
        shape(**options | below)


def test_the_ratio_of_a_forced_token_is_the_policy_s_probability_over_that_of_its_draw():
    """Over all tokens that were taken and all draws, the ratio undoes how the alternative was drawn."""
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    top = Top(torch.arange(4)[None], probabilities.log()[None])
    for taken in range(4):
        drawn = [alternative(top, taken, 3, False, torch.Generator().manual_seed(seed)) for seed in range(300)]
        candidates = [token for token in range(3) if token != taken]
        mass = probabilities[candidates].sum().item()
        assert {forced.token for forced in drawn} == set(candidates)
        assert all(forced.ratio == pytest.approx(mass) for forced in drawn)
        assert all(forced.logprob == pytest.approx(probabilities[forced.token].log().item()) for forced in drawn)
