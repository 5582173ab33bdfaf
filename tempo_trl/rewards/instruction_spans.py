"""The reward of the task `instructions` with its place: the characters that decided it.

    kind                                place
    first_word                          the first word
    last_word                           from the last word to the end of the text, since stopping there made it last
    two_words, three_words              the word that completed them; none if one is missing
    no_comma, no_letter                 the first comma, the first such letter; none without one
    sentences, max_words                the first character of what was too much; else the end of the sequence
    sum                                 the sum; none without one
    word_no_comma                       the comma, else the word; none if both are missing

No token decides that something never came, so that such an answer has no place. The same holds for an answer that
follows its instruction and is not prose.
"""

from tempo_trl.rewards.answer_place import AnswerPlace
from tempo_trl.rewards.boxed import after_thinking
from tempo_trl.rewards.instruction_checks import WORD, verdict
from tempo_trl.rewards.instruction_reward import instruction_reward
from tempo_trl.rewards.span_reward import SpanReward

_WHOLE_WORD = {"first_word", "last_word", "two_words", "three_words", "sum", "word_no_comma"}
_BY_STOPPING = {"sentences", "max_words"}  # an answer that ends was decided by its end
Place = tuple[int, int] | tuple[None, None]


def instruction_spans(
    texts: list[str],
    completions: list[list[dict[str, str]]] | list[str],
    kind: list[str],
    words: list[list[str]],
    number: list[int],
    prompts: list,
    **columns,
) -> list[list[SpanReward]]:
    """
    Span reward function: one criterion per completion, named after its kind, with the reward of
    [`~tempo_trl.rewards.instruction_reward`].

    Args:
        texts: The completions with their special tokens. Places are characters of them.
        completions, kind, words, number, prompts: As in [`~tempo_trl.rewards.instruction_reward`].
        **columns: Other columns, and TRL's `log_metric`, which receives the metrics of that function.

    Raises:
        ValueError: an unknown kind.
    """
    rewards = instruction_reward(completions, kind, words, number, prompts, **columns)
    answers = map(AnswerPlace, texts, completions)
    rows = zip(answers, kind, words, number, rewards, strict=True)
    return [[SpanReward(row[1], row[-1], *_place(*row))] for row in rows]


def _place(found: AnswerPlace, kind: str, words: list[str], number: int, reward: float) -> Place:
    """Where an answer was decided, in characters of its text."""
    answer = after_thinking(found.answer)
    passed, decided = verdict(answer, kind, words, number)
    offset = len(found.answer) - len(answer)
    if not answer or (passed and not reward):
        return None, None
    if decided >= len(answer):
        stopped = kind in _BY_STOPPING and not found.text.endswith(answer)
        return found.span(len(found.answer), None) if stopped else (None, None)
    start, end = _decisive(answer, kind, decided)
    return found.span(offset + start, None if kind == "last_word" else offset + end)


def _decisive(answer: str, kind: str, decided: int) -> tuple[int, int]:
    """The word around the deciding character, or that character alone."""
    words = WORD.finditer(answer) if kind in _WHOLE_WORD else ()
    around = (word.span() for word in words if word.start() <= decided < word.end())
    return next(around, (decided, decided + 1))
