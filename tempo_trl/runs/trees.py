"""The recorded trees of a run: `OUTPUT_DIR/tempo/trees_{step}.parquet`, and `eval_trees_{step}.parquet`.

Of several evaluation datasets each has its own files, `eval_NAME_trees_{step}.parquet`.

Each row is a completion. The rows of a group are adjacent and have the same `group`; `step` is the number of optimizer
steps before they were sampled.

| column | type | meaning |
|---|---|---|
| `step`, `group`, `row` | int | optimizer steps before sampling; group and row of the batch (0, 1, ...) |
| `prompt` | string | the prompt; messages as `role: content`, one per line |
| `completion_ids` | list of int, T | sampled token ids, with the EOS id, without padding |
| `tokens` | list of string, T | text of each token; incomplete characters as bytes, `<0xF0>` ([`runs.token_text`]) |
| `values` | list of float, T + 1 | V after 0 to T tokens, in units of `reward` |
| `td_errors` | list of float, T | what the method adds to the outcome; for TEMPO the TD errors of V |
| `outcome` | float | GRPO's advantage; 0 if no function scored the completion |
| `advantages` | list of float, T | the advantages used for training |
| `entropies` | list of float, T, or null | of the policy at each token, in nats; null if TRL did not compute them |
| `loss_mask` | list of bool, T | whether the token is in the loss |
| `turns` | list of int, T | turn of each token, starting at 0; -1 for tokens of tools and environments |
| `states` | list of int, N | a number per turn, equal where completions of the group had just seen the same |
| `calls` | list of string, N | names of the tools that the turn calls, separated by commas |
| `observed` | list of string, N | text of the messages just before the turn |
| `reward` | float | weighted sum of the rewards; NaN if no function scored the completion |
| `rewards` | string | JSON: the value of each reward function, by name, null for None |
| `spans` | list of struct, or null | judged criteria of the completion; null without `span_reward_funcs` |

A struct of `spans` has `name` (string), `reward` and `advantage` (float; the advantage is weighted, and null if the
credit function gave none), `start` and `end` (int; tokens of the place, the last one excluded, null for both without a
place). A criterion with several places has several entries with one name.

The file's metadata contain `tempo_trl` (version), `schema` (1), `num_generations`, `td_coef`, `trace_lambda` (0 for
methods that have none), `method` (its key in the table of methods), `credit` (the label of its credit) and `grown`
(whether the completions are leaves of grown trees).
"""

import io
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import FOLDER
from tempo_trl.version import __version__

SPAN = pa.struct(
    {"name": pa.string(), "reward": pa.float32(), "advantage": pa.float32(), "start": pa.int32(), "end": pa.int32()}
)
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("group", pa.int32()),
        ("row", pa.int32()),
        ("prompt", pa.string()),
        ("completion_ids", pa.list_(pa.int64())),
        ("tokens", pa.list_(pa.string())),
        ("values", pa.list_(pa.float32())),
        ("td_errors", pa.list_(pa.float32())),
        ("outcome", pa.float32()),
        ("advantages", pa.list_(pa.float32())),
        ("entropies", pa.list_(pa.float32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("turns", pa.list_(pa.int32())),
        ("states", pa.list_(pa.int64())),
        ("calls", pa.list_(pa.string())),
        ("observed", pa.list_(pa.string())),
        ("reward", pa.float32()),
        ("rewards", pa.string()),
        ("spans", pa.list_(SPAN)),
    ]
)
FILE = re.compile(r"(?:(?P<mode>.+)_)?trees_(?P<step>\d+)\.parquet")


def trees_path(output_dir: str | Path, mode: str, step: int) -> Path:
    """File of the trees recorded at a step, in `mode` `"train"`, or `"eval"` as evaluation names its metrics."""
    prefix = "" if mode == "train" else f"{quote(mode, safe=' ')}_"  # a dataset may be named openai/gsm8k
    return Path(output_dir) / FOLDER / f"{prefix}trees_{step}.parquet"


def write_trees(path: Path, rows: Sequence[dict], metadata: dict[str, str]) -> None:
    """
    Write rows of the schema above, atomically: a reader sees the old file or the new one.

    Raises:
        OSError: the file could not be written; no partial file is left behind.
    """
    metadata = {"tempo_trl": __version__, "schema": "1"} | metadata
    table = pa.Table.from_pylist(list(rows), SCHEMA.with_metadata(metadata))
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    write_atomically(path, content.getvalue())


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file of recorded trees."""
    return {key.decode(): value.decode() for key, value in (pq.read_schema(path).metadata or {}).items()}


def recorded_modes(run_dir: str | Path) -> dict[str, list[int]]:
    """Steps at which the run recorded trees, in order, by mode: training first, then its evaluations."""
    modes: dict[str, list[int]] = {}
    for match in filter(None, (FILE.fullmatch(path.name) for path in Path(run_dir, FOLDER).glob("*.parquet"))):
        modes.setdefault(unquote(match["mode"] or "train"), []).append(int(match["step"]))
    return {mode: sorted(modes[mode]) for mode in sorted(modes, key=lambda mode: (mode != "train", mode))}


def recorded_steps(run_dir: str | Path, mode: str = "train") -> list[int]:
    """Steps at which the run recorded trees, in order."""
    return recorded_modes(run_dir).get(mode, [])


def read_trees(run_dir: str | Path, steps: Sequence[int] | None = None, mode: str = "train") -> pd.DataFrame:
    """
    The recorded completions of a run, one per row, ordered by step, group and row. Also works during training.

    `datasets.Dataset.from_pandas(read_trees(...))` converts them to a dataset.

    Args:
        run_dir (`str` or `Path`):
            The run's output folder.
        steps (`Sequence[int]`, *optional*):
            Steps to read. Defaults to all recorded steps.
        mode (`str`, *optional*, defaults to `"train"`):
            `"train"`, `"eval"`, or `"eval_NAME"` for one of several evaluation datasets.

    Returns:
        `pandas.DataFrame`, in which lists are `numpy.ndarray`. Empty if the run recorded no trees.

    Raises:
        ValueError: `run_dir` is not a folder, the mode is unknown, a step was not recorded, or files are broken.
    """
    if not Path(run_dir).is_dir():
        raise ValueError(f"{run_dir} is not a folder. Give the output folder of a run.")
    modes = {"train": [], "eval": []} | recorded_modes(run_dir)
    if mode not in modes:
        raise ValueError(f"`mode` must be one of {', '.join(map(repr, modes))}, got {mode!r}.")
    recorded = modes[mode]
    missing = sorted(set(steps or ()) - set(recorded))
    if missing:
        nothing = "none: `log_trees_steps` was 0, the trainer was TRL's own, or each prompt had one completion"
        known = reprlib.repr(recorded)[1:-1] or nothing
        raise ValueError(f"{run_dir} has no trees of step {missing[0]} ({mode}). It has those of {known}.")
    paths = [str(trees_path(run_dir, mode, step)) for step in recorded if steps is None or step in steps]
    return dataset(paths, schema=SCHEMA, format="parquet").to_table().to_pandas()
