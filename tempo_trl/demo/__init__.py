"""The demo, orders in JSON for a language model; and the task `sums` with its tiny policy, which needs no download."""
