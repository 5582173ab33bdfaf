"""Compare credit of the package with the true policy gradient, which is known exactly.

`python -m benchmarks.estimators where|adaptive|trees|signals|agents|all [--quick] [--output FOLDER]` answers one
question and writes `estimators_<question>.png` and `.json`.

A task (`task.py`) is a finite token tree with a tabular softmax policy, small enough that the true values, advantages
and gradient are sums over all its states. A rollout (`rollouts.py`) spends a budget of tokens on it, an estimator
(`estimators.py`) is a rollout and a credit of `tempo_trl.credit`, and `metrics.py` compares with the truth.
"""
