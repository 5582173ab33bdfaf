"""`tempo-trl tree`: draw one recorded group in the terminal."""

from rich.console import Console

from tempo_trl.report.collect import opening_group
from tempo_trl.report.group import Group, recorded_groups
from tempo_trl.report.terminal_tree import criteria_table, group_tree, turn_table
from tempo_trl.runs.trees import recorded_steps


def main(run_dir: str, step: int | None, prompt: int | None, evaluation: bool) -> int:
    """Draw a group of a run and return the exit status. Raises as [`recorded_group`]."""
    group = recorded_group(run_dir, step, prompt, "eval" if evaluation else "train")
    console = Console()
    console.print(f"step {group.step}, group {group.group}", style="grey62", highlight=False)
    for part in filter(None, [group_tree(group), criteria_table(group), turn_table(group)]):
        console.print(part)
    return 0


def recorded_group(run_dir: str, step: int | None, prompt: int | None, mode: str = "train") -> Group:
    """
    A recorded group.

    Args:
        run_dir (`str`): The run's output folder.
        step (`int`, *optional*): Recorded step. Defaults to the last.
        prompt (`int`, *optional*): Its index in the record. Defaults to the most informative group.
        mode (`str`, *optional*, defaults to `"train"`): `"train"` or `"eval"`.

    Raises:
        ValueError: nothing was recorded, or this step or group was not recorded.
    """
    if step is None:
        step = next(reversed(recorded_steps(run_dir, mode)), 0)
    groups = recorded_groups(run_dir, step, mode)
    if not groups:
        raise ValueError(f"the record of step {step} in {run_dir} is empty. Choose another --step.")
    by_number = {group.group: group for group in groups}
    number = groups[opening_group(groups)].group if prompt is None else prompt
    if number not in by_number:
        raise ValueError(
            f"group {number} of step {step} was not recorded. Choose --prompt from 0 to {max(by_number)}, or raise "
            "`log_trees_prompts` in the next run."
        )
    return by_number[number]
