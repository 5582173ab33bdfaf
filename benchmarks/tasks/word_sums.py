"""The task `word_sums`: a story in words becomes four lines of sums.

One row, `{"story": ..., "sums": ..., "answer": ...}`:

    story   Emma has 3 bags of 4 pens, buys 6, doubles all and loses 8.
    sums    3 * 4 = 12
            12 + 6 = 18
            18 * 2 = 36
            36 - 8 = 28
            Answer: 28
    answer  28

Each line continues with the result of the line before, so that an early mistake spoils all that follows. The prompt
has a system message and one worked example before the story, 121 tokens of SmolLM2 in all, and the answer has about
45. Held-out stories have other names, things, numbers and sentences; the results of their sums may be the same.

[`~tempo_trl.rewards.equations`] checks the arithmetic and the final answer, but cannot know whether a line is the
story's: `12 + 0 = 12` is right, too. The task's own span reward function, [`story_sums`], adds that, and lets only the
story's lines earn something for their arithmetic.
"""

import random
from collections.abc import Iterator
from itertools import islice, permutations
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.tasks import prompts
from tempo_trl.rewards.equation_reading import Equation, equations_of
from tempo_trl.rewards.equations import equations
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.reading import Segment, readings
from tempo_trl.rewards.span_reward import SpanReward

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = {"train": 3600, "test": 128}
MOST_AT_FIRST = 36  # so that all results have at most two digits

LINES = 4
LINE_NAMES = {f"line {n}" for n in range(1, LINES + 1)}  # criteria of `equations`
SYSTEM_PROMPT = "Write four sums and the answer."
EXAMPLE = (
    "John has 5 boxes of 5 books, finds 11, sells 1 and doubles all.",
    "5 * 5 = 25\n25 + 11 = 36\n36 - 1 = 35\n35 * 2 = 70\nAnswer: 70",
)


class Vocabulary(NamedTuple):
    """What the stories of a split are made of; the splits share nothing, and neither has the example's."""

    names: tuple[str, ...]
    boxes: tuple[str, ...]
    items: tuple[str, ...]
    numbers: tuple[int, ...]
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    doublings: tuple[str, ...]
    sentences: tuple[str, ...]


VOCABULARIES = {
    "train": Vocabulary(
        names=("Alice", "Ben", "Clara", "David", "Emma", "Grace", "Henry", "Kate", "Paul", "Simon"),
        boxes=("bags", "packs", "rows", "sets", "bowls"),
        items=("pens", "apples", "cards", "eggs", "coins", "shells", "stamps", "cakes"),
        numbers=(3, 4, 6, 8, 10),
        gains=("buys {}", "adds {}", "gets {}"),
        losses=("loses {}", "gives away {}", "eats {}"),
        doublings=("doubles all", "doubles them"),
        sentences=(
            "{name} has {first} {boxes} of {second} {items}, {steps[0]}, {steps[1]} and {steps[2]}.",
            "With {first} {boxes} of {second} {items}, {name} {steps[0]}, {steps[1]} and {steps[2]}.",
        ),
    ),
    "test": Vocabulary(
        names=("Anna", "Carol", "Daniel", "Frank", "Helen", "Peter", "Sarah", "Thomas"),
        boxes=("baskets", "jars", "bunches", "trays"),
        items=("balls", "stones", "flowers", "keys", "toys", "roses"),
        numbers=(2, 7, 9, 12),
        gains=("picks up {}", "takes {} more"),
        losses=("breaks {}", "drops {}"),
        doublings=("doubles the number", "makes it twice as many"),
        sentences=("There are {first} {boxes} of {second} {items}. {name} {steps[0]}, {steps[1]} and {steps[2]}.",),
    ),
}


def generated_rows(split: str, n: int | None = None, seed: int = 0) -> list[dict]:
    """`n` stories with their sums, `{"story": ..., "sums": ..., "answer": ...}`, by default all of the task's."""
    rng = random.Random(f"word_sums {split} {seed}")
    return [story(VOCABULARIES[split], rng) for _ in range(n or ROWS[split])]


def story(of: Vocabulary, rng: random.Random) -> dict:
    """One story as a row: so many boxes of so many items, then a gain, a loss and a doubling in any order."""
    first, second = rng.choice([(a, b) for a, b in permutations(of.numbers, 2) if a * b <= MOST_AT_FIRST])
    steps = rng.sample(
        [_step("+", of.gains, of, rng), _step("-", of.losses, of, rng), (rng.choice(of.doublings), "*", 2)], 3
    )
    words = {"name": rng.choice(of.names), "boxes": rng.choice(of.boxes), "items": rng.choice(of.items)}
    words |= {"first": first, "second": second, "steps": [said for said, _, _ in steps]}
    sums, answer = worked(first, [("*", second), *(step[1:] for step in steps)])
    return {"story": rng.choice(of.sentences).format(**words), "sums": sums, "answer": str(answer)}


Step = tuple[str, str, int]  # in words, its sign and its number


def _step(sign: str, phrases: tuple[str, ...], of: Vocabulary, rng: random.Random) -> Step:
    number = rng.choice(of.numbers)
    return rng.choice(phrases).format(number), sign, number


def worked(total: int, steps: list[tuple[str, int]]) -> tuple[str, int]:
    """The lines of a calculation, in which each step continues with the result of the one before, and its result."""
    lines = []
    for sign, number in steps:
        result = {"+": total + number, "-": total - number, "*": total * number}[sign]
        lines.append(f"{total} {sign} {number} = {result}")
        total = result
    return "\n".join([*lines, f"Answer: {total}"]), total


def load(split: str, seed: int = 0) -> "Dataset":
    """The task as prompts, with `sums` and `answer` for [`story_sums`], the same for every seed."""
    return prompts(generated_rows(split), "story", SYSTEM_PROMPT, EXAMPLE)


def story_sums(
    texts: list[str], completions: list | None = None, *, sums: list[str], **columns: list
) -> list[list[SpanReward]]:
    """
    Span reward function: [`~tempo_trl.rewards.equations`] with four lines, of which only those of the story count.

    - `line N as told` earns 1.0 if operator and second operand are those of the row's `sums`; in the first line, the
      first operand counts, too. Its place is what is compared, or that of `line N` if there is no such line.
    - `line N`, its arithmetic, earns 0.0 if the line is not as told, with the place of that: else easy sums would pay.
    - `four sums` earns 1.0 if there are four and no more. Its place is what follows the fourth, or the last one.

    Args:
        texts, completions, **columns: Passed to `equations`; `answer` has the final answers.
        sums: The sums of each row.
    """
    judged = equations(texts, completions, lines=LINES, chain=True, **columns)
    answers = (reading.answer for reading in readings(texts, completions))
    return [[*_criteria(*row)] for row in zip(answers, sums, judged, strict=True)]


def _criteria(answer: Segment, sums: str, judged: list[SpanReward]) -> Iterator[SpanReward]:
    said = answer.said if answer.kind == "content" else ""
    found = [*islice(equations_of(said), LINES + 1)]
    told = {span.name: span for span in _told(answer, found[:LINES], sums)}
    for span in judged:
        as_told = told.get(span.name, span)  # of a line that is missing, the span itself
        if span.name in LINE_NAMES:
            yield as_told._replace(name=f"{span.name} as told")
        yield span if as_told.reward else as_told
    last = found[:LINES][-1].result.end if found else 0
    yield SpanReward("four sums", float(len(found) == LINES), *answer.span(last if said.strip() else None, None))


def _told(answer: Segment, found: list[Equation], sums: str) -> Iterator[SpanReward]:
    for n, (equation, expected) in enumerate(zip(found, equations_of(sums), strict=False), 1):
        start = equation.operands[0].start if n == 1 else equation.operands[0].end
        is_told = _compared(equation, n) == _compared(expected, n)
        yield SpanReward(f"line {n}", float(is_told), *answer.span(start, equation.operands[-1].end))


def _compared(equation: Equation, line: int) -> tuple:
    """What of an equation the story says: operators and operands, but from line 2 on not the first, a result."""
    numbers = [operand.value for operand in equation.operands]
    return equation.operators, tuple(numbers if line == 1 else numbers[1:])


story_sums_reward = mean_reward(story_sums)
