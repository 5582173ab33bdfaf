"""Train every method on a tiny model, and compare the records of two commits bit for bit.

    python -m tests.reference OUT [CASE ...]     train on 1 and on 2 ranks, all tensors to OUT/{1,2}/rank{r}.pt
    python -m tests.reference --compare A B      say which entries of two such folders differ

For the record of another commit, check it out, copy this folder into its tests, and run the first command there.
"""

import argparse
import sys
from pathlib import Path

from .. import conftest  # noqa: F401  the environment of the tests, before torch
from ..tiny import save_tiny_model
from ..trainers.launching import run_ranks, torchrun
from .exact import compare


def make(out: Path, cases: list[str]) -> None:
    out.mkdir(parents=True)  # a folder of an earlier run would mix its files with these
    save_tiny_model(out / "model")
    for ranks in (1, 2):
        (out / str(ranks)).mkdir()
        run_ranks(torchrun(ranks), ranks, "tests.reference.rank", str(out / "model"), out / str(ranks), *cases)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    given = parser.parse_args()
    if given.compare:
        return int(compare(*given.compare) > 0)
    if not given.out:
        parser.error("name a folder to write to, or --compare")
    make(given.out, given.cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
