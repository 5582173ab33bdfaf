"""Growing trees of completions, for TRL's `rollout_func`."""
