"""Compare runs: differences paired over questions and seeds, with 95% intervals."""
