"""Pieces together are the text that people read, whatever the tokenizer makes of its bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tempo_trl.demo.task import policy_path
from tempo_trl.runs.token_text import one_line, readable, token_pieces, visible

from .test_token_places import TOKENIZERS, spelled

BYTES = TOKENIZERS["bytes"]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_of_byte_level_tokens_the_readable_pieces_are_the_text(text):
    ids = BYTES(text, add_special_tokens=False)["input_ids"]
    pieces = readable(token_pieces(BYTES, ids))
    assert len(pieces) == len(ids)
    assert "".join(pieces) == BYTES.decode(ids)


def test_a_character_belongs_to_the_first_of_its_tokens_and_bytes_of_none_stay_spelled_out():
    pieces = token_pieces(BYTES, BYTES("a😀b", add_special_tokens=False)["input_ids"])
    assert pieces == ["a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "b"]
    assert readable(pieces) == ["a", "😀", "", "", "", "b"]
    assert readable(["<0xF0>", "<0x9F>", "a", "<0x80>"]) == ["<0xF0>", "<0x9F>", "a", "<0x80>"]
    assert readable(["<0xC3><0xA9><0xC3>", "<0xA9>"]) == ["éé", ""]


def test_special_tokens_have_their_names():
    assert token_pieces(BYTES, [BYTES.eos_token_id]) == ["<|im_end|>"]
    demo = AutoTokenizer.from_pretrained(policy_path())
    ids = [*demo("7+5=")["input_ids"], demo.eos_token_id]
    assert token_pieces(demo, ids) == ["7", "+", "5", "=", "<eos>"]


def test_an_id_beyond_the_vocabulary_is_shown_as_a_number():
    assert token_pieces(BYTES, [len(BYTES) + 5]) == [f"<{len(BYTES) + 5}>"]


def test_a_sentencepiece_token_keeps_its_space_and_its_bytes():
    tokenizer = TOKENIZERS["llama"]
    ids = tokenizer.convert_tokens_to_ids(["▁red", "a", "<0x0A>", *spelled("😀")])
    assert token_pieces(tokenizer, ids[:3]) == [" red", "a", "\n"]
    assert readable(token_pieces(tokenizer, ids[3:])) == ["😀", "", "", ""]


UNSEEN = [("a\x00b\x1b[2J", "a␀b␛[2J"), ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"), ("\ud800", "⟨U+D800⟩")]
UNSEEN += [("a\tb\nc", "a\tb\nc"), ("שלום 🙂", "שלום 🙂"), ("\x7f\x85\u2028\ufeff", "␡⟨U+0085⟩⟨U+2028⟩⟨U+FEFF⟩")]


@pytest.mark.parametrize(("text", "shown"), UNSEEN)
def test_what_is_not_seen_is_shown(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "line"), [("  a b ", "␣␣a b␣"), ("   ", "␣␣␣"), ("\r\n\n", "⏎⏎"), ("\ta\rb", "⇥a␍b"), ("", "")]
)
def test_a_line_has_signs_for_its_breaks_and_outer_spaces(text, line):
    assert one_line(text) == line
