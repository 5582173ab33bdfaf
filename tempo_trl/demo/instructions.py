"""The demo's task `instructions`: what it shows are pass rates by kind, answers, a group's tree and its credit."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tempo_trl.data.instructions import KINDS, generated_rows
from tempo_trl.demo.decisive import decisive_shares
from tempo_trl.demo.language_show import BAD, GOOD, all_groups, held_out_answers, in_colours_of, rate
from tempo_trl.demo.language_task import LanguageTask
from tempo_trl.report.collect import opening_group
from tempo_trl.report.group import Group
from tempo_trl.report.terminal_tree import group_tree
from tempo_trl.runs.log import training_log
from tempo_trl.runs.token_text import one_line, shortened

SHOWN_ANSWERS, LONGEST = 5, 200


def mean_reward(completions: pd.DataFrame) -> float:
    """Mean reward of a table of completions."""
    return float(completions["instruction_reward"].mean())


def show(runs: list, console: Console) -> dict:
    """Print tables, answers and credit. Returns the numbers."""
    rates, first = {run.method: held_out_rates(run.folder) for run in runs}, runs[0]
    for run in runs:
        console.print(pass_rates(rates[run.method], run.label, run.held_out))
    console.print(side_by_side(changed_answers(first.folder)))
    groups = all_groups(first.folder)
    shares = decisive_shares(groups)
    if groups:
        group = groups[opening_group(groups)]
        console.print(f"\nA group of step {group.step}: {len(group.ids)} answers to one instruction:")
        console.print(group_tree(group))
        console.print(credit_lines(group))
        console.print(shares_sentence(shares))
    on_decisive = {name: {"decisive": float(own[0]), "all": float(own[1])} for name, own in shares.items()}
    held_out = {method: {"held_out": own.to_dict()} for method, own in rates.items()}
    return {"runs": held_out, "negative_credit": on_decisive}


def held_out_rates(folder: Path) -> pd.DataFrame:
    """Pass rates of a run on held-out instructions, `before` and `after`, by kind, and of `all`."""
    evaluations = [entry for entry in training_log(folder) if "eval_reward" in entry]
    after = json.loads((folder / "eval_results.json").read_text())
    rates = {
        when: {kind: entry[f"eval_instructions/{kind}"] for kind in KINDS} | {"all": entry["eval_reward"]}
        for when, entry in (("before", evaluations[0]), ("after", after))
    }
    return pd.DataFrame(rates)


def changed_answers(folder: Path) -> pd.DataFrame:
    """Held-out answers of a run: `instruction`, `kind`, and answer and reward `before` and `after`."""
    before, after = held_out_answers(INSTRUCTIONS, folder)
    kinds = {row["instruction"]: row["kind"] for row in generated_rows("test")}
    frame = pd.DataFrame({"instruction": before["asked"], "kind": before["asked"].map(kinds)})
    for when, table in (("before", before), ("after", after)):
        frame[when], frame[f"reward_{when}"] = table["answer"], table["instruction_reward"]
    return frame


def pass_rates(rates: pd.DataFrame, label: str, held_out: int) -> Table:
    """Share of the held-out instructions that are followed, before and after, by kind, with intervals."""
    table = Table(
        title=f"{label}: share of {held_out} held-out instructions followed",
        caption="95% Wilson intervals; three_words is never trained",
        box=SIMPLE_HEAD,
    )
    for heading in ("kind", "n", "before", "after"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind, own in rates.iterrows():
        n = held_out if kind == "all" else held_out // len(KINDS)
        table.add_row(kind, str(n), *(rate(own[when], n) for when in ("before", "after")))
    return table


def side_by_side(answers: pd.DataFrame) -> Table:
    """Held-out instructions with their answers before and after: one per kind, those that changed first."""
    order = answers.assign(same=answers["reward_before"] == answers["reward_after"]).sort_values("same", kind="stable")
    table = Table(title="Held-out instructions", box=SIMPLE_HEAD, show_lines=True)
    for heading in ("instruction", "before", "after"):
        table.add_column(heading, ratio=1, overflow="fold")
    for _, row in order.drop_duplicates("kind").head(SHOWN_ANSWERS).iterrows():
        table.add_row(row["instruction"], *(_marked(row, when) for when in ("before", "after")))
    return table


def _marked(row: pd.Series, when: str) -> Text:
    passed = row[f"reward_{when}"] > 0
    mark = Text("✓ ", style=GOOD) if passed else Text("✗ ", style=BAD)
    return mark.append(shortened(one_line(row[when]), LONGEST), style="default")


def credit_lines(group: Group) -> Text:
    """A right and a wrong completion of a group, if it has both, each token in the colour of its credit."""
    scale = max((float(np.abs(own).max()) for own in group.advantages if len(own)), default=0.0) or 1.0
    best, worst = int(np.nanargmax(group.rewards)), int(np.nanargmin(group.rewards))
    text = Text("\nCredit of each token (blue: more likely from now on, orange: less; bold: much):\n")
    for row in dict.fromkeys((best, worst)):
        text.append(f"reward {group.rewards[row]:g}: ")
        text.append_text(in_colours_of(group.tokens[row], group.advantages[row], scale))
        text.append("\n")
    return text


def shares_sentence(shares: dict[str, np.ndarray]) -> str:
    """A sentence on the share of negative credit on the tokens that broke an instruction."""
    if not shares["outcome"][1]:
        return "No recorded failure has credit at one decisive token."
    td, outcome = (float(own[0] / own[1]) if own[1] else 0.0 for own in (shares["td"], shares["outcome"]))
    return (
        f"{td:.0%} of the negative TD credit of broken instructions is on the token that broke them (the first comma, "
        f"for example); of GRPO's outcome credit, which is spread evenly, it is {outcome:.0%}."
    )


INSTRUCTIONS = LanguageTask(
    name="instructions",
    method="tempo",
    seconds=200,
    held_out=120,  # twelve of each kind
    held_out_quick=20,  # two of each
    rows=generated_rows,
    prompt="instruction",
    measure="reward",
    share=mean_reward,
    title="SmolLM2-135M-Instruct learns to follow instructions",
    show=show,
)
