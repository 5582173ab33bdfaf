"""The token that decided, and how much credit it gets."""

import numpy as np
import pytest

from benchmarks.language_model.decisive import decisive_shares, decisive_token
from tempo_trl.data.instructions import generated_rows
from tempo_trl.report.group import Group


def test_the_decisive_token_is_the_one_with_the_decisive_character():
    pieces = ["The", " rain", ",", " the", " wind", "."]
    assert decisive_token(pieces, "no_comma", [], 0) == 2
    assert decisive_token(pieces, "first_word", ["the"], 0) == 0
    assert decisive_token(pieces, "last_word", ["wind"], 0) == 4
    assert decisive_token(pieces, "two_words", ["wind", "rain"], 0) == 4
    assert decisive_token(pieces, "sentences", [], 1) == len(pieces)  # its end decided


def test_a_character_of_several_tokens_counts_once():
    assert decisive_token(["é".encode().hex()[:0] + "<0xC3>", "<0xA9>", ",", " a"], "no_comma", [], 0) == 2


def test_a_comma_inside_of_the_thinking_decides_nothing():
    pieces = ["<think>", "Rain", ",", "</think>", "The", " rain", ",", " then", "."]
    assert decisive_token(pieces, "no_comma", [], 0) == 6
    assert decisive_token(pieces, "first_word", ["the"], 0) == 4
    assert decisive_token(pieces[:3], "no_comma", [], 0) == 3  # unfinished: its end decided


def group(credit):
    row = next(row for row in generated_rows("train") if row["kind"] == "no_comma")
    tokens = [["It", " is", " a", " busy", " and", " good", " market", ".", "<|im_end|>"]]
    tokens.append(["It", " is", " good", ",", " and", " the", " people", " like", " it", ".", "<|im_end|>"])
    lengths = [len(own) for own in tokens]
    td = [np.zeros(lengths[0]), np.array(credit + [0.0] * (lengths[1] - len(credit)))]
    outcome = np.array([1.0, -1.0])
    return Group(
        step=0,
        group=0,
        prompt=f"user: {row['instruction']}",
        ids=[list(range(n)) for n in lengths],
        tokens=tokens,
        values=[np.zeros(n + 1) for n in lengths],
        td_errors=td,
        advantages=[td[0] + 1.0, td[1] - 1.0],
        entropies=None,
        loss_mask=[np.ones(n, dtype=bool) for n in lengths],
        outcome=outcome,
        rewards=np.array([1.0, 0.0]),
    )


def test_credit_on_the_first_comma_counts_as_decisive():
    sums = decisive_shares([group([0.5, 0.0, -0.5, -1.5])])
    assert sums["td"].tolist() == [1.5, 2.0]
    assert sums["outcome"].tolist() == [1.0, 11.0]
    assert sums["advantage"].tolist() == pytest.approx([2.5, 0.5 + 1 + 1.5 + 2.5 + 7])


def test_a_failure_as_prose_has_no_decisive_token():
    hollow = group([])
    hollow.tokens[1][:] = ["Market", ".", "<|im_end|>"]
    assert decisive_shares([hollow])["outcome"].tolist() == [0.0, 0.0]
