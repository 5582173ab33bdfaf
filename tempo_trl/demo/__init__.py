"""The demonstration: a small task with a known truth, and methods that train on it from the same start."""
