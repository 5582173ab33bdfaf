"""A callback that logs the picture of a tree and a table of branch tokens to wandb, trackio and TensorBoard."""

import importlib
import io
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import TrainerCallback

from tempo_trl.report.credit_summary import TOP, CreditSummary
from tempo_trl.report.credit_terms import CreditTerms
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.runs.token_text import label_of
from tempo_trl.runs.trees import trees_path

TRACKERS = ("wandb", "trackio", "tensorboard")
PICTURE, TABLE = "tempo/tree", "tempo/branch_token_table"


class TreeCallback(TrainerCallback):
    """
    Logs each record of trees to the trackers of `report_to`: `tempo/tree`, a picture of the most informative group,
    and `tempo/branch_token_table`, the tokens with the largest sums of |TD|.

    wandb and trackio get an image and a table in their current run, TensorBoard an image and a text beside the run's
    own events, under `runs/trees` in the output folder (or in `TENSORBOARD_LOGGING_DIR`). A trainer that records trees
    adds this callback itself if `report_to` contains one of the three.
    """

    def __init__(self):
        self._last = -1  # step of the last record that was logged
        self._writer = None  # TensorBoard's

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

    def on_train_end(self, args, state, control, **kwargs):
        """Close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _log(self, args, step: int, picture: np.ndarray, heads: list[str], rows: list[list]) -> None:
        for name in args.report_to:
            if name in ("wandb", "trackio"):
                tracker = importlib.import_module(name)
                entry = {PICTURE: tracker.Image(picture), TABLE: tracker.Table(columns=heads, data=rows)}
                tracker.log(entry | {"train/global_step": step})
            elif name == "tensorboard":
                self._tensorboard(args).add_image(PICTURE, picture, step, dataformats="HWC")
                self._tensorboard(args).add_text(TABLE, _markdown(heads, rows), step)
                self._tensorboard(args).flush()

    def _tensorboard(self, args):
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or Path(args.output_dir) / "runs"
            self._writer = SummaryWriter(log_dir=str(Path(folder).expanduser() / "trees"))
        return self._writer


def _picture(groups: list[Group]) -> np.ndarray:
    """Picture of the most informative group, `(height, width, 3)`, uint8."""
    from PIL import Image

    from tempo_trl.report.collect import opening_group
    from tempo_trl.report.pictures import draw_tree, save

    image = io.BytesIO()
    save(draw_tree(groups[opening_group(groups)]), image, "png")
    return np.asarray(Image.open(image).convert("RGB"))


def columns(terms: CreditTerms) -> list[str]:
    """Headings of the table of branch tokens, in the terms of the method."""
    return ["token", f"sum |{terms.added}|", terms.more, terms.less, "seen", "largest turn", "in context"]


def branch_token_table(groups: list[Group]) -> list[list]:
    """Rows of [`columns`]: the tokens with the largest sums of |TD|, in units of the advantages."""
    summary = CreditSummary()
    summary.add(groups)
    return [_row(label_of(token.Index), token, summary) for token in summary.top_td()[:TOP].itertuples()]


def _row(label: str, token: NamedTuple, summary: CreditSummary) -> list:
    td, before, after = summary.examples(token.Index)[0]
    context = f"{before}[{label}]{after}"
    return [label, round(token.mass, 3), token.ups, token.downs, token.seen, round(td, 3), context]


def _markdown(heads: list[str], rows: list[list]) -> str:
    """The table in Markdown for TensorBoard, with all markup in tokens escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("|" + "|".join(_plain(cell) for cell in line) + "|" for line in lines)


def _plain(cell) -> str:
    text = str(cell).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"&#{ord(character)};" if character in "|`*_[]$\\" else character for character in text)
