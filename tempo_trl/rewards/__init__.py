"""Reward functions in TRL's form: `reward(completions, **columns) -> list[float | None]`."""

from tempo_trl.rewards.math_reward import math_reward

__all__ = ["math_reward"]
