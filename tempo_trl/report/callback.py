"""A callback that logs the picture of a tree to wandb and trackio."""

import importlib
import io

import numpy as np
from transformers import TrainerCallback

from tempo_trl.report.collect import opening_group
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.runs.trees import trees_path

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
        before = range(state.global_step - 1, self._last, -1)  # a record of this step would be of an earlier `train()`
        step = next((s for s in before if trees_path(args.output_dir, "train", s).is_file()), None)
        if step is None:
            return
        self._last = step
        groups = recorded_groups(args.output_dir, step)
        if not groups:
            return
        picture = _picture(groups)
        for tracker in map(importlib.import_module, set(TRACKERS) & set(args.report_to)):
            tracker.log({PICTURE: tracker.Image(picture), "train/global_step": step})


def _picture(groups: list[Group]) -> np.ndarray:
    """Picture of the most informative group, `(height, width, 3)`, uint8."""
    from PIL import Image

    from tempo_trl.report.pictures import draw_tree, picture

    png = picture(draw_tree(groups[opening_group(groups)]), "png")
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
