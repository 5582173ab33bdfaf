"""`push_to_hub` in a run: adds our card and record to every commit of Trainer, and completes failed pushes."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from transformers import TrainerCallback

from tempo_trl.hub.access import prepare_repo
from tempo_trl.hub.card import model_card
from tempo_trl.hub.contents import current_results, generated
from tempo_trl.hub.publish import publish
from tempo_trl.hub.retry import is_temporary
from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import read_record


class OurCard(TrainerCallback):
    """Writes card, curves and log to the output folder before Trainer pushes it."""

    def __init__(self, repo: str):
        self.repo = repo

    def on_push_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        with _printed_failures():
            state.save_to_json(str(folder / "trainer_state.json"))
            for path, content in generated(folder, self.repo, current_results(folder, self.repo)).items():
                if isinstance(content, bytes):
                    write_atomically(folder / path, content)


def write_card(run_dir: Path, repo: str) -> None:
    """Write the card of a run to its folder, without pictures. TRL's own would not name a model from a folder."""
    with _printed_failures():
        card = model_card(run_dir, repo, read_record(run_dir), current_results(run_dir, repo), [])
        write_atomically(run_dir / "README.md", card)


@contextlib.contextmanager
def _printed_failures() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # must not end the run
        print(f"Could not write the model card: {error}", file=sys.stderr)


@contextlib.contextmanager
def clear_refusals(training_args) -> Iterator[None]:
    """Raise a clear error if the Hub rejects the repository that Trainer creates in its constructor."""
    try:
        yield
    except HfHubHTTPError:
        if training_args.push_to_hub and "/" in (training_args.hub_model_id or ""):
            prepare_repo(HfApi(), training_args.hub_model_id, training_args.hub_private_repo)
        raise


def begin_pushing(trainer) -> None:
    """Check before training that the repository is writable, and add the callback for cards. Main process only."""
    prepare_repo(HfApi(), trainer.hub_model_id, trainer.args.hub_private_repo)
    trainer.add_callback(OurCard(trainer.hub_model_id))


def push(trainer, dataset_name: str | None) -> None:
    """
    TRL's push on every process, then our own on the main process, which uploads what is missing.

    Trainer gives up after the first dropped connection, silently if it pushes a checkpoint.

    Raises:
        ValueError, RuntimeError, huggingface_hub.errors.HfHubHTTPError: as [`~tempo_trl.hub.publish.publish`].
    """
    try:
        trainer.push_to_hub(dataset_name=dataset_name)
    except Exception as error:
        if not is_temporary(error):
            raise
        print(f"{type(error).__name__} during the push. Uploading the missing files.", file=sys.stderr)
    if trainer.hub_model_id is not None:  # set on the main process only
        args = trainer.args
        publish(args.output_dir, trainer.hub_model_id, args.hub_private_repo, args.hub_revision)
