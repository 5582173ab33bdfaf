"""Colours and type of the pictures."""

from matplotlib.colors import LinearSegmentedColormap

BAD, EVEN, GOOD = "#D55E00", "#ECEAE6", "#0072B2"  # vermilion and blue of Okabe and Ito
DIVERGING = LinearSegmentedColormap.from_list("credit", [BAD, EVEN, GOOD])
MONO = {"family": "monospace", "parse_math": False}  # a token may contain a dollar sign
EDGE = "#B8B4AC"


def value_colour(value: float, low: float, high: float) -> tuple[float, ...]:
    """The light colour of a box by its value, in the range of rewards from `low` to `high`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return tuple(0.6 * c + 0.4 for c in DIVERGING(share)[:3])
