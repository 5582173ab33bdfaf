"""The walk of a reader through one training step of TEMPO with nothing switched on: few files, few jumps."""

import gc
import itertools
import sys
from pathlib import Path

import tempo_trl

from .recording import config, questions, share_of_threes

PACKAGE = str(Path(tempo_trl.__file__).parent)
MOST_FILES, MOST_CHANGES = 12, 35


def walk_of(step) -> list[tuple[str, str]]:
    """File and function of each call in the package while `step` runs, in order."""
    walk = []

    def enter(frame, event, argument):
        file = frame.f_code.co_filename
        # An earlier test may have registered the tree's attention, through which all models of the process then go.
        if event == "call" and file.startswith(PACKAGE) and not file.endswith("tree_attention.py"):
            walk.append((file[len(PACKAGE) + 1 :], frame.f_code.co_qualname))

    gc.collect()  # else the remains of earlier tests may be finalized on the way
    gc.disable()
    sys.setprofile(enter)
    try:
        step()
    finally:
        sys.setprofile(None)
        gc.enable()
    return walk


def test_a_step_is_a_walk_through_few_files(tiny_model, tmp_path):
    args = config(tmp_path, max_steps=2, log_trees_steps=0)
    trainer = tempo_trl.TEMPOTrainer(tiny_model, share_of_threes, args, questions())
    walks, step = [], trainer.training_step

    def training_step(*arguments, **keywords):
        losses = []
        walks.append(walk_of(lambda: losses.append(step(*arguments, **keywords))))
        return losses[0]

    trainer.training_step = training_step
    trainer.train()
    walk = walks[1]
    files = dict.fromkeys(file for file, _ in walk)
    changes = sum(one != other for (one, _), (other, _) in itertools.pairwise(walk))
    print("\n".join(f"{file:36} {function}" for file, function in walk))
    print(f"{len(files)} files, {changes} changes of the file")
    assert len(files) <= MOST_FILES, list(files)
    assert changes <= MOST_CHANGES
