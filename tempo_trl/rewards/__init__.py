"""Reward functions in TRL's form: `reward(completions, **columns) -> list[float | None]`."""

from tempo_trl.rewards.choice_reward import choice_reward
from tempo_trl.rewards.equations import equations, equations_reward
from tempo_trl.rewards.format_reward import format_reward
from tempo_trl.rewards.json_fields import json_fields, json_fields_reward
from tempo_trl.rewards.json_schema import json_schema, json_schema_reward
from tempo_trl.rewards.math_reward import math_reward
from tempo_trl.rewards.mean_reward import mean_reward
from tempo_trl.rewards.quotes import Quote, quotes
from tempo_trl.rewards.span_reward import SpanReward
from tempo_trl.rewards.tool_call_fields import tool_call_fields, tool_call_fields_reward

__all__ = [
    "Quote",
    "SpanReward",
    "choice_reward",
    "equations",
    "equations_reward",
    "format_reward",
    "json_fields",
    "json_fields_reward",
    "json_schema",
    "json_schema_reward",
    "math_reward",
    "mean_reward",
    "quotes",
    "tool_call_fields",
    "tool_call_fields_reward",
]
