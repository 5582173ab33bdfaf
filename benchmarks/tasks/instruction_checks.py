"""Checks of instructions whose truth is in the text, and the character of an answer that decided each.

    check                           decided at
    first_word  begin with X        the first character
    last_word   end with X          the last word
    two_words   with A and B        the character that completes the second word
    no_comma    without a comma     the first comma
    no_letter   without a letter    the first such letter
    sentences   exactly N           the first character of sentence N + 1
    max_words   at most N           the first character of word N + 1
    sum         a sum of digits     the first number that is not part of the question
    word_no_comma   both            the first comma; without one, the character that completes the word
    three_words     as two_words; held out

An answer that an instruction's loophole would earn is not paid either: [`is_prose`]. IFEval
(https://huggingface.co/papers/2311.07911) has checks of commas, words, letters and ends as well. A test compares them
with these, which also tell the character, and need no download.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Possessive, and from the first mark on, so that a thousand marks are read once.
SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)]*+(?=\s|$)")
_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen
"""
NUMBERS = _NUMBERS.split()
_FUNCTION_WORDS = """
a an the and or but if of to in on at by for from with without into over under after before while when as than
is are was were be been am has have had do does did can could will would may might must shall should not no
i you he she it we they me him her us them my your his its our their this that these those there here
who which what where so very just all
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_MARK = r"""[\w"'“”‘’*`]"""  # beside a word: letters make it another one, quotation marks a mention
_TOPIC, _LETTER = re.compile(r" about (.+?)(?: and end it with|[.]|$)"), re.compile(r"the letter '(\w)'")
FEWEST_WORDS, LEAST_DISTINCT, LEAST_FUNCTION = 5, 2 / 3, 0.15
SHORTEST_FORM = 3
COPY, RULE_COPY = 6, 4  # so many words in a row are copied: of the instruction, and of its last sentence


class Verdict(NamedTuple):
    """Whether an answer follows its instruction, and the index of the character that decided it.

    An index of the answer's length is its end: what decided is that it stopped there.
    """

    passed: bool
    decided: int


def verdict(answer: str, kind: str, words: list[str], number: int) -> Verdict:
    """
    Check an answer.

    Args:
        answer: The text, without special tokens.
        kind: A key of [`CHECKS`].
        words: Words or letters of the instruction, in lower case; for `sum` the two digits as words.
        number: Sentences or words of the instruction; 0 for other kinds.

    Raises:
        ValueError: an unknown kind.
    """
    if kind not in CHECKS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(CHECKS)}. Correct the column `kind`.")
    return CHECKS[kind](answer, words, number)


def is_prose(answer: str, instruction: str = "") -> bool:
    """Whether an answer is whole sentences in words of its own, on its topic: what no loophole of the instructions is.

    It ends with a full stop, an exclamation or a question mark, has five words or more, two in three of them distinct,
    one in seven a function word such as "the" (a list has none), and no six words in a row from the instruction. If
    the instruction has several sentences, the last one tells how to answer, and not what about: no four words in a
    row from it. Else a policy learns to answer "Do not use any commas." And it names its topic ([`is_on_topic`]).
    """
    words = lower_words(answer)
    if len(words) < FEWEST_WORDS or not re.search(r"[.!?][\"'”’)]*$", answer.strip()):
        return False
    functional = sum(word in FUNCTION_WORDS for word in words)
    dense = len(set(words)) >= LEAST_DISTINCT * len(words) and functional >= LEAST_FUNCTION * len(words)
    *before, rule = SENTENCE_END.split(instruction.strip().rstrip(".!?"))
    copied = _shares(words, instruction, COPY) or (before and _shares(words, rule, RULE_COPY))
    return dense and not copied and is_on_topic(words, instruction)


def is_on_topic(words: list[str], instruction: str) -> bool:
    """
    Whether an answer's words have one of the topic's, what follows "about" in the instruction.

    A longer or a shorter form counts as well, such as "rain" for "rainy". Function words do not count, nor do words
    with the letter that the instruction forbids. If the topic has no other words, any answer will do.
    """
    topic, forbidden = _TOPIC.search(instruction), _LETTER.search(instruction)
    named = [] if topic is None else [word for word in lower_words(topic[1]) if word not in FUNCTION_WORDS]
    named = [word for word in named if forbidden is None or forbidden[1] not in word]
    long = [word for word in words if len(word) >= SHORTEST_FORM]
    return not named or any(a.startswith(b) or b.startswith(a) for a in named for b in long)


def _shares(words: list[str], text: str, n: int) -> bool:
    """Whether `n` words in a row are also in a text."""
    return not _runs(words, n).isdisjoint(_runs(lower_words(text), n))


def _runs(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return [match.group().lower() for match in WORD.finditer(text)]


def _end_of(answer: str, word: str) -> int | None:
    """
    Index of the last character of the first use of a whole word, None without one.

    A word in quotation marks or asterisks is mentioned, not used: `The word "lamp" is a noun.`
    """
    found = re.search(rf"(?<!{_MARK}){re.escape(word)}(?!{_MARK})", answer, re.IGNORECASE)
    return found.end() - 1 if found else None


def _first_word(answer: str, words: list[str], number: int) -> Verdict:
    first = WORD.search(answer)
    return Verdict(first is not None and first.group().lower() == words[0], first.start() if first else 0)


def _last_word(answer: str, words: list[str], number: int) -> Verdict:
    *_, last = [None, *WORD.finditer(answer)]
    if last is None:
        return Verdict(False, 0)
    return Verdict(last.group().lower() == words[0], last.start())


def _two_words(answer: str, words: list[str], number: int) -> Verdict:
    ends = [_end_of(answer, word) for word in words]
    return Verdict(False, len(answer)) if None in ends else Verdict(True, max(ends))


def _without(answer: str, character: str) -> Verdict:
    place = next((i for i, each in enumerate(answer) if character in each.lower()), -1)  # "İ" has two in lower case
    return Verdict(place < 0, len(answer) if place < 0 else place)


def _sentences(answer: str, words: list[str], number: int) -> Verdict:
    ends = [match.end() for match in SENTENCE_END.finditer(answer)]
    more = WORD.search(answer, ends[number - 1]) if len(ends) >= number else None
    return Verdict(len(ends) == number and more is None, more.start() if more else len(answer))


def _max_words(answer: str, words: list[str], number: int) -> Verdict:
    starts = [match.start() for match in WORD.finditer(answer)]
    return Verdict(True, len(answer)) if len(starts) <= number else Verdict(False, starts[number])


def _sum(answer: str, words: list[str], number: int) -> Verdict:
    """The first number after both digits of the question, in this or the other order; without them the first."""
    left = [NUMBERS.index(word) for word in words]
    for match in WORD.finditer(answer):
        value = _number(match.group())
        if value in left:
            left.remove(value)
        elif value is not None:
            return Verdict(value == sum(map(NUMBERS.index, words)), match.start())
    return Verdict(False, len(answer))


def _number(word: str) -> int | None:
    if word.isdecimal():
        return int(word) if len(word) <= 4000 else -1  # `int` raises an error above 4,300 digits
    return NUMBERS.index(word.lower()) if word.lower() in NUMBERS else None


def _word_no_comma(answer: str, words: list[str], number: int) -> Verdict:
    comma, end = _without(answer, ","), _end_of(answer, words[0])
    if not comma.passed or end is None:
        return Verdict(False, comma.decided)
    return Verdict(True, end)


CHECKS: dict[str, Callable[[str, list[str], int], Verdict]] = {
    "first_word": _first_word,
    "last_word": _last_word,
    "two_words": _two_words,
    "no_comma": lambda answer, words, number: _without(answer, ","),
    "no_letter": lambda answer, words, number: _without(answer, words[0]),
    "sentences": _sentences,
    "max_words": _max_words,
    "sum": _sum,
    "word_no_comma": _word_no_comma,
    "three_words": _two_words,
}
