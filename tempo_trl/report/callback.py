"""A callback that logs the picture of a tree to wandb and trackio."""

import importlib
import io

import numpy as np
from transformers import TrainerCallback

from tempo_trl.report.collect import opening_group
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.runs.trees import recorded_steps

TRACKERS = ("wandb", "trackio")
PICTURE = "tempo/tree"


class TreeCallback(TrainerCallback):
    """
    Logs a picture of the most informative group of the last record of trees, `tempo/tree`, whenever Trainer logs.

    wandb and trackio get it in their current run. A trainer that records trees adds this callback itself if
    `report_to` contains one of the two.
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
        # A record of this step, or of a later one, would be of an earlier `train()`.
        new = [step for step in recorded_steps(args.output_dir) if self._last < step < state.global_step]
        if not new:
            return
        self._last = new[-1]
        if groups := recorded_groups(args.output_dir, self._last):
            picture = _picture(groups)
            for tracker in map(importlib.import_module, set(TRACKERS) & set(args.report_to)):
                tracker.log({PICTURE: tracker.Image(picture), "train/global_step": self._last})


def _picture(groups: list[Group]) -> np.ndarray:
    """Picture of the most informative group, `(height, width, 3)`, uint8."""
    from PIL import Image

    from tempo_trl.report.pictures import draw_tree, picture

    png = picture(draw_tree(groups[opening_group(groups)]), "png")
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
