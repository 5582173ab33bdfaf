"""Benchmarks as datasets in TRL's format: a `prompt`, and the columns that the reward functions use."""

from tempo_trl.data.benchmarks import BENCHMARKS, Benchmark
from tempo_trl.data.leaks import check_leaks, leaked_rows
from tempo_trl.data.loading import load_prompts

__all__ = ["BENCHMARKS", "Benchmark", "check_leaks", "leaked_rows", "load_prompts"]
