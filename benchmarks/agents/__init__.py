"""Learning curves of agents that call tools: how each method credits turns where completions meet again."""
