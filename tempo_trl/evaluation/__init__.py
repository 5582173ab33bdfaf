"""Evaluation: what a model answers to the questions of benchmarks, and how sure the numbers are.

`tempo-trl evaluate --model DIR_OR_ID` asks and grades, with lm-eval underneath: [`~tempo_trl.evaluation.evaluate`].
Prompts and graders are those of training. Answers are greedy and, with `--n 16`, sampled as in training (temperature
1); of what they say, a line a question, every number can be made again: [`~tempo_trl.evaluation.records`],
[`~tempo_trl.evaluation.results`], [`~tempo_trl.runs.statistics`].

`tasks/` holds our task files for lm-eval's own command; `python -m tempo_trl.evaluation` prints where they lie:

    lm_eval --model hf --model_args pretrained=MODEL,enable_thinking=False --apply_chat_template \\
        --tasks tempo_math,tempo_medqa --include_path "$(python -m tempo_trl.evaluation)"

with `--metadata '{"data_dir": "rows"}'` on local rows (`rows/math.jsonl`). It takes what `--data_dir`,
`--prompt_style`, `--system_prompt` and `--instruction` mean here.
"""
