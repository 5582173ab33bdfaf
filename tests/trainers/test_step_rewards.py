"""Rewards per turn or step: what functions are called with and may return, process reward models, ranks, metrics."""

import asyncio
from dataclasses import replace

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen3ForTokenClassification

from tempo_trl import (
    GiGPOConfig,
    HGPOConfig,
    TokenCreditTrainer,
)
from tempo_trl.methods.gigpo import gigpo_credit
from tempo_trl.trainers.steps import delimited_steps

from ..tiny import tiny_model_config, tiny_tokenizer
from . import credit_functions as functions
from .agents import rooms_of
from .credit_functions import door_rewards, length_of_steps
from .engines import NEEDS_DEEPSPEED, ZERO, launcher_of
from .launching import run_ranks, torchrun
from .recording import config, parity, share_of_threes, train
from .test_agents import play

ENGINES = [pytest.param(engine, marks=NEEDS_DEEPSPEED) for engine in ZERO]


def watch(model, folder, *step_reward_funcs, **overrides):
    watching = functions.Watching()
    keywords = {"credit_func": watching, "step_reward_funcs": list(step_reward_funcs)}
    trainer = play(model, folder, trainer=keywords, **overrides)
    return trainer, watching.batches[0]


def test_every_turn_gets_its_reward_and_the_log_names_it(tiny_model, tmp_path):
    def half(completions, **columns):
        return [[0.5] * len(turns) for turns in door_rewards(completions)]

    trainer, batch = watch(tiny_model, tmp_path, door_rewards, half, step_reward_weights=[2.0, 1.0])
    for row in range(8):
        rooms = rooms_of(row % 4)
        # The reward of a turn is twice the room that its door leads to, and 1/2; the last turn opens none.
        expected = [*(2.0 * room + 0.5 for room in rooms[1:]), 0.5]
        got = batch.step_rewards[row].tolist()
        assert got == pytest.approx(expected + [torch.nan] * (len(got) - len(expected)), nan_ok=True)
    logged = trainer.state.log_history[0]
    assert logged["step_rewards/door_rewards/turn_0"] == 1.0  # every first door leads to room 1
    assert logged["step_rewards/door_rewards/turn_1"] == 0.0
    assert logged["step_rewards/door_rewards/mean"] == pytest.approx(6 / 9)


def test_gains_and_costs_that_cancel_in_each_turn_have_no_credit_but_of_the_outcome(tiny_model, tmp_path):
    """In float32 7.7 - 3.3 - 4.4 is not 0. What the rounding is relative to is the size of the terms."""

    def term(size: float):
        return lambda completions, **columns: [
            [size * (i % 2)] * len(turns) for i, turns in enumerate(door_rewards(completions))
        ]

    functions = list(map(term, (7.7, -3.3, -4.4)))
    _, batch = watch(tiny_model, tmp_path, *functions)
    assert batch.step_rewards.abs().nan_to_num(0.0).max() > 0
    assert batch.step_sizes[1, 0].item() == pytest.approx(15.4)
    gigpo = gigpo_credit(replace(batch, rewards=torch.zeros(8), reward_sizes=torch.zeros(8)))
    assert not gigpo.advantages.any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda completions: 3, r"must return 8 lists, one per completion, got int"),
        (lambda completions: [[1.0]] * 8, r"must return 4 numbers or None for row 0, one per .*, got \[1\.0\]"),
        (lambda completions: [["a"] * 4] * 8, r"must return 4 numbers or None for row 0, .*got \['a', "),
        (
            lambda completions: [[float("inf")] * 4] * 8,
            r".*for row 0.* finite and at most 1e\+18 in size, got \[inf, ",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_row(given, message, tiny_model, tmp_path):
    def scores(completions, **columns):
        return given(completions)

    with pytest.raises(ValueError, match=rf"`step_reward_funcs` scores failed: scores {message}"):
        watch(tiny_model, tmp_path, scores)


@pytest.mark.parametrize("of_trl", [True, False])
def test_async_functions_of_all_kinds_run_together_in_one_loop_also_where_one_runs_already(
    of_trl, tiny_model, tmp_path
):
    everyone = asyncio.Barrier(5 if of_trl else 4)  # of one loop: it refuses to be waited for in another

    def together(scores):
        async def waits(completions, **columns):
            await asyncio.wait_for(everyone.wait(), timeout=60)
            return scores(completions)

        return waits

    doors, nothing = together(door_rewards), together(lambda completions: [[]] * len(completions))
    given = {"step_reward_funcs": [doors, doors], "span_reward_funcs": [nothing, nothing]}
    reward = together(lambda completions: list(map(float, map(len, completions))))

    async def notebook():
        trainer = {"credit_func": functions.Watching(), **given}
        return play(tiny_model, tmp_path, trainer=trainer, reward_funcs=reward if of_trl else parity, max_steps=2)

    trainer = asyncio.run(notebook())
    assert trainer.credit_func.batches[0].step_rewards[3, 0] == 2.0
    assert "step_rewards/waits_2/mean" in trainer.state.log_history[0]


class Spelled(TokenCreditTrainer):
    """Completions with the delimiter `a` inside, at the end, twice in a row, and not at all."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        texts = ("one a two a three", "ends with a", "aa", "none")
        encode, eos = self.processing_class.encode, self.processing_class.eos_token_id
        return [[*encode(texts[i % 4]), eos] for i in range(len(prompt_ids))], None


def test_a_delimiter_cuts_turns_into_steps(tiny_model, tmp_path):
    watching = functions.Watching()
    trainer = train(
        tiny_model,
        tmp_path,
        cls=Spelled,
        reward_funcs=share_of_threes,
        step_delimiter="a",
        max_steps=1,
        trainer={"credit_func": watching, "step_reward_funcs": length_of_steps},
    )
    (batch,) = watching.batches
    assert batch.turns.max() == 0
    steps = [["one a", " two a", " three"], ["ends with a"], ["a", "a"], ["none"]]
    for row in range(4):
        of_row = [batch.completion_ids[row][batch.steps[row] == n] for n in range(batch.steps[row].max() + 1)]
        assert [trainer.processing_class.decode(ids, skip_special_tokens=True) for ids in of_row] == steps[row]
        lengths = [float(len(step)) for step in steps[row]]
        assert batch.step_rewards[row].tolist() == pytest.approx(
            lengths + [torch.nan] * (3 - len(lengths)), nan_ok=True
        )
    assert batch.observations.shape == batch.step_rewards.shape
    assert batch.steps[0][batch.lengths[0] - 1] == 2  # EOS belongs to the last step


@pytest.mark.parametrize(
    ("text", "delimiter", "steps"),
    [
        ("a\n\nb\n\nc", "\n\n", ["a\n\n", "b\n\n", "c"]),
        ("\n\n\n\n\n", "\n\n", ["\n\n", "\n\n", "\n"]),  # occurrences do not overlap
        ("eins。zwei。", "。", ["eins。", "zwei。"]),  # a token per byte: the last one completes the delimiter
        ("no end", "\n\n", ["no end"]),
    ],
)
def test_a_step_ends_with_the_token_that_completes_the_delimiter(text, delimiter, steps):
    tokenizer = tiny_tokenizer()
    ids = torch.tensor([[*tokenizer.encode(text), tokenizer.eos_token_id]])
    turns = torch.zeros_like(ids)
    found = delimited_steps(tokenizer, ids, turns, delimiter)[0]
    cut = [tokenizer.decode(ids[0, found == n], skip_special_tokens=True) for n in range(int(found.max()) + 1)]
    assert cut == steps


def test_a_step_does_not_begin_with_a_special_token_that_has_no_name():
    """Such as `<|eom_id|>` of Llama 3.1, which ends turns and is not among `all_special_ids`."""
    tokenizer = tiny_tokenizer()
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    unnamed = min(special - {*tokenizer.all_special_ids})
    ids = torch.tensor([[*tokenizer.encode("a\n\nb\n\n"), unnamed]])
    assert delimited_steps(tokenizer, ids, torch.zeros_like(ids), "\n\n").max() == 1


@given(st.text("ab。", max_size=12), st.text("ab。", min_size=1, max_size=3))
def test_delimiters_are_found_however_the_text_is_cut_into_tokens(text, delimiter):
    """The tiny tokenizer has a token for each byte."""
    tokenizer = tiny_tokenizer()
    ids = torch.tensor([[*tokenizer.encode(text), tokenizer.eos_token_id]])
    steps = delimited_steps(tokenizer, ids, torch.zeros_like(ids), delimiter)[0, :-1]
    pieces = text.split(delimiter)
    told = [f"{piece}{delimiter}" for piece in pieces[:-1]] + [pieces[-1]]
    expected = [n for n, piece in enumerate(told) for _ in piece.encode()]
    assert steps.tolist() == expected


@pytest.mark.parametrize("config_cls", [GiGPOConfig, HGPOConfig])
def test_a_part_of_an_observation_cannot_be_compared(config_cls, tmp_path):
    with pytest.raises(ValueError, match=r"`state_history` must be a whole number of at least 0, got 1\.5"):
        config(tmp_path, config_cls, state_history=1.5)


@pytest.mark.parametrize("config_cls", [GiGPOConfig, HGPOConfig])
def test_visits_of_a_state_are_not_compared_by_rewards_that_are_normalized_first(config_cls, tmp_path):
    with pytest.raises(ValueError, match=r"visits of a state are compared by the weighted sum\. Leave it unset"):
        config(tmp_path, config_cls, multi_objective_aggregation="normalize_then_sum")


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    """A process reward model on the spot, with the policy's vocabulary."""
    folder, tokenizer = tmp_path_factory.mktemp("prm"), tiny_tokenizer()
    torch.manual_seed(1)
    config = tiny_model_config(len(tokenizer), num_labels=2, pad_token_id=tokenizer.pad_token_id)
    Qwen3ForTokenClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("labels", [2, 1])
def test_a_process_reward_model_scores_each_turn_at_its_last_token(labels, reward_model, tiny_model, tmp_path):
    """A folder with two labels, of which the second one's probability counts, or a model with one, which gives its
    logit."""
    model = Qwen3ForTokenClassification.from_pretrained(reward_model, num_labels=labels, ignore_mismatched_sizes=True)
    trainer, batch = watch(tiny_model, tmp_path, str(reward_model) if labels == 2 else model.train())
    assert labels == 2 or not model.training
    tokenizer = trainer.processing_class
    for row in (0, 3):
        prompt = tokenizer.apply_chat_template(
            batch.columns["prompt"][row], tools=trainer.tools, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        length = batch.lengths[row]
        ids = torch.tensor([[*prompt, *batch.completion_ids[row, :length].tolist()]])
        logits = model.eval()(ids).logits[0, len(prompt) :]
        scores = logits.softmax(dim=-1)[:, 1] if labels == 2 else logits[:, 0]
        for n in range(len(rooms_of(row % 4))):
            last = (batch.turns[row] == n).nonzero()[-1].item()
            assert float(batch.step_rewards[row, n]) == pytest.approx(float(scores[last]), abs=1e-4)
    name = reward_model.name if labels == 2 else model.config._name_or_path.split("/")[-1]
    assert f"step_rewards/{name}/mean" in trainer.state.log_history[0]


def test_a_process_reward_model_of_three_labels_is_refused(reward_model, tiny_model, tmp_path):
    model = Qwen3ForTokenClassification.from_pretrained(reward_model, num_labels=3, ignore_mismatched_sizes=True)
    with pytest.raises(ValueError, match=r"must have one label, a score, or two, .*, got 3"):
        watch(tiny_model, tmp_path, model)


def test_a_process_reward_model_of_another_vocabulary_is_refused(reward_model, tiny_model, tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<another>"])
    other = tmp_path / "other"
    Qwen3ForTokenClassification.from_pretrained(reward_model).save_pretrained(other)
    tokenizer.save_pretrained(other)
    for each in (str(other), Qwen3ForTokenClassification.from_pretrained(other)):
        with pytest.raises(ValueError, match="other must have the policy's vocabulary"):
            watch(tiny_model, tmp_path / "run", each)


def on_two_ranks(launcher, model, folder, *steps, **options) -> list[dict]:
    """What each of two ranks saw of an agent's run with these `step_reward_funcs`, by name or path."""
    fixed = {"rooms": "Rooms", "max_completion_length": 400, "max_steps": 1, "steps": list(map(str, steps))}
    given = [f"{name}={value!r}" for name, value in (fixed | options).items()]
    return run_ranks(launcher, 2, "tests.trainers.credit_functions", model, folder, "Watching", *given)


def rewards_of(rank: dict) -> list[torch.Tensor]:
    return [batch["step_rewards"] for batch in rank["batches"]]


def step_metrics(rank: dict) -> dict[str, float]:
    return {k: v for entry in rank["history"] for k, v in entry.items() if "step_rewards" in k or "doors" in k}


@pytest.mark.matrix
def test_two_ranks_see_the_rewards_of_whole_groups(tiny_model, tmp_path):
    evaluation = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 6}
    options = {"per_device_train_batch_size": 6, "log_completions": True} | evaluation  # groups of 4
    ranks = on_two_ranks(torchrun(2), tiny_model, tmp_path, "logs_doors", **options)
    for rank in ranks:
        assert rank["error"] is None
        assert [batch["training"] for batch in rank["batches"]] == [True, False]
        for rewards in rewards_of(rank):
            for row in range(len(rewards)):
                expected = [*map(float, rooms_of(row % 4)[1:])]
                assert rewards[row, : len(expected)].tolist() == expected
                assert rewards[row, len(expected) :].isnan().all()
    logged = step_metrics(ranks[0])
    assert logged == step_metrics(ranks[1])
    assert logged["step_rewards/logs_doors/mean"] == logged["eval_step_rewards/logs_doors/mean"]
    assert logged["step_rewards/logs_doors/mean"] == pytest.approx(6 / 9)
    assert logged["doors"] == 9 / 4  # of all ranks: those of the first have 15 / 6, those of the second 12 / 6
    table = pd.read_parquet(sorted((tmp_path / "completions").glob("*.parquet"))[0])
    assert table["first_door"].tolist() == [1, 3, 5, 1] * 3


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["ddp", *ENGINES])
def test_a_function_that_fails_on_one_rank_ends_the_run_on_both(engine, reward_model, tiny_model, tmp_path):
    """Also with a process reward model after it, whose shards need both ranks."""
    launcher = launcher_of(engine, tmp_path)
    ranks = on_two_ranks(launcher, tiny_model, tmp_path, "fails_on_the_last_rank", reward_model)
    assert ranks[0]["error"] == ranks[1]["error"]
    assert "`step_reward_funcs` fails_on_the_last_rank raised KeyError" in ranks[0]["error"][1]


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ENGINES)
def test_process_reward_models_score_under_zero_as_under_ddp(engine, reward_model, tiny_model, tmp_path):
    (tmp_path / "ddp").mkdir()
    options = {"per_device_train_batch_size": 6}
    expected = on_two_ranks(launcher_of("ddp", tmp_path), tiny_model, tmp_path / "ddp", reward_model, **options)
    ranks = on_two_ranks(launcher_of(engine, tmp_path), tiny_model, tmp_path, reward_model, **options)
    for rank, other in zip(ranks, expected, strict=True):
        assert rank["error"] is None
        (rewards,), (scores,) = rewards_of(rank), rewards_of(other)
        assert (scores > 0).sum() == 26  # two groups of 13 turns
        torch.testing.assert_close(rewards, scores, rtol=1e-4, atol=1e-5, equal_nan=True)
