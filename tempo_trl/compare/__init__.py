"""Compare runs: the paper's Table 1 with your values in it, and paired intervals of differences."""
