"""Learning curves with the real trainers: every method at its own best learning rate, at equal generated tokens."""
