"""The demo: a small task where the decisive tokens are known, and methods trained on it from the same policy."""
