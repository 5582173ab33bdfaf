"""Evaluate models on benchmarks, with intervals.

`tempo-trl evaluate --model DIR_OR_ID` generates answers with lm-eval and grades them:
[`~tempo_trl.evaluation.evaluate`]. Graders are those of training; words of the prompts, thinking and maximum length
are those of the run whose model it is, unless a flag says otherwise. Answers are greedy and, with `--n 16`, also
sampled as in training (temperature 1). They are saved with one line per question, from which every number can be
recomputed ([`~tempo_trl.evaluation.records`], [`~tempo_trl.evaluation.results`], [`~tempo_trl.runs.statistics`]).

`tasks/` contains our task files for lm-eval's own command; `python -m tempo_trl.evaluation` prints that folder:

    lm_eval --model hf --model_args pretrained=MODEL,enable_thinking=False --apply_chat_template \\
        --tasks tempo_math,tempo_medqa --include_path "$(python -m tempo_trl.evaluation)"

Add `--metadata '{"data_dir": "rows"}'` for local rows (`rows/math.jsonl`). Its keys `data_dir`, `prompt_style`,
`system_prompt` and `instruction` have the meaning of our flags.
"""
