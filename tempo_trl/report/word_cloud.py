"""Tokens as a cloud of words: the `wordcloud` package places them, the page and matplotlib draw them."""

from tempo_trl.report.credit_summary import TokenRecord
from tempo_trl.report.token_text import label_of

WIDTH, HEIGHT, WORDS = 720, 330, 80
MISSING = "The word cloud needs the wordcloud package: pip install 'tempo_trl[report]'."


def cloud(tokens: list[tuple[str, TokenRecord]]) -> dict | None:
    """
    Places of the tokens in a cloud, each as large as its sum of |TD|.

    Returns:
        `dict` of `box` (x, y, width, height) and `words`, each with `text`, `mass`, `sign` (-1 to 1: net TD over its
        sum), `x` and `y` of its baseline's beginning, `size` and `width`; None where the package is missing or there
        is nothing to place.
    """
    try:
        from wordcloud import WordCloud
    except ImportError:
        return None
    by_label: dict[str, list[TokenRecord]] = {}
    for text, record in tokens[:WORDS]:
        by_label.setdefault(label_of(text), []).append(record)
    if not by_label:
        return None
    mass = {label: sum(record.mass for record in records) for label, records in by_label.items()}
    net = {label: sum(record.net for record in records) for label, records in by_label.items()}
    placed = WordCloud(
        width=WIDTH, height=HEIGHT, prefer_horizontal=1.0, min_font_size=9, max_font_size=130, random_state=0
    ).generate_from_frequencies(mass)
    words = [_word(placed.font_path, *place[:3], mass, net) for place in placed.layout_]
    left, top = min(word["x"] for word in words), min(word["y"] - word["size"] for word in words)
    right, bottom = max(word["x"] + word["width"] for word in words), max(word["y"] for word in words)
    return {"box": [left - 4, top, right - left + 8, bottom - top + HEIGHT // 12], "words": words}


def _word(font_path: str, word: tuple, size: int, position: tuple, mass: dict, net: dict) -> dict:
    """Where the baseline of a word begins, from the corner that wordcloud gives, as its own SVG has it."""
    from PIL import ImageFont

    label = word[0]
    font = ImageFont.truetype(font_path, size)
    _, (offset_x, offset_y) = font.font.getsize(label)
    place = {"x": int(position[1] - offset_x), "y": int(position[0] + font.getmetrics()[0] - offset_y)}
    own = {"text": label, "mass": mass[label], "sign": net[label] / mass[label]}
    return own | place | {"size": int(size), "width": round(font.getlength(label), 1)}
