"""Print the folder of the task files: `lm_eval --include_path "$(python -m tempo_trl.evaluation)"`."""

from tempo_trl.evaluation.settings import TASKS_FOLDER

print(TASKS_FOLDER)
