"""Make and compare records of every method.

    python -m tests.reference OUT [CASE ...]     train on 1 and on 2 ranks, all tensors to OUT/{1,2}/rank{r}.pt
    python -m tests.reference --compare A B      say which entries of two such folders differ, bit for bit
    python -m tests.reference --write OUT        make the committed reference and checkpoints from OUT

The committed reference comes from the commit in its header: check that out, copy this folder into its tests, and run
the first and the last of these there.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from .. import conftest  # noqa: F401  the environment of the tests, before torch
from ..tiny import save_tiny_model
from ..trainers.launching import run_ranks, torchrun
from . import checkpoints, exact
from .summary import HERE, path_of, summary_of_ranks, versions, write

COMMAND = "python -m tests.reference OUT && python -m tests.reference --write OUT"


def make(out: Path, cases: list[str]) -> None:
    out.mkdir(parents=True)  # a folder of an earlier run would mix its files with these
    save_tiny_model(out / "model")
    for ranks in (1, 2):
        (out / str(ranks)).mkdir()
        run_ranks(torchrun(ranks), ranks, "tests.reference.rank", str(out / "model"), out / str(ranks), *cases)
    checkpoints.make(out / "checkpoints")


def write_reference(out: Path) -> None:
    import torch

    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=HERE, text=True).strip()
    header = {"made with": {"commit": commit, **versions(), "command": COMMAND}}
    for ranks in (1, 2):
        seen = [torch.load(out / f"{ranks}/rank{rank}.pt", weights_only=False) for rank in range(ranks)]
        cases = {case: summary_of_ranks([record[case] for record in seen]) for case in seen[0]}
        write(path_of(ranks), header | cases)
    checkpoints.write_reference(out / "checkpoints", header)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    parser.add_argument("--write", type=Path, metavar="OUT")
    given = parser.parse_args()
    if given.compare:
        return int(exact.compare(*given.compare) > 0)
    if given.write:
        write_reference(given.write)
    elif given.out:
        make(given.out, given.cases)
    else:
        parser.error("name a folder to write to, or --compare or --write")
    return 0


if __name__ == "__main__":
    sys.exit(main())
