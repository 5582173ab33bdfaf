"""A judge that quotes what it judged becomes a span reward function: each quotation is the place of its score.

text   The tower is 300 metres tall. It was built in 1789.<|im_end|>
judge  [("height", 1.0, "300 metres tall"), ("date", 0.0, "built in  1789"), ("polite", 1.0, None)]

criterion  reward  place
height     1.0     `300 metres tall`
date       0.0     `built in 1789`
polite     1.0     none: the judge quoted nothing
"""

import logging
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from numbers import Real
from typing import Any, NamedTuple
from unicodedata import combining

from tempo_trl.rewards.mean_reward import made_of
from tempo_trl.rewards.span_reward import SpanReward

logger = logging.getLogger(__name__)

_MARKS = str.maketrans("‘’`´“”„«»‐‑–—ς", "''''" + '"' * 5 + "----σ")
_AROUND = "\"'“”„«»‘’` "
# Both sides of an index that is inside a number: 1,|300 and 1|,300, 0|.5, 10|:30, 1/|2, and -|5 behind a space.
_IN_NUMBER = re.compile(r"\d[.,:/'’]\|\d|\d\|[.,:/'’]\d|[^\w.,)\]][-−]\|\d")
Place = tuple[int, int]


class Quote(NamedTuple):
    """
    What a judge says of one criterion of a completion.

    Args:
        name (`str`): The criterion.
        score (`float`, *optional*): Its reward; None if it was not judged.
        quote (`str`, *optional*): The text of the completion that decided it; None if no single place did.
    """

    name: str
    score: float | None
    quote: str | None = None


def quotes(judge: Callable[..., Any], *, fold: bool = True) -> Callable[..., Any]:
    """
    Make a span reward function of a judge that quotes from the completions.

    A quotation is found where it stands first in `texts`, up to white space, and begins and ends where a word or a
    number does: "300 metres" is not in "1,300 metres". Letters without case, such as Chinese ones, have no words. If
    the text does not have it as it stands, case and the kind of quotation marks, apostrophes and dashes may differ,
    because judges tidy what they quote. Quotation marks around a quotation may be the judge's own.

    A criterion without a place is credited to the whole completion: one that quotes nothing, or an empty text, and one
    whose quotation is not there. A warning is given for the first of the latter, and their share is logged. Several
    quotations of one criterion are its places. They must have one score, and those that are not found are left out.

    Args:
        judge (`Callable`):
            Called with the keywords of a span reward function, `texts` among them. It returns a list per completion
            of [`Quote`], or of tuples `(name, score, quote)` or dicts with these keys; `quote` may be left out. It may
            be `async`.
        fold (`bool`, *optional*, defaults to `True`):
            Whether case and kinds of marks may differ.

    Returns:
        `Callable`: The span reward function, named after the judge, and `async` if the judge is. It logs
        `quotes/found` with TRL's `log_metric`, the share of quotations that were found.

    Raises:
        ValueError: when it is called, if the judge returns anything else, with the row, what was got and what is
            expected.
    """
    warn = _once(logger.warning)
    finder = partial(_spans, fold=fold, warn=warn)

    def spans(texts: list[str], **columns) -> list[list[SpanReward]]:
        return finder(judge(texts=texts, **columns), texts, made.__name__, columns.get("log_metric"))

    async def async_spans(texts: list[str], **columns) -> list[list[SpanReward]]:
        return finder(await judge(texts=texts, **columns), texts, made.__name__, columns.get("log_metric"))

    made = made_of(judge, spans, async_spans)
    return made


def _once(effect: Callable[..., None]) -> Callable[..., None]:
    """A function that has its effect at its first call only."""
    left = iter([effect])
    return lambda *args: next(left, lambda *_: None)(*args)


def _spans(
    judged: Any, texts: list[str], judge: str, log_metric: Callable[[str, float], None] | None, *, fold: bool, warn
) -> list[list[SpanReward]]:
    """The criteria of all completions, from what the judge returned."""
    rows = _checked(judged, len(texts), judge)
    placed = [_placed(row, _Words(text), fold) for row, text in zip(rows, texts, strict=True)]
    found = [place is not None for row in placed for quote, place in row if _quoted(quote)]
    if log_metric is not None and found:
        log_metric("quotes/found", sum(found) / len(found))
    for row, own in enumerate(placed):
        for quote, place in own:
            if _quoted(quote) and place is None:
                warn(
                    "%s quotes %.200r for %r, which is not in completion %d. The criterion has no place, so that its "
                    "credit falls on the whole completion. Ask the judge for verbatim quotations, and watch the "
                    "metric quotes/found. This warning is given once.",
                    *(judge, quote.quote, quote.name, row),
                )
    return [list(_merged(own)) for own in placed]


def _placed(row: list[Quote], words: "_Words", fold: bool) -> list[tuple[Quote, Place | None]]:
    return [(quote, words.find(_quoted(quote), fold)) for quote in row]


def _quoted(quote: Quote) -> str:
    """The words of a quotation with single spaces; empty if nothing is quoted."""
    return " ".join((quote.quote or "").split())


def _merged(own: list[tuple[Quote, Place | None]]) -> Iterator[SpanReward]:
    """The criteria of a completion: each with its places, or once without a place."""
    scores = {quote.name: quote.score for quote, _ in own}
    places: dict[str, dict[Place, None]] = {name: {} for name in scores}
    for quote, place in own:
        places[quote.name] |= {} if place is None else {place: None}
    for name, found in places.items():
        yield from (SpanReward(name, scores[name], *place) for place in found or [(None, None)])


class _Words:
    """A text with single spaces between its words, in which quotations are found."""

    def __init__(self, text: str):
        words = [*re.finditer(r"\S+", text)]
        self._spaced = " ".join(word[0] for word in words)
        # Of each character of it, where the text has it. That of a space is never asked for.
        self._places = [at for word in words for at in range(word.start(), word.end() + 1)]

    @cached_property
    def _folded(self) -> str:
        return _folded(self._spaced)

    def find(self, wanted: str, fold: bool) -> Place | None:
        """Place of a quotation in the text, None if it is not there."""
        for own in filter(None, (wanted, wanted.strip(_AROUND))):
            start = _first(own, self._spaced)
            if start is None and fold:
                start = _first(_folded(own), self._folded)
            if start is not None:
                return self._places[start], self._places[start + len(own) - 1] + 1
        return None


def _folded(text: str) -> str:
    """A text in lower case with plain marks, of the same length."""
    return text.replace("İ", "i").lower().translate(_MARKS)  # no other letter becomes two in lower case


def _first(wanted: str, text: str) -> int | None:
    """Index of the first occurrence that begins and ends where a word or a number does."""
    at = text.find(wanted)
    while at >= 0 and (_is_inside(text, at) or _is_inside(text, at + len(wanted))):
        at = text.find(wanted, at + 1)
    return at if at >= 0 else None


def _is_inside(text: str, at: int) -> bool:
    """Whether a word or a number, with its sign, goes on across an index."""
    before, after = text[max(at - 2, 0) : at], text[at : at + 2]
    is_in_word = _is_of_word(before[-1:]) and (_is_of_word(after[:1]) or bool(combining(after[:1] or " ")))
    return is_in_word or _IN_NUMBER.search(f"{before.rjust(2)}|{after}") is not None


def _is_of_word(character: str) -> bool:
    return character == "_" or character.isnumeric() or character.lower() != character.upper()


def _checked(judged: Any, completions: int, judge: str) -> list[list[Quote]]:
    """What the judge returned as [`Quote`]s."""
    if not isinstance(judged, list | tuple) or len(judged) != completions:
        got = f"{len(judged)} lists" if isinstance(judged, list | tuple) else type(judged).__name__
        raise ValueError(f"{judge} must return {completions} lists of quotes, one per completion, got {got}.")
    return [_row(given, f"{judge}, row {row}") for row, given in enumerate(judged)]


def _row(given: Any, where: str) -> list[Quote]:
    if not isinstance(given, list | tuple) or isinstance(given, Quote):
        raise ValueError(f"{where}: expected a list of quotes, got {given!r}.")
    row = [_quote(each, where) for each in given]
    scores: dict[str, float | None] = {}
    for quote in row:
        if scores.setdefault(quote.name, quote.score) != quote.score:
            raise ValueError(
                f"{where}: {quote.name!r} has the scores {scores[quote.name]} and {quote.score}, expected one. Give "
                "quotations of different scores different names, or one score to the criterion."
            )
    return row


def _quote(given: Any, where: str) -> Quote:
    try:
        quote = Quote(**given) if isinstance(given, dict) else Quote(*given)
    except TypeError:
        quote = Quote("", None)
    name, score, text = quote
    if not isinstance(name, str) or not name or isinstance(given, str) or not isinstance(text, str | None):
        raise ValueError(
            f"{where}: expected (name, score, quoted text or None), or a dict with these keys, got {given!r}."
        )
    if score is not None and not (isinstance(score, Real) and math.isfinite(score)):
        raise ValueError(
            f"{where}: the score of {name!r} must be a finite number, or None if it was not judged, got {score!r}."
        )
    return quote
