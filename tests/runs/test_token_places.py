"""Characters of a completion's text to its tokens, against tokens counted by hand, whatever the tokenizer."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tempo_trl.runs.token_places import TokenPlaces, TokenTexts

from ..tiny import tiny_tokenizer

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level_with_merges() -> PreTrainedTokenizerFast:
    """Byte-level BPE in which ` red` is one token, 😀 two (half and half), and `é!` one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ġ", "r"), ("Ġr", "e"), ("Ġre", "d"), ("ð", "Ł"), ("ĺ", "Ģ"), ("Ã", "©"), ("Ã©", "!")]
    vocab = {token: i for i, token in enumerate([*alphabet, *(a + b for a, b in pairs)])}
    backend = Tokenizer(models.BPE(vocab, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=with_added(backend), eos_token="</s>")


def with_added(backend: Tokenizer) -> Tokenizer:
    """Special tokens, and a token that was added later, with letters outside of ASCII and a space."""
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    backend.add_tokens(["<färbe>", "two words"])
    return backend


def sentencepiece(strips: bool) -> PreTrainedTokenizerFast:
    """Llama's tokenizer, or Gemma's, which keeps the space at the beginning of a text."""
    words = ["▁", "▁▁", "▁▁▁▁", "▁red", "red", "▁a", "a", "b", "!", ",", "é", "\n"]
    vocab = {token: i for i, token in enumerate(["<unk>", *BYTE_TOKENS, *words])}
    backend = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True, ignore_merges=True))
    replace = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if strips else replace
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strips else []))
    return PreTrainedTokenizerFast(tokenizer_object=with_added(backend), eos_token="</s>")


def unigram() -> PreTrainedTokenizerFast:
    words = ["▁", "▁▁", "▁red", "red", "▁a", "a", "b", "r", "e", "d", "!", ",", "é", "😀"]
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), *((word, -len(word)) for word in words)], unk_id=0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=with_added(backend), eos_token="</s>", unk_token="<unk>")


def word_piece() -> PreTrainedTokenizerFast:
    words = ["[UNK]", "red", "##der", "##est", "a", "##b", "!", ",", "é", "😀", "'", "##s"]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=with_added(backend), eos_token="</s>", unk_token="[UNK]")


TOKENIZERS = {
    "bytes": tiny_tokenizer(),
    "merges": byte_level_with_merges(),
    "llama": sentencepiece(strips=True),
    "gemma": sentencepiece(strips=False),
    "unigram": unigram(),
    "word piece": word_piece(),
}
EVERY = pytest.mark.parametrize("name", TOKENIZERS)


def places(name: str, *tokens: str | int) -> TokenPlaces:
    """Of tokens by their names in the vocabulary, or by their ids."""
    tokenizer = TOKENIZERS[name]
    ids = [token if isinstance(token, int) else tokenizer.get_vocab()[token] for token in tokens]
    return TokenTexts(tokenizer)(ids)


def counted(found: TokenPlaces) -> list[tuple[int, int]]:
    return list(zip(found.begins.tolist(), found.ends.tolist(), strict=True))


def spelled(text: str) -> list[str]:
    """The tokens of sentencepiece for the bytes of a text."""
    return [BYTE_TOKENS[byte] for byte in text.encode()]


def bytes_of(text: str) -> list[int]:
    return TOKENIZERS["bytes"](text, add_special_tokens=False)["input_ids"]


# By hand


def test_of_ascii_in_bytes_a_character_is_a_token():
    found = places("bytes", *bytes_of('{"a": 1}'), "<|im_end|>")
    assert found.text == '{"a": 1}<|im_end|>'
    assert counted(found) == [(t, t + 1) for t in range(8)] + [(8, 18)]
    assert found.tokens(1, 4) == (1, 4)
    assert found.tokens(6, 7) == (6, 7)
    assert found.tokens(7, 18) == (7, 9)  # up to the end: with the end of the sequence
    assert found.tokens(7, 8) == (7, 8)  # a place before it: without
    assert found.tokens(10, 11) == (8, 9)  # in the middle of its name


ADDED = ["a", "<färbe>", "b", "two words", "</s>"]
BEYOND = len(TOKENIZERS["bytes"]) + 7  # an id without a token


@pytest.mark.parametrize(
    ("name", "tokens", "parts"),
    [
        ("merges", ["a", "Ġred", ",", "Ã©!", "</s>"], ["a", " red", ",", "é!", "</s>"]),
        ("bytes", [*bytes_of("a"), "<|im_end|>", *bytes_of("b"), "<think>"], ["a", "<|im_end|>", "b", "<think>"]),
        ("gemma", ADDED, ["a", "<färbe>", "b", "two words", "</s>"]),
        ("merges", ADDED, ["a", "<f\ufffdrbe>", "b", "two words", "</s>"]),
        ("llama", ADDED, ["a", " <färbe>", "b", " two words", "</s>"]),
        ("unigram", ["▁▁", "a", "▁▁", "b"], ["", "a", "  ", "b"]),
        ("llama", ["b", "\n", "▁▁▁▁", "a", "▁▁", "b"], ["b", "\n", "    ", "a", "  ", "b"]),
        ("gemma", ["a", *spelled("😀")[:2], "b", "</s>"], ["a", "\ufffd", "\ufffd", "b", "</s>"]),
        ("unigram", ["▁red", "!", "▁a", "b", "😀", "</s>"], ["red", "!", " a", "b", "😀", "</s>"]),
        ("word piece", ["red", "##der", ",", "a", "##b", "!", "</s>"], ["red", "der", ",", " a", "b", "!", " </s>"]),
    ],
)
def test_tokens_of_whole_characters_are_the_parts_of_the_text(name, tokens, parts):
    found = places(name, *tokens)
    assert found.text == "".join(parts)
    ends = [*accumulate(map(len, parts))]
    assert counted(found) == list(pairwise([0, *ends]))


def raw(text: bytes) -> list[str]:
    """The tokens of bytes that may be no text."""
    return [bytes_to_unicode()[byte] for byte in text]


FAMILY = "👩\u200d👧"  # 4 + 3 + 4 bytes in three code points, one sign on the screen


@pytest.mark.parametrize(
    ("name", "tokens", "text", "expected"),
    [
        ("bytes", bytes_of(FAMILY), FAMILY, [(0, 1)] * 4 + [(1, 2)] * 3 + [(2, 3)] * 4),
        ("merges", ["ðŁ", "ĺĢ", "ðŁ", "ĺ", "Ģ", "Ã", "©"], "😀😀é", [(0, 1)] * 2 + [(1, 2)] * 3 + [(2, 3)] * 2),
        ("llama", ["a", *spelled("😀"), *spelled("ü")], "a😀ü", [(0, 1)] + [(1, 2)] * 4 + [(2, 3)] * 2),
        ("bytes", raw(b"a\xf0\x9fb"), "a\ufffdb", [(0, 1), (1, 2), (1, 2), (2, 3)]),
        ("bytes", raw(b"\x9f\x98b"), "\ufffd\ufffdb", [(0, 1), (1, 2), (2, 3)]),
        ("bytes", raw(b"\xf0\xf0\x9f\x98\x80"), "\ufffd😀", [(0, 1)] + [(1, 2)] * 4),
        ("bytes", [raw(b"\xc3")[0], BEYOND, raw(b"\xa9")[0], BEYOND, "b"], "éb", [(0, 1)] * 3 + [(1, 1), (1, 2)]),
    ],
)
def test_tokens_that_share_a_character_have_it_in_common(name, tokens, text, expected):
    """Also a replacement character, and a token without text in the middle of a character."""
    found = places(name, *tokens)
    assert found.text == text
    assert counted(found) == expected


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_what_breaks_off_in_a_character_is_read_from_there_on(name, monkeypatch):
    """Its decoder writes U+FFFD for each byte. From the first token on, the time would grow with the square."""
    tokenizer, tokens = TOKENIZERS[name], [*"a" * 100, *spelled("🙂")[:2]]
    decode, sizes = tokenizer.decode, []
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **how: sizes.append(len(ids)) or decode(ids, **how))
    found = places(name, *tokens)
    assert found.text == "a" * 100 + "\ufffd" * 2
    assert counted(found)[:100] == [(t, t + 1) for t in range(100)] and found.ends[-1] == 102
    assert [size for size in sizes if size > 1] == [102, 101, 102]


@EVERY
def test_ids_beyond_the_vocabulary_have_no_text(name):
    beyond = len(TOKENIZERS[name]) + 7
    found = places(name, beyond, "</s>" if name != "bytes" else "<|im_end|>", beyond)
    assert found.text == TOKENIZERS[name].eos_token
    end = len(found.text)
    assert counted(found) == [(0, 0), (0, end), (end, end)]
    assert found.tokens(0, 1) == (1, 2)
    assert found.tokens(0, end) == (1, 3)  # up to the end of the text: with the tokens that follow


# Properties, of any tokens


def tokens_of(name: str) -> st.SearchStrategy[list[int]]:
    """Token ids, a few of them beyond the vocabulary; bytes are as frequent as all others together."""
    tokenizer = TOKENIZERS[name]
    single = [i for token, i in tokenizer.get_vocab().items() if token in BYTE_TOKENS or len(token) == 1]
    return st.lists(st.integers(0, len(tokenizer) + 1) | st.sampled_from(single), max_size=12)


def by_definition(found: TokenPlaces, start: int, end: int) -> tuple[int, int]:
    """From the first to the last token that shares a character; to the end if the place ends there."""
    sharing = [
        t
        for t, (begin, stop) in enumerate(counted(found))
        if any(begin <= character < stop for character in range(start, end))
    ]
    return sharing[0], len(found.begins) if end == len(found.text) else sharing[-1] + 1


@EVERY
@settings(max_examples=60)
@given(st.data())
def test_places_of_any_tokens(name, data):
    tokenizer, ids = TOKENIZERS[name], data.draw(tokens_of(name))
    found = TokenTexts(tokenizer)(ids)
    assert found.text == tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert len(found.begins) == len(found.ends) == len(ids)
    assert (np.diff(found.begins) >= 0).all() and (np.diff(found.ends) >= 0).all()
    assert (found.begins <= found.ends).all() and (found.begins >= 0).all() and (found.ends <= len(found.text)).all()
    owned = {character for begin, end in counted(found) for character in range(begin, end)}
    assert owned == set(range(len(found.text)))
    for start in range(len(found.text)):
        for end in range(start + 1, len(found.text) + 1):
            first, last = found.tokens(start, end)
            assert (first, last) == by_definition(found, start, end)
            assert 0 <= first < last <= len(ids)
        assert found.tokens(start, len(found.text))[1] == len(ids)


@pytest.mark.parametrize("name", ["bytes", "merges", "llama", "gemma", "unigram"])
@settings(max_examples=60)
@given(st.data())
def test_tokens_of_one_tokenizer_are_read_once(name, data):
    """What a token was found to be does not depend on the completions before."""
    texts, ids = TokenTexts(TOKENIZERS[name]), data.draw(tokens_of(name))
    texts(data.draw(tokens_of(name)))
    again, fresh = texts(ids), TokenTexts(TOKENIZERS[name])(ids)
    assert again.text == fresh.text and counted(again) == counted(fresh)
