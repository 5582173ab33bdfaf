"""Encode groups for the page: shared tokens once, texts by number, credit as the positions where it changes."""

import json
from collections.abc import Callable, Sequence

import numpy as np

from tempo_trl.report.criteria import criteria_of, with_places
from tempo_trl.report.folded_tree import first_branch
from tempo_trl.report.group import Group, Turn, changes, credit_scale, turns_of_group
from tempo_trl.runs.token_places import stretches_of
from tempo_trl.runs.token_text import readable, visible

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"  # entropies are rounded to 64 levels
DIGITS = 4  # digits of numbers of credit


def embed_groups(groups: Sequence[Group]) -> dict:
    """
    The groups in the format that the page's script reads.

    Returns:
        `dict`: `texts`, and `entropyMax` in nats, the highest of the 64 levels; in `groups` for each `step`, `group`,
        `prompt`, `scale` (of its colours, [`~tempo_trl.report.group.credit_scale`]), its `nodes` and its `rows`. A
        node has `p` (parent), `t` (numbers of texts), `a` (tokens before it), `n` (completions), `v` (value), `d` (TD
        error of its first token, in units of the reward), `e` (completions that end with it). A row has its `leaf`,
        `reward`, `outcome`, `td` as `[token, TD error]` where it is not 0, `adv` as `[token, advantage from there
        on]`, `h` (one character per token, its level of entropy), `x` (tokens whose text differs in this row, because
        a character is split between nodes) and `skip` (`[from, to)` outside of the loss). A group with criteria has
        their names in `criteria` and `trace` (lambda), and its rows have `s`: `[criterion, reward, advantage, places]`
        of each that was judged, with places as `[from, to)`. `td` is empty if the method's credit lies on places. A
        group of agents has `turns`: a list of `[from token, to token, mean advantage, tools, observed text]` per
        completion.
    """
    numbers: dict[str, int] = {}

    def numbered(pieces: Sequence[str]) -> list[int]:
        return [numbers.setdefault(visible(piece), len(numbers)) for piece in pieces]

    most = max((float(h.max()) for g in groups if g.entropies for h in g.entropies if len(h)), default=0.0)
    embedded = [_group(group, numbered, most) for group in groups]
    return {"texts": list(numbers), "entropyMax": json_number(most), "groups": embedded}


def _group(group: Group, numbered: Callable[[Sequence[str]], list[int]], most: float) -> dict:
    drawn = [
        {
            "p": node.parent,
            "t": numbered(node.pieces),
            "a": node.begin,
            "n": len(node.rows),
            "v": json_number(node.value),
            "d": json_number(node.td),
            "e": list(node.ended),
        }
        for node in group.tree
    ]
    leaves = {row: i for i, node in enumerate(group.nodes) for row in node.ended}
    texts = [numbered(readable(tokens)) for tokens in group.tokens]
    rows = [_row(group, row, leaves[row], drawn, own, most) for row, own in enumerate(texts)]
    about = {"step": group.step, "group": group.group, "prompt": visible(group.prompt)}
    about |= {"first": first_branch(group.nodes), "scale": [json_number(size) for size in credit_scale(group)]}
    return about | {"nodes": drawn, "rows": rows} | _turns(group) | _criteria(group)


def _criteria(group: Group) -> dict:
    names = [visible(name) for name in criteria_of(group)]
    return {"criteria": names, "trace": group.trace_lambda} if names else {}


def _turns(group: Group) -> dict:
    turns = [[_turn(turn) for turn in own] for own in turns_of_group(group)]
    return {"turns": turns} if turns else {}


def _turn(turn: Turn) -> list:
    return [turn.begin, turn.end, json_number(turn.credit), visible(turn.calls), visible(turn.observed)]


def _row(group: Group, row: int, leaf: int, nodes: list[dict], own: list[int], most: float) -> dict:
    shown, at = [], leaf  # texts of the nodes on the way to the leaf
    while at >= 0:
        shown = nodes[at]["t"] + shown
        at = nodes[at]["p"]
    advantages = group.advantages[row]
    td = np.zeros_like(advantages) if group.terms.of_places else group.td_errors[row]
    embedded = {
        "leaf": leaf,
        "reward": json_number(group.rewards[row]),
        "outcome": json_number(group.outcome[row]),
        "td": [[int(t), json_number(td[t])] for t in np.flatnonzero(td)],
        "adv": [[int(t), json_number(advantages[t])] for t in changes(advantages)],
    }
    if group.entropies is not None:
        embedded["h"] = _levels(group.entropies[row], most)
    if shown != own:
        embedded["x"] = [[t, number] for t, number in enumerate(own) if number != shown[t]]
    if not group.loss_mask[row].all():
        embedded["skip"] = stretches_of(~group.loss_mask[row])
    if group.spans:
        numbers = {name: k for k, name in enumerate(criteria_of(group))}
        embedded["s"] = [
            [numbers[name], json_number(span.reward), json_number(span.advantage), places]
            for name, (span, places) in with_places(group.spans[row]).items()
        ]
    return embedded


def _levels(entropies: np.ndarray, most: float) -> str:
    levels = np.clip(entropies / (most or 1.0) * (len(LEVELS) - 1), 0, len(LEVELS) - 1).round().astype(int)
    return "".join(LEVELS[level] for level in levels)


def json_number(value: float | None) -> float | int | None:
    """The rounded value; None if it is unknown or not finite, which JSON does not support."""
    if value is None or not np.isfinite(value):
        return None
    rounded = round(float(value), DIGITS)
    return int(rounded) if rounded == int(rounded) else rounded


def embedded_size(group: Group) -> int:
    """The bytes of a group in the page without its texts, which all groups share."""
    return len(script_json(embed_groups([group])["groups"][0]).encode())


def script_json(data: dict) -> str:
    """JSON that is safe inside a script element: its texts cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
