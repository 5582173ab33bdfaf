"""Questions and studies that were measured and whose code is gone. Their pages name the commit that has it."""

REMOVED = {
    "benchmarks.estimators": {"coefficient", "entropy", "learned_td"},
    "benchmarks.learning": {"batch", "branches", "equal_rates", "slip", "tempo_ablation"},
}
