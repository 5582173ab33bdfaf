"""The task `instructions`: short instructions whose truth is in the text.

    first_word     Write one sentence about a rainy day. Begin with the word 'Today'.
    last_word      Write one sentence about an old house and end it with the word 'river'.
    two_words      Write one sentence with the words 'lamp' and 'bridge'.
    no_comma       Write about a busy market. Do not use any commas.
    no_letter      Write one short sentence about a birthday. Do not use the letter 'w'.
    sentences      Write exactly three sentences about a lost dog.
    max_words      Write one sentence of at most 12 words about a train ride.
    sum            Answer in one sentence: what is four plus three?
    word_no_comma  Write a sentence with the word 'lamp'. Do not use any commas.
    three_words    Write one sentence with the words 'lamp', 'bridge' and 'rain'.

Held-out problems have other topics, words, letters and numbers, and `three_words`, which is never trained.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tasks import prompts as prompts_from
from benchmarks.tasks.instruction_checks import follows, is_prose
from tempo_trl.rewards.boxed import after_thinking, completion_text

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 3600, "test": 240}  # 400 and 24 of each kind
TEXTS = {
    "first_word": "Write one sentence about {topic}. Begin with the word '{}'.",
    "last_word": "Write one sentence about {topic} and end it with the word '{}'.",
    "two_words": "Write one sentence with the words '{}' and '{}'.",
    "no_comma": "Write about {topic}. Do not use any commas.",
    "no_letter": "Write one short sentence about {topic}. Do not use the letter '{}'.",
    "sentences": "Write exactly {count} about {topic}.",
    "max_words": "Write one sentence of at most {number} words about {topic}.",
    "sum": "Answer in one sentence: what is {} plus {}?",
    "word_no_comma": "Write a sentence with the word '{}'. Do not use any commas.",
    "three_words": "Write one sentence with the words '{}', '{}' and '{}'.",
}
KINDS = tuple(TEXTS)
TRAINED = KINDS[:-1]  # never three_words
WORDS_OF = {"first_word": 1, "last_word": 1, "two_words": 2, "three_words": 3, "no_letter": 1}
WORDS_OF |= {"sum": 2, "word_no_comma": 1}  # the other kinds name none


class Vocabulary(NamedTuple):
    """What the instructions of a split are made of; the splits share nothing."""

    topics: tuple[str, ...]
    nouns: tuple[str, ...]
    openers: tuple[str, ...]
    letters: tuple[str, ...]
    sentences: tuple[int, ...]
    limits: tuple[int, ...]
    digits: tuple[tuple[str, str], ...]


_DIGITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SUMS = [(a, b) for i, a in enumerate(_DIGITS, 1) for j, b in enumerate(_DIGITS, 1) if i < j and i + j < 10]
_COUNTS = {1: "one sentence", 2: "two sentences", 3: "three sentences"}

VOCABULARIES = {
    "train": Vocabulary(
        topics=(
            *("a rainy day", "a trip to the sea", "an old house", "a busy market", "learning to swim", "a lost dog"),
            *("a winter morning", "a small shop", "the night sky", "a birthday", "a train ride", "a quiet library"),
            *("a football match", "cooking dinner", "a new school", "a garden in spring", "a long walk", "the moon"),
            *("a good friend", "an apple tree", "a fishing boat", "a street musician", "a school bus", "a warm fire"),
        ),
        nouns=(
            *("river", "cat", "lamp", "bread", "music", "bicycle", "letter", "mountain", "window", "teacher", "ship"),
            *("horse", "candle", "forest", "doctor", "pencil", "island", "basket", "clock", "bird", "road", "chair"),
        ),
        openers=("today", "when", "my", "every", "once", "after", "people", "here", "while", "many", "our", "if"),
        letters=("b", "g", "k", "p", "v"),
        sentences=(1, 3),
        limits=(8, 10, 12, 14),
        digits=tuple(_SUMS[::2]),
    ),
    "test": Vocabulary(
        topics=(
            *("a summer evening", "a mountain village", "a broken clock", "a snowy street", "a piano lesson"),
            *("a picnic", "a hospital", "the first day of work", "an empty beach", "a bakery", "a family photo"),
        ),
        nouns=(
            *("garden", "bridge", "market", "apple", "rain", "tower", "kitchen", "spoon", "flower", "boat", "mirror"),
        ),
        openers=("tonight", "before", "your", "some", "never", "children", "there", "outside"),
        letters=("m", "w", "y"),
        sentences=(2,),
        limits=(9, 11, 13),
        digits=tuple(_SUMS[1::2]),
    ),
}


def generated_rows(split: str, n: int | None = None, seed: int = 0) -> list[dict]:
    """
    `n` instructions of a split, by default all of the task's.

    The kinds come in turn: nine training rows, or ten held-out ones, have one of each.

    Returns:
        `list[dict]` with `instruction`, `kind`, `words` and `number`
        ([`~benchmarks.tasks.instruction_checks.follows`]).
    """
    rng, kinds = random.Random(f"{split} {seed}"), TRAINED if split == "train" else KINDS
    return [problem(kinds[index % len(kinds)], VOCABULARIES[split], rng) for index in range(n or ROWS[split])]


def problem(kind: str, of: Vocabulary, rng: random.Random) -> dict:
    """One instruction of a kind, as a row."""
    words, number = _named(kind, of, rng)
    topic = rng.choice(of.topics) if "{topic}" in TEXTS[kind] else ""
    shown = [word.title() for word in words] if kind == "first_word" else words
    instruction = TEXTS[kind].format(*shown, topic=topic, number=number, count=_COUNTS.get(number))
    return {"instruction": instruction, "kind": kind, "words": words, "number": number}


def _named(kind: str, of: Vocabulary, rng: random.Random) -> tuple[list[str], int]:
    """The words and the number that an instruction of a kind names."""
    if kind == "sum":
        return rng.sample(rng.choice(of.digits), 2), 0
    if kind in ("sentences", "max_words"):
        return [], rng.choice(of.sentences if kind == "sentences" else of.limits)
    known = {"first_word": of.openers, "no_letter": of.letters}.get(kind, of.nouns)
    return rng.sample(known, WORDS_OF.get(kind, 0)), 0


def load(split: str, seed: int = 0) -> "Dataset":
    """The task as prompts, with the columns that [`instruction_reward`] needs, the same for every seed."""
    return prompts_from(generated_rows(split), "instruction")


def instruction_reward(
    completions: list[list[dict[str, str]]],
    kind: list[str],
    words: list[list[str]],
    number: list[int],
    prompts: list[list[dict[str, str]]],
    log_metric: Callable[[str, float], None] | None = None,
    **columns,
) -> list[float]:
    """Reward function for TRL: 1.0 if an answer follows its instruction and is prose, else 0.0.

    It logs `instructions/prose`, the share that is prose, and `instructions/{kind}`, the mean reward of each kind.
    """
    answers = [after_thinking(completion_text(completion)) for completion in completions]
    prose = [is_prose(answer, prompt[-1]["content"]) for answer, prompt in zip(answers, prompts, strict=True)]
    checked = [follows(*row) for row in zip(answers, kind, words, number, strict=True)]
    rewards = [float(good and followed) for good, followed in zip(prose, checked, strict=True)]
    if log_metric is not None:
        log_metric("instructions/prose", sum(prose) / len(prose))
        for name in sorted(set(kind)):
            own = [reward for reward, other in zip(rewards, kind, strict=True) if other == name]
            log_metric(f"instructions/{name}", sum(own) / len(own))
    return rewards
