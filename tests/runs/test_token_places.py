"""Characters of a completion's text to its tokens, against tokens counted by hand, whatever the tokenizer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tempo_trl.runs.token_places import TokenPlaces, TokenTexts, _by_prefixes

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


def end_of_word() -> PreTrainedTokenizerFast:
    """A space is written after a word, and only if another word follows."""
    words = ["red</w>", "r", "e", "d</w>", "a</w>", "!</w>"]
    backend = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    backend.decoder = decoders.BPEDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=with_added(backend), eos_token="</s>")


TOKENIZERS = {
    "bytes": tiny_tokenizer(),
    "merges": byte_level_with_merges(),
    "llama": sentencepiece(strips=True),
    "gemma": sentencepiece(strips=False),
    "unigram": unigram(),
    "word piece": word_piece(),
    "end of word": end_of_word(),
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


def test_a_character_of_several_tokens_belongs_to_all_of_them():
    found = places("bytes", *bytes_of("é😀b"))  # 2 + 4 + 1 bytes
    assert found.text == "é😀b"
    assert counted(found) == [(0, 1)] * 2 + [(1, 2)] * 4 + [(2, 3)]
    assert [found.tokens(i, i + 1) for i in range(3)] == [(0, 2), (2, 6), (6, 7)]
    assert found.tokens(0, 2) == (0, 6)


def test_a_token_of_several_characters_belongs_to_places_that_share_one_of_them():
    found = places("merges", "a", "Ġred", ",", "Ã©!", "</s>")
    assert found.text == "a red,é!</s>"
    assert counted(found) == [(0, 1), (1, 5), (5, 6), (6, 8), (8, 12)]
    assert found.tokens(0, 2) == (0, 2)  # the space is the first character of the word's token
    assert found.tokens(2, 5) == (1, 2)
    assert found.tokens(7, 8) == (3, 4)
    assert found.tokens(4, 7) == (1, 4)


def test_the_halves_of_an_emoji_share_it_with_a_token_that_goes_on_behind_it():
    found = places("merges", "ðŁ", "ĺĢ", "ðŁ", "ĺ", "Ģ", "Ã", "©")
    assert found.text == "😀😀é"
    assert counted(found) == [(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (2, 3)]
    assert found.tokens(1, 2) == (2, 5)


def test_joined_emoji_are_as_many_characters_as_code_points():
    family = "👩\u200d👧"  # 4 + 3 + 4 bytes in three code points, one sign on the screen
    found = places("bytes", *bytes_of(f"a{family}b"))
    assert found.text == f"a{family}b"
    assert [found.tokens(i, i + 1) for i in range(5)] == [(0, 1), (1, 5), (5, 8), (8, 12), (12, 13)]
    assert found.tokens(found.text.index(family), found.text.index("b")) == (1, 12)
    letter = "e\u0301"  # an e, and an accent of two bytes
    assert places("bytes", *bytes_of(letter)).tokens(1, 2) == (1, 3)


@pytest.mark.parametrize(
    ("raw", "text", "expected"),
    [
        (b"a\xf0\x9f", "a\ufffd", [(0, 1), (1, 2), (1, 2)]),  # two bytes of four at the end
        (b"a\xf0\x9fb", "a\ufffdb", [(0, 1), (1, 2), (1, 2), (2, 3)]),
        (b"\x9f\x98b", "\ufffd\ufffdb", [(0, 1), (1, 2), (2, 3)]),  # no beginning: each byte by itself
        (b"\xf0\xf0\x9f\x98\x80", "\ufffd😀", [(0, 1)] + [(1, 2)] * 4),
        (b"\xc3\xc3\xa9\xc3", "\ufffdé\ufffd", [(0, 1), (1, 2), (1, 2), (2, 3)]),
    ],
)
def test_incomplete_bytes_share_their_replacement_character(raw, text, expected):
    letters = TOKENIZERS["bytes"].get_vocab()
    alphabet = {byte: token for token, byte in byte_alphabet().items()}
    found = places("bytes", *(letters[alphabet[byte]] for byte in raw))
    assert found.text == text
    assert counted(found) == expected


def byte_alphabet() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable bytes stand for themselves, the others follow from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(unseen)}


def test_special_tokens_are_in_the_text_by_name_wherever_they_are():
    found = places("bytes", *bytes_of("a"), "<|im_end|>", *bytes_of("b"), "<think>", "<|endoftext|>")
    assert found.text == "a<|im_end|>b<think><|endoftext|>"
    assert counted(found) == [(0, 1), (1, 11), (11, 12), (12, 19), (19, 32)]
    assert found.tokens(11, 12) == (2, 3)
    assert found.tokens(11, 32) == (2, 5)


def test_added_tokens_have_their_own_text_and_what_the_tokenizer_writes_before_it():
    tokens = ("a", "<färbe>", "b", "two words", "</s>")
    for name in ("gemma", "merges"):
        found = places(name, *tokens)
        assert found.text == ("a<färbe>btwo words</s>" if name == "gemma" else "a<f\ufffdrbe>btwo words</s>")
        assert counted(found) == [(0, 1), (1, 8), (8, 9), (9, 18), (18, 22)]
    llama = places("llama", *tokens)  # its normalizer puts a space before each
    assert llama.text == "a <färbe>b two words</s>"
    assert counted(llama) == [(0, 1), (1, 9), (9, 10), (10, 20), (20, 24)]


def test_llama_drops_the_space_at_the_beginning_of_a_text_and_nowhere_else():
    found = places("llama", "▁a", "▁red", ",", "▁", "b", "</s>")
    assert found.text == "a red, b</s>"
    assert counted(found) == [(0, 1), (1, 5), (5, 6), (6, 7), (7, 8), (8, 12)]
    assert found.tokens(1, 5) == (1, 2)
    assert found.tokens(0, 1) == (0, 1)
    special_first = places("llama", "<s>", "▁a")
    assert special_first.text == "<s> a"
    assert counted(special_first) == [(0, 3), (3, 5)]


def test_gemma_keeps_it():
    found = places("gemma", "▁a", "▁red", "</s>")
    assert found.text == " a red</s>"
    assert counted(found) == [(0, 2), (2, 6), (6, 10)]


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_a_token_of_several_spaces_has_them_all(name):
    found = places(name, "b", "\n", "▁▁▁▁", "a", "▁▁", "b")
    assert found.text == "b\n    a  b"
    assert counted(found) == [(0, 1), (1, 2), (2, 6), (6, 7), (7, 9), (9, 10)]


def test_of_several_spaces_at_the_beginning_llama_drops_one_and_unigram_all():
    llama, whole = places("llama", "▁▁▁▁", "a"), places("unigram", "▁▁", "a", "▁▁", "b")
    assert llama.text == "   a"
    assert counted(llama) == [(0, 3), (3, 4)]
    assert whole.text == "a  b"
    assert counted(whole) == [(0, 0), (0, 1), (1, 3), (3, 4)]
    assert whole.tokens(0, 1) == (1, 2)


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_bytes_of_sentencepiece_share_their_character(name):
    found = places(name, "a", *spelled("😀"), "b", *spelled("ü"))
    assert found.text == "a😀bü"
    assert counted(found) == [(0, 1)] + [(1, 2)] * 4 + [(2, 3)] + [(3, 4)] * 2


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_sentencepiece_writes_a_replacement_for_each_byte_of_an_incomplete_character(name):
    at_the_end = places(name, "a", *spelled("😀")[:3])
    assert at_the_end.text == "a\ufffd\ufffd\ufffd"
    assert counted(at_the_end) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    in_the_middle = places(name, "a", *spelled("😀")[:2], "b", "</s>")
    assert in_the_middle.text == "a\ufffd\ufffdb</s>"
    assert counted(in_the_middle) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 8)]


def test_unigram_with_a_metaspace():
    found = places("unigram", "▁red", "!", "▁a", "b", "😀", "</s>")
    assert found.text == "red! ab😀</s>"
    assert counted(found) == [(0, 3), (3, 4), (4, 6), (6, 7), (7, 8), (8, 12)]


def test_word_pieces_write_a_space_before_a_word_and_none_before_a_stop():
    found = places("word piece", "red", "##der", ",", "a", "##b", "!", "</s>")
    assert found.text == TOKENIZERS["word piece"].decode(found_ids("red", "##der", ",", "a", "##b", "!", "</s>"))
    assert found.text == "redder, ab! </s>"
    assert counted(found) == [(0, 3), (3, 6), (6, 7), (7, 9), (9, 10), (10, 11), (11, 16)]
    assert found.tokens(8, 10) == (3, 5)


def found_ids(*tokens: str) -> list[int]:
    return [TOKENIZERS["word piece"].get_vocab()[token] for token in tokens]


@EVERY
def test_ids_beyond_the_vocabulary_have_no_text(name):
    beyond = len(TOKENIZERS[name]) + 7
    found = places(name, beyond, "</s>" if name != "bytes" else "<|im_end|>", beyond)
    assert found.text == TOKENIZERS[name].eos_token
    end = len(found.text)
    assert counted(found) == [(0, 0), (0, end), (end, end)]
    assert found.tokens(0, 1) == (1, 2)
    assert found.tokens(0, end) == (1, 3)  # up to the end of the text: with the tokens that follow


def test_a_token_without_text_in_the_middle_of_a_character_belongs_to_it():
    beyond = len(TOKENIZERS["bytes"]) + 7
    c, a = bytes_of("é")
    found = places("bytes", c, beyond, a, beyond, *bytes_of("b"))
    assert found.text == "éb"
    assert found.tokens(0, 1) == (0, 3)
    assert found.tokens(1, 2) == (4, 5)


@EVERY
def test_an_empty_completion_has_neither_text_nor_tokens(name):
    found = places(name)
    assert found.text == ""
    assert counted(found) == []


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
def test_the_fast_way_is_the_slow_way_where_all_characters_are_complete(name, data):
    tokenizer = TOKENIZERS[name]
    pieces = st.sampled_from([" red", "a", "é", "é!", "😀", "👩\u200d👧", "  ", " ", "b", "\n", tokenizer.eos_token])
    ids = tokenizer("".join(data.draw(st.lists(pieces, max_size=8))), add_special_tokens=False)["input_ids"]
    found = TokenTexts(tokenizer)(ids)
    begins, ends = _by_prefixes(tokenizer.decode, ids, found.text)
    assert counted(found) == list(zip(begins.tolist(), ends.tolist(), strict=True))


@pytest.mark.parametrize("name", ["bytes", "merges", "llama", "gemma", "unigram"])
@settings(max_examples=60)
@given(st.data())
def test_tokens_of_one_tokenizer_are_read_once(name, data):
    """What a token was found to be does not depend on the completions before."""
    texts, ids = TokenTexts(TOKENIZERS[name]), data.draw(tokens_of(name))
    texts(data.draw(tokens_of(name)))
    again, fresh = texts(ids), TokenTexts(TOKENIZERS[name])(ids)
    assert again.text == fresh.text and counted(again) == counted(fresh)


@pytest.mark.parametrize("name", ["bytes", "merges", "llama", "gemma", "unigram"])
def test_whole_characters_take_the_fast_way(name, monkeypatch):
    """The slow one decodes each prefix: of 4,096 tokens, seconds per completion."""
    monkeypatch.setattr("tempo_trl.runs.token_places._by_prefixes", None)
    tokenizer = TOKENIZERS[name]
    text = '    a red, é! 😀  b\n    "a": 1' if name != "unigram" else "  a red, é!  b 😀"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert TokenTexts(tokenizer)([*ids, tokenizer.eos_token_id]).text.endswith(tokenizer.eos_token)
