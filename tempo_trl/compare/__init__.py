"""Runs side by side: the paper's Table 1 with ours in it, and learning curves."""
