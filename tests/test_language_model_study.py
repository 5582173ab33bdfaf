"""The study on the language model: which runs, equal tokens, and own rates."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from benchmarks.language_model.cells import Cells
from benchmarks.language_model.figure import draw
from benchmarks.language_model.lambda_grpo import lambda_grpo
from benchmarks.language_model.runs import command, command_of_start
from benchmarks.language_model.show import show
from benchmarks.language_model.starts import examples_of
from benchmarks.language_model.study import INSTRUCTIONS, STUDIES
from benchmarks.language_model.training import attend_in_float32_on_a_cpu
from benchmarks.tasks import prompts_of
from tempo_trl import Batch
from tempo_trl.launch.arguments import parse
from tempo_trl.launch.datasets import load_datasets
from tempo_trl.launch.functions import load_functions, load_rewards

RATES, SEEDS, SWEEP_SEEDS = INSTRUCTIONS.rates, INSTRUCTIONS.seeds, INSTRUCTIONS.sweep_seeds


def row(arm, rate, seed, reward, length=10.0, steps=INSTRUCTIONS.steps):
    """A cell with a constant reward per step, or the given ones."""
    rewards = reward if isinstance(reward, list) else [reward] * 4
    lengths = length if isinstance(length, list) else [length] * len(rewards)
    held_out = {"no_comma": 0.5, "all": 0.5}
    cell = {"arm": arm, "learning_rate": rate, "seed": seed, "steps": steps}
    return cell | {"reward": rewards, "length": lengths, "seconds": [20.0] * len(rewards), "held_out": held_out}


def swept(path, best):
    """Cells of a whole sweep of some arms, in which the rate `best[arm]` is best."""
    cells = Cells(INSTRUCTIONS, path)
    cells.rows = [
        row(arm, rate, seed, 0.6 if rate == own else 0.4)
        for arm, own in best.items()
        for rate in RATES
        for seed in SWEEP_SEEDS
    ]
    return cells


def shown(cells) -> list[str]:
    """The lines of the tables."""
    console = Console(width=300)
    with console.capture() as printed:
        show(cells, console)
    return printed.get().splitlines()


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_run_is_one_that_the_parser_takes(study, tmp_path, subtests):
    for name in study.arms:
        with subtests.test(name):
            cell = study.cell(name, 5e-5, 0)
            words = command(study, cell, tmp_path / cell.name)
            arguments = parse(words[words.index("--config") :])
            assert arguments.training.learning_rate == 5e-5
            assert arguments.training.max_steps == study.steps
            assert arguments.script.task in (study.task, f"benchmarks.tasks.{study.task}.load")
            assert load_rewards(arguments.script) or arguments.script.span_reward_funcs
            load_functions(arguments.script)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_policy_answers_as_many_held_out_prompts_as_the_study_says(study, tmp_path):
    cell = study.cell("grpo", 5e-5, 0)
    words = command(study, cell, tmp_path / cell.name)
    _, held_out = load_datasets(parse(words[words.index("--config") :]))
    assert len(held_out) == study.held_out


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_no_seed_that_chose_a_rate_counts(study):
    assert not set(study.sweep_seeds) & set(study.seeds)
    assert all(arm.rated_as in study.arms for arm in study.arms.values() if arm.rated_as)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_cut_study_has_whole_pairs(study):
    cells = [cell for cell in study.final(dict.fromkeys(study.arms, 5e-5)) if cell.arm in study.arms]
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert {cell.arm for cell in cells[: len(study.arms)]} == set(study.arms)


def test_a_first_look_has_two_seeds_and_the_rate_of_the_arm_that_it_is_compared_with():
    study, main = STUDIES["tuned_orders"], {"grpo", "span_credit", "tempo"}
    assert {cell.arm for cell in study.sweep(lambda _: [1e-5], lambda _: [1e-5])} == main - {"tempo"}
    seeds_of = {arm: {c.seed for c in study.final({arm: 1e-5}) if c.arm == arm} for arm in study.arms}
    on_all = main | {"gdpo", "prefix_baseline", "lambda_grpo"}  # which led on two
    assert all(seeds == {0, 1, 2, 3, 4} for seeds in seeds_of.values()) and seeds_of.keys() == on_all
    study = STUDIES["directory"]
    seeds_of = {arm: {c.seed for c in study.final({arm: 1e-5}) if c.arm == arm} for arm in study.arms}
    assert {arm for arm, seeds in seeds_of.items() if seeds != {0, 1}} == main | {"grpo on success"}


def test_fine_tuning_alone_starts_from_more_examples_or_more_epochs_and_changes_nothing(tmp_path):
    study = STUDIES["tuned_orders"]
    alone = [cell for cell in study.final({}) if study.is_final(cell)]
    starts = [command_of_start(study, cell, tmp_path / cell.name)[4:] for cell in alone]
    once = [[str(count), "1", "4e-05", str(tmp_path / f"start_{count}")] for count in (32, 64, 128)]
    again = [["32", str(n), "4e-05", str(tmp_path / f"start_32_epochs_{n}")] for n in (2, 4)]
    assert starts == once + again
    for cell, (*_, start) in zip(alone, starts, strict=True):
        words = command(study, cell, tmp_path / cell.name)
        arguments = parse(words[words.index("--config") :])
        assert arguments.model.model_name_or_path == start
        assert (arguments.training.learning_rate, arguments.training.weight_decay) == (0.0, 0.0)
        assert arguments.training.max_steps == 1
        assert arguments.script.reward_funcs == ["benchmarks.language_model.criteria.orders_mean"]  # logs the checks


def test_after_more_epochs_the_main_arms_start_from_the_same_examples_seen_more_often(tmp_path):
    once, often = STUDIES["tuned_orders"], STUDIES["tuned_orders_4_epochs"]
    assert often.arms == {name: once.arms[name] for name in ("grpo", "span_credit", "tempo")}
    assert (often.task, often.seeds, often.steps, often.held_out) == (once.task, once.seeds, once.steps, once.held_out)
    *alone, grpo = (often.cell(arm, 2e-5, 0) for arm in (*often.fine_tuning, "grpo"))
    starts = [command_of_start(often, cell, tmp_path / cell.name)[4:] for cell in (*alone, grpo)]
    assert starts == [["32", n, "4e-05", str(tmp_path / f"start_32_epochs_{n}")] for n in ("4", "8", "4")]


def test_for_more_steps_grpo_and_span_credit_run_as_in_the_study_itself_but_longer(tmp_path):
    short, long = STUDIES["products"], STUDIES["products_60_steps"]
    assert [*long.arms] == ["grpo", "span_credit"]
    for arm in long.arms:
        words = [command(study, study.cell(arm, 2e-5, 0), tmp_path / "run") for study in (short, long)]
        differ = [pair for pair in zip(*words, strict=True) if len({*pair}) > 1]
        assert differ == [("30", "60")]  # `--max_steps`


def test_examples_are_prompts_of_the_task_with_right_answers():
    examples = examples_of("orders", 16)
    assert examples.column_names == ["prompt", "completion"]
    truths = [example["completion"][0]["content"] for example in examples]
    assert len(set(truths)) == 16
    asked = {row["prompt"][-1]["content"]: row["truth"] for row in prompts_of("orders", "train")}
    assert [asked[example["prompt"][-1]["content"]] for example in examples] == truths


def lambda_grpo_of_the_guide():
    page = (Path(__file__).parents[1] / "docs" / "guides" / "credit_function.md").read_text()
    (code,) = re.findall(r"```python\n(def lambda_grpo.*?)```", page, re.DOTALL)
    exec(code, names := {"torch": torch, "Batch": Batch})
    return names["lambda_grpo"]


@pytest.mark.parametrize("credit_func", [lambda_grpo, lambda_grpo_of_the_guide()], ids=["study", "guide"])
@pytest.mark.parametrize("seed", range(20))
def test_lambda_grpo_divides_by_the_completions_of_the_group_that_share_the_token_and_all_before(seed, credit_func):
    batch = random_batch(torch.Generator().manual_seed(seed))
    credit, size = credit_func(batch), batch.num_generations
    for row, (ids, length) in enumerate(zip(batch.completion_ids.tolist(), batch.lengths.tolist(), strict=True)):
        group = range(row // size * size, (row // size + 1) * size)
        for t in range(length):
            prefix = ids[: t + 1]
            own = [
                other
                for other in group
                if batch.completion_ids[other, : batch.lengths[other]].tolist()[: t + 1] == prefix
            ]
            assert credit[row, t].item() == pytest.approx(batch.advantages[row].item() / len(own))


def random_batch(generator):
    """Two groups of four completions of two kinds of token, with many prefixes in common."""
    ids, lengths = (torch.randint(*bounds, generator=generator) for bounds in ((2, (8, 5)), (1, 6, (8,))))
    ids = ids.masked_fill(torch.arange(5) >= lengths[:, None], 0)
    advantages = torch.randn(8, generator=generator)
    return SimpleNamespace(completion_ids=ids, lengths=lengths, num_generations=4, advantages=advantages)


def test_a_gradient_of_attention_in_bfloat16_is_that_of_float32_rounded_once(monkeypatch):
    monkeypatch.setattr(F, "scaled_dot_product_attention", F.scaled_dot_product_attention)
    torch.manual_seed(0)
    exact = [torch.randn(1, heads, 12, 16).bfloat16().float().requires_grad_() for heads in (4, 2, 2)]
    rounded = [x.detach().bfloat16().requires_grad_() for x in exact]
    expected = F.scaled_dot_product_attention(*exact, is_causal=True, enable_gqa=True)
    attend_in_float32_on_a_cpu()
    with torch.autocast("cpu", torch.bfloat16):
        found = F.scaled_dot_product_attention(*rounded, is_causal=True, enable_gqa=True)
    found.backward(torch.ones_like(found)), expected.backward(torch.ones_like(expected))
    assert torch.equal(found, expected.bfloat16())
    assert all(torch.equal(own.grad, other.grad.bfloat16()) for own, other in zip(rounded, exact, strict=True))


def test_an_arm_takes_the_rate_that_was_best_on_average_once_all_were_tried(tmp_path):
    cells = swept(tmp_path / "cells.json", {"grpo": RATES[2], "tempo": RATES[0]})
    assert cells.rates() == {"grpo": RATES[2], "tempo": RATES[0]}
    cells.rows.pop()  # a rate of tempo that was not among its best two on the first seed need not run on the second
    assert cells.rates() == {"grpo": RATES[2], "tempo": RATES[0]}
    cells.rows = [row for row in cells.rows if (row["arm"], row["seed"]) != ("tempo", SWEEP_SEEDS[1])]
    assert cells.rates() == {"grpo": RATES[2]}


def tried_in_turn(cells, reward_of):
    """The rates of GRPO's sweep on its first seed, where a run at a rate has the reward `reward_of(rate)`."""
    tried = []
    while new := [
        cell for cell in INSTRUCTIONS.sweep(cells.to_try, cells.best_two) if cell.arm == "grpo" and cell not in cells
    ]:
        tried += [cell.learning_rate for cell in new if cell.seed == SWEEP_SEEDS[0]]
        cells.rows += [row("grpo", cell.learning_rate, cell.seed, reward_of(cell.learning_rate)) for cell in new]
    return tried


@pytest.mark.parametrize(
    ("best", "expected"),
    [(5e-5, [5e-5, 1e-4, 2.5e-5]), (2e-4, [5e-5, 1e-4, 2e-4, 4e-4]), (1e-6, [5e-5, 1e-4, 2.5e-5, 1.25e-5])],
)
def test_a_sweep_goes_on_until_the_best_rate_lies_between_two_others_or_none_is_left(tmp_path, best, expected):
    cells = Cells(INSTRUCTIONS, tmp_path / "cells.json")
    assert tried_in_turn(cells, lambda rate: 1 - abs(math.log(rate / best)) / 10) == expected
    assert cells.rates() == {"grpo": max(best, RATES[0])}


def test_the_second_seed_of_the_sweep_runs_the_best_two_rates_of_the_first(tmp_path):
    cells = Cells(INSTRUCTIONS, tmp_path / "cells.json")
    tried_in_turn(cells, lambda rate: 1 - abs(rate - 9e-5))
    second = [row["learning_rate"] for row in cells.rows if row["seed"] == SWEEP_SEEDS[1]]
    assert sorted(second) == [5e-5, 1e-4]


def test_a_figure_is_drawn_once_an_arm_has_runs_of_two_seeds(tmp_path):
    cells = swept(tmp_path / "cells.json", {"grpo": RATES[2]})
    assert not draw(cells, tmp_path / "figure.png")
    for seed in SEEDS[:2]:
        cells.add(row("grpo", RATES[2], seed, 0.5) | {"commit": "a" * 40}, {"machine": "two cores"})
    assert cells.provenance == {"machine": "two cores", "commits_of_runs": ["a" * 40], "seeds": [0, 1]}
    cells.rows += swept(tmp_path / "none.json", {"grpo": RATES[2]}).rows
    assert draw(cells, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
