"""The trees that a run leaves behind: `OUTPUT_DIR/tempo/trees_{step}.parquet`, and `eval_trees_{step}.parquet`.

One row a completion. The rows of a group are adjacent and share `group`; `step` counts the optimizer steps behind the
weights that sampled them.

| column | type | what it is |
|---|---|---|
| `step`, `group`, `row` | int | optimizer steps before sampling; group and row of the batch (0, 1, ...) |
| `prompt` | string | the prompt; messages as `role: content`, a line each |
| `completion_ids` | list of int, T | sampled token ids, the EOS id included, never padded |
| `tokens` | list of string, T | text of each token; bytes that are no character as `<0xF0>` ([`report.token_text`]) |
| `values` | list of float, T + 1 | V after 0 to T tokens, in units of `reward` |
| `td_errors` | list of float, T | what the method adds to the outcome; for TEMPO TD errors without `td_coef` |
| `outcome` | float | GRPO's advantage |
| `advantages` | list of float, T | what trains |
| `entropies` | list of float, T, or null | of the policy at each token, in nats; null where TRL computed none |
| `loss_mask` | list of bool, T | whether the token's loss counts |
| `reward` | float | weighted sum of the rewards; NaN where no function scored the completion |
| `rewards` | string | JSON: what each reward function returned, by name, null for None |

The file's metadata holds `tempo_trl` (version), `schema` (1), `num_generations`, `td_coef`, `method` (its line in the
table of methods; files of earlier versions, which lack it, are TEMPO's) and `credit` (the label of its credit).
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tempo_trl.runs.files import write_atomically
from tempo_trl.runs.record import FOLDER
from tempo_trl.version import __version__

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
        ("reward", pa.float32()),
        ("rewards", pa.string()),
    ]
)
_PREFIX = {"train": "trees", "eval": "eval_trees"}


def trees_path(output_dir: str | Path, mode: str, step: int) -> Path:
    """File of the trees that were recorded in `mode`, `"train"` or `"eval"`, at a step."""
    return Path(output_dir) / FOLDER / f"{_PREFIX[mode]}_{step}.parquet"


def write_trees(path: Path, rows: Sequence[dict], metadata: dict[str, str]) -> None:
    """
    Write rows of the schema above, so that a reader sees the old file or the new one and never half of it.

    Raises:
        OSError: the disk refuses; nothing is left behind then.
    """
    metadata = {"tempo_trl": __version__, "schema": "1"} | metadata
    table = pa.Table.from_pylist(list(rows), SCHEMA.with_metadata(metadata))
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    write_atomically(path, content.getvalue())


def recorded_steps(run_dir: str | Path, mode: str = "train") -> list[int]:
    """Steps of which the run left trees, in order."""
    pattern = re.compile(rf"{_PREFIX[mode]}_(\d+)\.parquet")
    matches = (pattern.fullmatch(path.name) for path in Path(run_dir, FOLDER).glob(f"{_PREFIX[mode]}_*.parquet"))
    return sorted(int(match[1]) for match in matches if match)


def read_trees(
    run_dir: str | Path, steps: Sequence[int] | None = None, mode: str = "train", columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """
    The recorded completions of a run, one a row, in the order of steps, groups and rows; also while it trains.

    `datasets.Dataset.from_pandas(read_trees(...))` makes a dataset of them.

    Args:
        run_dir (`str` or `Path`):
            The run's output folder.
        steps (`Sequence[int]`, *optional*):
            Steps to read; all that were recorded if unset.
        mode (`str`, *optional*, defaults to `"train"`):
            `"train"` or `"eval"`.
        columns (`Sequence[str]`, *optional*):
            Columns to read, of those in [`tempo_trl.runs.trees`]; all if unset.

    Returns:
        `pandas.DataFrame`; a list of a row is a `numpy.ndarray`. Without any row if the run recorded no tree.

    Raises:
        ValueError: no folder, an unknown mode, or a step that was not recorded.
    """
    if mode not in _PREFIX:
        raise ValueError(f"`mode` must be one of {tuple(_PREFIX)}, got {mode!r}.")
    if not Path(run_dir).is_dir():
        raise ValueError(f"{run_dir} is no folder: expected the output folder of a run.")
    recorded = recorded_steps(run_dir, mode)
    missing = sorted(set(steps or ()) - set(recorded))
    if missing:
        raise ValueError(f"no trees of step {missing[0]} in {run_dir} ({mode}): {_those(recorded)}.")
    paths = [trees_path(run_dir, mode, step) for step in recorded if steps is None or step in steps]
    names = list(columns) if columns is not None else SCHEMA.names
    tables = [pq.read_table(path, columns=names, partitioning=None) for path in paths]
    empty = pa.table({name: pa.array([], SCHEMA.field(name).type) for name in names})
    return pa.concat_tables([empty, *(table.replace_schema_metadata() for table in tables)]).to_pandas()


def _those(recorded: list[int]) -> str:
    if not recorded:
        return "it recorded none (is `log_trees_steps` 0, or the method TRL's own?)"
    listed = [str(step) for step in recorded]
    return "recorded are " + (", ".join(listed) if len(listed) < 12 else f"{', '.join(listed[:10])}, ... {listed[-1]}")
