"""Learning curves of agents with the real trainers, one command per figure.

    python -m benchmarks.agents rooms

trains the missing runs of the study, two at a time, prints its tables, and writes agents_rooms.png and
agents_rooms.json. Repeat the command to resume. docs/evidence/toy_tasks.md describes the worlds.
"""

import sys

from benchmarks.learning.__main__ import main

if __name__ == "__main__":
    sys.exit(main(program="agents", description=__doc__))
