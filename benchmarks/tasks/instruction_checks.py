"""Checks of instructions whose truth is in the text; `test_instructions.py` has an answer of each sort.

An answer that an instruction's loophole would earn is not paid either: [`is_prose`].
"""

import re
from collections.abc import Callable

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


def follows(answer: str, kind: str, words: list[str], number: int) -> bool:
    """
    Whether an answer follows its instruction.

    Args:
        answer: The text, without special tokens.
        kind: A key of [`CHECKS`].
        words: Words or letters of the instruction, in lower case; for `sum` the two digits as words.
        number: Sentences or words of the instruction; 0 for other kinds.
    """
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


def _uses(answer: str, word: str) -> bool:
    """
    Whether an answer uses a whole word.

    A word in quotation marks or asterisks is mentioned, not used: `The word "lamp" is a noun.`
    """
    return re.search(rf"(?<!{_MARK}){re.escape(word)}(?!{_MARK})", answer, re.IGNORECASE) is not None


def _sentences(answer: str, words: list[str], number: int) -> bool:
    ends = [match.end() for match in SENTENCE_END.finditer(answer)]
    return len(ends) == number and WORD.search(answer, ends[-1]) is None


def _sum(answer: str, words: list[str], number: int) -> bool:
    """The first number after both digits of the question, in this or the other order; without them the first."""
    left = [NUMBERS.index(word) for word in words]
    for value in filter(lambda value: value is not None, map(_number, lower_words(answer))):
        if value not in left:
            return value == sum(map(NUMBERS.index, words))
        left.remove(value)
    return False


def _number(word: str) -> int | None:
    if word.isdecimal():
        return int(word) if len(word) <= 4000 else -1  # `int` raises an error above 4,300 digits
    return NUMBERS.index(word) if word in NUMBERS else None


CHECKS: dict[str, Callable[[str, list[str], int], bool]] = {
    "first_word": lambda answer, words, number: lower_words(answer)[:1] == words,
    "last_word": lambda answer, words, number: lower_words(answer)[-1:] == words,
    "two_words": lambda answer, words, number: all(_uses(answer, word) for word in words),
    "no_comma": lambda answer, words, number: "," not in answer,
    "no_letter": lambda answer, words, number: words[0] not in answer.lower(),
    "sentences": _sentences,
    "max_words": lambda answer, words, number: len(lower_words(answer)) <= number,
    "sum": _sum,
    "word_no_comma": lambda answer, words, number: "," not in answer and _uses(answer, words[0]),
    "three_words": lambda answer, words, number: all(_uses(answer, word) for word in words),
}
