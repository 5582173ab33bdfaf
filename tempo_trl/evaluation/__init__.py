"""Evaluate models on benchmarks, with intervals.

`tempo-trl evaluate --model DIR_OR_ID` generates answers with lm-eval and grades them:
[`~tempo_trl.evaluation.evaluate`]. Graders are those of training; words of the prompts, thinking and maximum length
are those of the run whose model it is, unless a flag says otherwise. Answers are greedy and, with `--n 16`, also
sampled as in training (temperature 1). They are saved with one line per question, from which every number can be
recomputed ([`~tempo_trl.evaluation.records`], [`~tempo_trl.evaluation.results`], [`~tempo_trl.runs.statistics`]).
"""
