"""`python -m tempo_trl.train --config RECIPE`: one training run, as `accelerate launch` starts it on every rank."""

import sys

from tempo_trl.launch.train import main

if __name__ == "__main__":
    sys.exit(main())
