"""The estimators that questions have in common, by the names that tables and figures give them."""

from benchmarks.estimators.estimators import (
    Estimator,
    adaptive,
    grpo_lambda,
    ppo,
    prefix_baseline,
    rerolled_values,
    tempo,
    treerpo,
)
from benchmarks.estimators.rollouts import Entropy, Fixed, Independent, Rerolled

IID, FIXED, ENTROPY = Independent(8), Fixed(2, 3), Entropy(8)

INDEPENDENT = {
    "GRPO": Estimator(IID, tempo(0.0)),
    "RLOO": Estimator(IID, prefix_baseline(float("inf"))),
    "TEMPO, c = 0.5": Estimator(IID, tempo(0.5)),
    "TEMPO, c = 1": Estimator(IID, tempo(1.0)),
    "TEMPO, c = 2": Estimator(IID, tempo(2.0)),
    "TEMPO, c = 4": Estimator(IID, tempo(4.0)),
    "prefix baseline, k = 2": Estimator(IID, prefix_baseline(2.0)),
    "prefix baseline, k = 8": Estimator(IID, prefix_baseline(8.0)),
    "prefix baseline, adaptive": Estimator(IID, adaptive()),
}
LAMBDA = {
    "GRPO-λ trace 0.99": Estimator(IID, grpo_lambda(0.99, min_advantage=-0.1)),
    "GRPO-λ trace 0.99, no clamp": Estimator(IID, grpo_lambda(0.99)),
    "GRPO-λ trace 0.7, no clamp": Estimator(IID, grpo_lambda(0.7)),
    "GRPO-λ trace 0.99 both, no clamp": Estimator(IID, grpo_lambda(0.99, style="both")),
    "GRPO-λ weight 0.99": Estimator(IID, grpo_lambda(0.99, "weight", min_advantage=-0.1)),
}
GROWN = {
    "GRPO, fixed 2³": Estimator(FIXED, tempo(0.0)),
    "TEMPO, fixed 2³": Estimator(FIXED, tempo(1.0)),
    "adaptive, fixed 2³": Estimator(FIXED, adaptive()),
    "TreeRPO 2³": Estimator(FIXED, treerpo()),
    "TreeRPO 2³, per leaf": Estimator(FIXED, treerpo(count_shared_tokens="per_leaf")),
    "TEMPO, fixed 4²": Estimator(Fixed(4, 2), tempo(1.0)),
    "adaptive, fixed 4²": Estimator(Fixed(4, 2), adaptive()),
    "GRPO, entropy 8": Estimator(ENTROPY, tempo(0.0)),
    "TEMPO, entropy 8": Estimator(ENTROPY, tempo(1.0)),
    "TEMPO, entropy 8, reweighted": Estimator(ENTROPY, tempo(1.0, "reweight")),
    "adaptive, entropy 8": Estimator(ENTROPY, adaptive()),
    "TreeRPO entropy 8": Estimator(ENTROPY, treerpo("leaves")),
}
REFERENCES = {
    "VinePPO, K = 1": Estimator(Rerolled(1), rerolled_values),
    "VinePPO, K = 4": Estimator(Rerolled(4), rerolled_values),
    "VinePPO, K = 8": Estimator(Rerolled(8), rerolled_values),
    "PPO, true critic, λ = 1": Estimator(Independent(1), ppo(1.0)),
    "PPO, true critic, λ = 0": Estimator(Independent(1), ppo(0.0)),
}
