"""`python -m tempo_trl`: the command line of `tempo-trl`."""

import sys

from tempo_trl.launch.cli import main

if __name__ == "__main__":
    sys.exit(main())
