"""A word cloud of tokens: the `wordcloud` package computes positions, the page and matplotlib draw them."""

import pandas as pd

from tempo_trl.runs.token_text import label_of

WIDTH, HEIGHT, WORDS = 720, 330, 80
MISSING = "The word cloud needs the wordcloud package: pip install 'tempo_trl[report]'."


def cloud(tokens: pd.DataFrame) -> dict | None:
    """
    Positions of the tokens of [`CreditSummary.top_td`] in a cloud, with sizes by their sums of |TD|.

    Returns:
        `dict` of `box` (x, y, width, height) and `words`, each with `text`, `mass`, `sign` (-1 to 1: net TD over its
        sum), `x` and `y` of its baseline's beginning, `size` and `width`; None where the package is missing or there
        is nothing to place.
    """
    try:
        from wordcloud import WordCloud
    except ImportError:
        return None
    sums = tokens[:WORDS].groupby(label_of, sort=False)[["mass", "net"]].sum()
    if sums.empty:
        return None
    placed = WordCloud(
        width=WIDTH, height=HEIGHT, prefer_horizontal=1.0, min_font_size=9, max_font_size=130, random_state=0
    ).generate_from_frequencies(sums["mass"].to_dict())
    words = [_word(placed.font_path, *place[:3], *sums.loc[place[0][0]]) for place in placed.layout_]
    left, top = min(word["x"] for word in words), min(word["y"] - word["size"] for word in words)
    right, bottom = max(word["x"] + word["width"] for word in words), max(word["y"] for word in words)
    return {"box": [left - 4, top, right - left + 8, bottom - top + HEIGHT // 12], "words": words}


def _word(font_path: str, word: tuple, size: int, position: tuple, mass: float, net: float) -> dict:
    """Where the baseline of a word begins, from the corner that wordcloud gives, as its own SVG has it."""
    from PIL import ImageFont

    label = word[0]
    font = ImageFont.truetype(font_path, size)
    _, (offset_x, offset_y) = font.font.getsize(label)
    place = {"x": int(position[1] - offset_x), "y": int(position[0] + font.getmetrics()[0] - offset_y)}
    own = {"text": label, "mass": mass, "sign": net / mass}
    return own | place | {"size": int(size), "width": round(font.getlength(label), 1)}
