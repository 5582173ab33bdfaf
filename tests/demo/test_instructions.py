"""What the demo shows of the task `instructions`, on answers made by hand."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tempo_trl.data.instructions import KINDS, generated_rows
from tempo_trl.demo import instructions
from tempo_trl.demo.instructions import INSTRUCTIONS

HELD_OUT = generated_rows("test")[:3]


def table(folder, step, rewards):
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(exist_ok=True)
    prompts = [[{"role": "user", "content": row["instruction"]}] for row in HELD_OUT]
    completions = [[{"role": "assistant", "content": f"{reward:g} at step {step}"}] for reward in rewards]
    pd.DataFrame({"prompt": prompts, "completion": completions, "instruction_reward": rewards}).to_parquet(path)
    return path


def test_rates_are_those_of_the_first_and_the_last_evaluation(tmp_path):
    evaluations = [
        {f"eval_instructions/{kind}": rate for kind in KINDS} | {"eval_reward": rate} for rate in (0.0, 0.5)
    ]
    log = [evaluations[0], {"reward": 0.3}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    (tmp_path / "eval_results.json").write_text(json.dumps(evaluations[1]))
    rates = instructions.held_out_rates(tmp_path)
    assert rates["before"].tolist() == [0.0] * (len(KINDS) + 1)
    assert rates.loc["all", "after"] == 0.5
    console = Console(width=80, file=io.StringIO())
    console.print(instructions.pass_rates(rates, "TEMPO", 20))
    printed = console.file.getvalue()
    assert "share of 20 held-out instructions followed" in printed
    assert "50% (9% to 91%)" in printed  # of two of a kind
    assert "50% (30% to 70%)" in printed


def test_answers_that_changed_come_first(tmp_path):
    table(tmp_path, 0, [0.0, 1.0, 0.0])
    table(tmp_path, 3, [0.0, 1.0, 1.0])
    answers = instructions.changed_answers(tmp_path)
    assert answers["kind"].tolist() == [row["kind"] for row in HELD_OUT]
    console = Console(width=80, file=io.StringIO())
    console.print(instructions.side_by_side(answers))
    printed = console.file.getvalue()
    assert printed.index("✓ 1 at step 3") < printed.index("✗ 0 at step 0", printed.index("✓ 1 at step 3"))


def test_the_measure_of_a_step_is_its_mean_reward(tmp_path):
    assert INSTRUCTIONS.share(pd.read_parquet(table(tmp_path, 1, [0.0, 1.0, 1.0]))) == pytest.approx(2 / 3)


def test_the_sentence_on_decisive_tokens_has_both_shares():
    sums = {"td": np.array([1.0, 4.0]), "advantage": np.zeros(2), "outcome": np.array([1.0, 10.0])}
    assert instructions.shares_sentence(sums).startswith("25% of the negative TD credit")
    assert "it is 10%" in instructions.shares_sentence(sums)
    assert "No recorded failure" in instructions.shares_sentence(sums | {"outcome": np.zeros(2)})
