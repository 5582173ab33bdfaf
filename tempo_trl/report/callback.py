"""A callback that logs the picture of a tree and a table of branch tokens to wandb and trackio."""

import importlib
import io

import numpy as np
from transformers import TrainerCallback

from tempo_trl.report.collect import opening_group
from tempo_trl.report.credit_summary import TOP, CreditSummary
from tempo_trl.report.credit_terms import CreditTerms
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.runs.token_text import label_of
from tempo_trl.runs.trees import trees_path

TRACKERS = ("wandb", "trackio")
PICTURE, TABLE = "tempo/tree", "tempo/branch_token_table"


class TreeCallback(TrainerCallback):
    """
    Logs each record of trees to the trackers of `report_to`: `tempo/tree`, a picture of the most informative group,
    and `tempo/branch_token_table`, the tokens with the largest sums of |TD|.

    wandb and trackio get an image and a table in their current run. A trainer that records trees adds this callback
    itself if `report_to` contains one of the two.
    """

    def __init__(self):
        self._last = -1  # step of the last record that was logged

    def on_train_begin(self, args, state, control, **kwargs):
        """Forget the steps of an earlier `train()`, whose records may be written again."""
        self._last = state.global_step - 1

    def on_log(self, args, state, control, **kwargs):
        """Log the record that was written since the last call, if any."""
        if not state.is_world_process_zero:
            return
        before = range(state.global_step - 1, self._last, -1)  # a record of this step would be of an earlier `train()`
        step = next((s for s in before if trees_path(args.output_dir, "train", s).is_file()), None)
        if step is None:
            return
        self._last = step
        groups = recorded_groups(args.output_dir, step)
        if groups:
            self._log(args, step, _picture(groups), columns(groups[0].terms), branch_token_table(groups))

    def _log(self, args, step: int, picture: np.ndarray, heads: list[str], rows: list[list]) -> None:
        for tracker in map(importlib.import_module, set(TRACKERS) & set(args.report_to)):
            entry = {PICTURE: tracker.Image(picture), TABLE: tracker.Table(columns=heads, data=rows)}
            tracker.log(entry | {"train/global_step": step})


def _picture(groups: list[Group]) -> np.ndarray:
    """Picture of the most informative group, `(height, width, 3)`, uint8."""
    from PIL import Image

    from tempo_trl.report.pictures import draw_tree, save

    image = io.BytesIO()
    save(draw_tree(groups[opening_group(groups)]), image, "png")
    return np.asarray(Image.open(image).convert("RGB"))


def columns(terms: CreditTerms) -> list[str]:
    """Headings of the table of branch tokens, in the terms of the method."""
    return ["token", f"sum |{terms.added}|", terms.more, terms.less, "seen", "largest turn", "in context"]


def branch_token_table(groups: list[Group]) -> list[list]:
    """Rows of [`columns`]: the tokens with the largest sums of |TD|, in units of the advantages."""
    summary, rows = CreditSummary(), []
    summary.add(groups)
    for token in summary.top_td()[:TOP].itertuples():
        td, before, after = summary.examples(token.Index)[0]
        label = label_of(token.Index)
        numbers = [round(token.mass, 3), token.ups, token.downs, token.seen, round(td, 3)]
        rows.append([label, *numbers, f"{before}[{label}]{after}"])
    return rows
