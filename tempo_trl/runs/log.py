"""The curves of a run, drawn from the log that Trainer keeps."""

import io
import json
import reprlib
from pathlib import Path

PANELS = {
    "reward": "mean reward",
    "eval_reward": "mean reward, evaluation",
    "tempo/td_share": "share of TD credit",
    "completions/mean_length": "mean length, tokens",
}
BLUE = "#0072B2"  # of Okabe and Ito, as the demonstration's


def training_log(run_dir: Path) -> list[dict]:
    """What Trainer logged: of the whole run, or up to the last checkpoint of one that has not ended; else [].

    Raises:
        ValueError: a log that is not JSON, or not of Trainer's form.
    """
    steps = [path for path in run_dir.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    folders = [run_dir, *sorted(steps, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True)]
    for path in (folder / "trainer_state.json" for folder in folders):
        if path.is_file():
            return _log_history(path)
    return []


def _log_history(path: Path) -> list[dict]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not what Trainer writes ({error!r}): restore it, or remove it.") from error
    log = state.get("log_history") if isinstance(state, dict) else None
    if not (isinstance(log, list) and all(isinstance(entry, dict) for entry in log)):
        got = f"log_history {reprlib.repr(log)}" if isinstance(state, dict) else reprlib.repr(state)
        raise ValueError(
            f"{path} is not what Trainer writes: expected a mapping with log_history, a list of mappings, got {got}. "
            "Restore it, or remove it."
        )
    return log


def curves(log: list[dict]) -> bytes | None:
    """PNG of what `PANELS` names against steps; what was not logged is left out, and None is returned without any."""
    from matplotlib.figure import Figure

    series = {key: [(entry["step"], entry[key]) for entry in log if key in entry] for key in PANELS}
    series = {key: points for key, points in series.items() if points}
    if not series:
        return None
    figure = Figure(figsize=(3.2 * len(series), 2.6), layout="constrained")
    for axes, (key, points) in zip(figure.subplots(1, len(series), squeeze=False)[0], series.items(), strict=True):
        axes.plot(*zip(*points, strict=True), color=BLUE, linewidth=1.5, marker="." if len(points) < 20 else "")
        axes.set(title=PANELS[key], xlabel="step")
        axes.title.set_fontsize("medium")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, dpi=120, format="png", metadata={"Software": None})  # the same bytes every time
    return image.getvalue()
