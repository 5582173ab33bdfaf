"""Fixed trees by hand: levels, early leaves, limits, and the rows that make a mean of children."""

import pytest

from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import grow

from .scripted import Script, rules, text

PROMPT = [7, 7]


def grown(shape: FixedTree, script: Script, **options):
    (tree,) = grow(shape, [PROMPT], rules(**options), script)
    return tree


def completions(tree) -> list[str]:
    return [text(tree.completion_ids(leaf)) for leaf in tree.rows]


def test_every_node_is_continued_n_times_by_a_step_until_the_last():
    script = Script({"": ["ab", "cd"], "ab": ["ef", "gh"], "cd": ["ij", "kl"]})
    tree = grown(FixedTree(2, 2, 2), script)
    assert completions(tree) == ["abef", "abgh", "cdij", "cdkl"]
    assert [segment.parent for segment in tree.segments] == [-1, -1, 0, 0, 1, 1]
    assert [[(r.n, r.max_tokens) for r in asked] for asked in script.rounds] == [[(2, 2)], [(2, 2), (2, 2)]]


def test_a_round_asks_for_all_nodes_of_all_trees_at_once():
    script = Script({"": ["a", "b", "c", "d"], **{c: [c, c] for c in "abcd"}})
    trees = grow(FixedTree(2, 2, 1), [[1], [2]], rules(), script)
    assert [completions(tree) for tree in trees] == [["aa", "aa", "bb", "bb"], ["cc", "cc", "dd", "dd"]]
    assert [[text(r.prompt_ids + r.path_ids) for r in asked] for asked in script.rounds] == [
        ["\x01", "\x02"],
        ["\x01a", "\x01b", "\x02c", "\x02d"],
    ]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_leaf_that_ends_early_stands_for_all_leaves_that_it_closes(depth):
    continuations = {"": ["x$", "aa"], "aa": ["y$", "bb"], "aabb": ["cc", "dd"]}
    tree = grown(FixedTree(2, depth, 2), Script(continuations))
    expected = {
        1: ["x$", "aa"],
        2: ["x$", "x$", "aay$", "aabb"],
        3: ["x$", "x$", "x$", "x$", "aay$", "aay$", "aabbcc", "aabbdd"],
    }
    assert completions(tree) == expected[depth]


def test_no_completion_is_longer_than_the_limit():
    script = Script({"": ["abc", "de$"], "abc": ["fg", "h$"]})
    tree = grown(FixedTree(2, 3, 3), script, max_tokens=5)
    assert completions(tree) == [*["de$"] * 4, "abcfg", "abcfg", "abch$", "abch$"]
    assert script.rounds[1][0].max_tokens == 2


def test_a_stop_string_ends_a_completion_where_it_is_complete_even_across_segments():
    script = Script({"": ["aE", "b"], "aE": ["NDxx", "Nyy"], "b": ["cENDz", "$"]})
    tree = grown(FixedTree(2, 2, 5), script, stop_strings=("END",))
    assert completions(tree) == ["aEND", "aENyy", "bcEND", "b$"]
    assert [len(segment.logprobs) for segment in tree.segments] == [2, 1, 2, 3, 4, 1]


def test_every_rank_makes_as_many_rounds_as_the_longest():
    script = Script({"": ["a$", "b$"]})
    elsewhere = iter([True, True, True, False])
    grow(FixedTree(2, 3, 2), [PROMPT], rules(), script, on_any_rank=lambda here: here or next(elsewhere))
    assert [len(asked) for asked in script.rounds] == [1, 0, 0, 0]
