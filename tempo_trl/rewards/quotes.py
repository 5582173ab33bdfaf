"""A judge that quotes what it judged becomes a span reward function: each quotation is the place of its score.

text   The tower is 300 metres tall. It was built in 1789.<|im_end|>
judge  [("height", 1.0, "300 metres tall"), ("date", 0.0, "built in  1789"), ("polite", 1.0, None)]

criterion  reward  place
height     1.0     `300 metres tall`
date       0.0     `built in 1789`
polite     1.0     none: the judge quoted nothing
"""

import re
from collections.abc import Callable
from itertools import chain, product
from typing import Any, NamedTuple
from unicodedata import combining

from tempo_trl.rewards.mean_reward import made_of
from tempo_trl.rewards.span_reward import SpanReward, check_lists

_MARKS = str.maketrans("‘’`´“”„«»‐‑–—ς", "''''" + '"' * 5 + "----σ")
_AROUND = "\"'“”„«»‘’` "
# Both sides of an index that is inside a number: 1,|300 and 1|,300, 0|.5, 10|:30, 1/|2, and -|5 behind a space.
_IN_NUMBER = re.compile(r"\d[.,:/'’]\|\d|\d\|[.,:/'’]\d|[^\w.,)\]][-−]\|\d")


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


def quotes(judge: Callable[..., Any]) -> Callable[..., Any]:
    """
    Make a span reward function of a judge that quotes from the completions.

    A quotation is found where it stands first behind the last `</think>`, else in the whole of `texts`, up to white
    space, and in what the policy said, not in what tools answered. It begins and ends where a word or a number does:
    "300 metres" is not in "1,300 metres". Letters without case, such as Chinese ones, have no words. If the text does
    not have it as it stands, case and the kind of quotation marks, apostrophes and dashes may differ, because judges
    tidy what they quote. Quotation marks around a quotation may be the judge's own.

    A criterion without a place is credited to the whole completion: one that quotes nothing, or an empty text, and one
    whose quotation is not there. Several quotations of one criterion are its places. They must have one score, and
    those that are not found are left out.

    Args:
        judge (`Callable`):
            Called with the keywords of a span reward function, `texts` among them. It returns a list per completion
            of [`Quote`], or of tuples `(name, score, quote)` or dicts with these keys; `quote` may be left out. It may
            be `async`.

    Returns:
        `Callable`: The span reward function, named after the judge, and `async` if the judge is. It logs
        `quotes/found` with TRL's `log_metric`, the share of quotations that were found.

    Raises:
        ValueError: when it is called, if the judge returns anything else, with the row, what was got and what is
            expected.
    """

    def spans(texts: list[str], **columns) -> list[list[SpanReward]]:
        return _spans(judge(texts=texts, **columns), texts, made.__name__, columns.get("log_metric"))

    async def async_spans(texts: list[str], **columns) -> list[list[SpanReward]]:
        return _spans(await judge(texts=texts, **columns), texts, made.__name__, columns.get("log_metric"))

    made = made_of(judge, spans, async_spans)
    return made


def _spans(
    judged: Any, texts: list[str], judge: str, log_metric: Callable[[str, float], None] | None
) -> list[list[SpanReward]]:
    """The criteria of all completions, from what the judge returned."""
    check_lists(judged, len(texts), judge, Quote)
    rows = [[_quote(each, f"{judge}, row {row}") for each in given] for row, given in enumerate(judged)]
    found = [_placed(row, _Words(text)) for row, text in zip(rows, texts, strict=True)]
    pairs = zip(chain(*rows), chain(*found), strict=True)
    is_found = [span.start is not None for quote, span in pairs if (quote.quote or "").strip()]
    if log_metric is not None and is_found:
        log_metric("quotes/found", sum(is_found) / len(is_found))
    return list(map(_merged, found))


def _placed(row: list[Quote], words: "_Words") -> list[SpanReward]:
    return [SpanReward(name, score, *words.find(" ".join((quote or "").split()))) for name, score, quote in row]


def _merged(spans: list[SpanReward]) -> list[SpanReward]:
    """The criteria of a completion: each with its places, or once without a place."""
    placed = {span[:2] for span in spans if span.start is not None}
    kept = [span for span in spans if span.start is not None or span[:2] not in placed]
    return list(dict.fromkeys(kept))


class _Words:
    """A text with single spaces between its words, in which quotations are found."""

    def __init__(self, text: str):
        words = [*re.finditer(r"\S+", _said(text))]
        self._spaced = " ".join(word[0] for word in words)
        self._folded = _folded(self._spaced)
        self._answer = len(self._spaced) - len(self._spaced.rpartition("</think>")[2])  # where it begins
        # Of each character of it, where the text has it. That of a space is never asked for.
        self._places = [at for word in words for at in range(word.start(), word.end() + 1)]

    def find(self, wanted: str) -> tuple[int, int] | tuple[None, None]:
        """Place of a quotation in the answer, else in the whole text; None for both if it is not there."""
        for begin, own in product(dict.fromkeys((self._answer, 0)), filter(None, (wanted, wanted.strip(_AROUND)))):
            for said, text in ((own, self._spaced), (_folded(own), self._folded)):
                start = _first(said, text, begin)
                if start is not None:
                    return self._places[start], self._places[start + len(own) - 1] + 1
        return None, None


def _said(text: str) -> str:
    """A text with spaces for what the policy did not say, if it knows its turns."""
    said = ""
    for begin, end in getattr(text, "turns", [(0, len(text))]):
        said = said.ljust(begin) + text[begin:end]
    return said


def _folded(text: str) -> str:
    """A text in lower case with plain marks, of the same length."""
    return text.replace("İ", "i").lower().translate(_MARKS)  # no other letter becomes two in lower case


def _first(wanted: str, text: str, begin: int) -> int | None:
    """Index of the first occurrence from `begin` on that begins and ends where a word or a number does."""
    at = text.find(wanted, begin)
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


def _quote(given: Any, where: str) -> Quote:
    try:
        quote = Quote(**given) if isinstance(given, dict) else Quote(*given)
        hash(quote)  # a list is neither a name nor a score
    except TypeError:
        quote = Quote("", None)
    if isinstance(given, str) or not quote.name or not isinstance(quote.quote, str | None):
        raise ValueError(
            f"{where}: expected (name, score, quoted text or None), or a dict with these keys, got {given!r}."
        )
    return quote
