"""`push_to_hub` in a run: TRL's own pushes, with our card, curves and log."""

import sys
from pathlib import Path

from huggingface_hub.errors import HTTPError
from transformers import TrainerCallback

from tempo_trl.hub.card import write_card
from tempo_trl.hub.publish import prepare_repo, publish


class OurCard(TrainerCallback):
    """Writes card, curves and log to the output folder before Trainer pushes it."""

    def __init__(self, repo: str):
        self.repo = repo

    def on_push_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            state.save_to_json(str(Path(args.output_dir) / "trainer_state.json"))
            try_to_write_card(Path(args.output_dir), self.repo)


def begin_pushing(trainer) -> None:
    """Check before training that the repository is writable, and add the callback for cards. Main process only."""
    prepare_repo(trainer.hub_model_id, trainer.args.hub_private_repo)
    trainer.add_callback(OurCard(trainer.hub_model_id))


def push(trainer) -> None:
    """TRL's push at the end, on every process, and then what it left out, with our card instead of TRL's."""
    try:
        trainer.push_to_hub()
    except (HTTPError, ConnectionError, TimeoutError) as error:
        print(f"{type(error).__name__} during the push. Uploading the missing files.", file=sys.stderr)
    if trainer.hub_model_id is not None:  # set on the main process only
        args = trainer.args
        publish(args.output_dir, trainer.hub_model_id, args.hub_private_repo, args.hub_revision)


def try_to_write_card(run_dir: Path, repo: str) -> None:
    """Write the card of a run to its folder; print what fails, which must not end the run."""
    try:
        write_card(run_dir, repo, [])
    except (ValueError, OSError) as error:
        print(f"Could not write the model card: {error}", file=sys.stderr)
