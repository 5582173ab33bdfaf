"""`python -m tempo_trl.train` with the demo's sampler: `python -m benchmarks.language_model.training --config ...`.

Sampling takes half of a step on two cores with transformers' `generate`. Everything else is the trainer's.
"""

import sys

from tempo_trl.demo.sampling import sample_quickly_on_a_cpu
from tempo_trl.launch.train import main

if __name__ == "__main__":
    sample_quickly_on_a_cpu()
    sys.exit(main())
