"""Span credit in training: advantages, functions in TRL's convention, what is logged, agents and ranks."""

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from tempo_trl import SpanReward, TokenCreditConfig, TokenCreditTrainer
from tempo_trl.credit.advantages import outcome_advantages
from tempo_trl.methods.span_credit import span_credit
from tempo_trl.trainers.span_rewards import by_logged_name

from ..credit.test_spans import by_definition
from .agents import DOORS, Rooms, rooms_of
from .launching import run_ranks, torchrun
from .recording import assert_same_weights, config, moved, questions, share_of_threes
from .spans import (
    ANSWERS,
    CRITERIA,
    EOS,
    Answers,
    FlatAnswers,
    RecordingSpans,
    assert_close,
    counted_by_hand,
    fields,
    swapped,
    train,
    whole_advantages,
)
from .test_agents import play

# Credit


@pytest.mark.parametrize(("scale", "trace_lambda"), [("group", 0.0), ("batch", 0.5), ("none", 1.0), (False, 0.5)])
def test_advantages_that_train_are_those_of_the_definition(scale, trace_lambda, tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, scale_rewards=scale, trace_lambda=trace_lambda)
    (batch,) = trainer.batches
    case = counted_by_hand(batch.completion_ids)
    scale = scale or "none"
    assert_close(batch.output["advantages"], by_definition(case, [1.0] * 4, scale, trace_lambda))
    assert_close(batch.output["outcome"], whole_advantages(case, scale))
    assert moved(trainer, tiny_model)


def test_without_other_rewards_the_mean_of_the_criteria_is_logged_and_adds_nothing(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, log_completions=True)
    scores = torch.tensor(counted_by_hand(trainer.batches[0].completion_ids)[0])
    logged = trainer.state.log_history[0]
    assert logged["reward"] == pytest.approx(scores.nanmean(dim=1).mean().item())
    assert logged["rewards/mean_of_criteria/mean"] == logged["reward"]
    for name, column in zip(CRITERIA, scores.T, strict=True):
        assert logged[f"spans/{name}/mean"] == pytest.approx(column.nanmean().item())
    table = pd.read_parquet(next((tmp_path / "completions").glob("*.parquet")))
    assert table["mean_of_criteria"].tolist() == pytest.approx(scores.nanmean(dim=1).tolist())


def test_with_other_rewards_both_add(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, reward_funcs=share_of_threes, trace_lambda=0.5)
    (batch,) = trainer.batches
    case = counted_by_hand(batch.completion_ids)
    outcome = outcome_advantages(batch.rewards_per_func[:, 0], 4)
    inside = batch.output["completion_mask"]
    spans = by_definition(case, [1.0] * 4, trace_lambda=0.5)
    assert outcome.abs().min() > 0
    assert_close(batch.output["advantages"] * inside, (outcome[:, None] * inside + spans))
    assert_close(batch.output["outcome"], outcome + whole_advantages(case))
    assert trainer.state.log_history[0]["reward"] == pytest.approx(batch.rewards_per_func.mean().item())


def test_metrics_say_how_much_credit_has_a_place_and_how_many_criteria_are_flat(tiny_model, tmp_path):
    logged = train(tiny_model, tmp_path, scale_rewards="none").state.log_history[0]
    # Group 1, city: 1, 1, 0, not judged, on 4 tokens: mean 2/3, 4 * (1/3 + 1/3 + 2/3). Item: 1, 0, 1, 0, on 3 tokens
    # (two signs and the end), 2, 2, 3: (3 + 2 + 2 + 3) / 2. o: 1, 1, 0, none: 1/3 + 1/3 + 2 * 2/3, as oslo has two.
    # Group 2, city: 1, 0, 0, 0: 4 * (3/4 + 3 * 1/4). Item: all right, flat. o: 1, 0, 0, 0: 3/4 + 3 * 2 * 1/4.
    placed = 4 * 4 / 3 + 5 + 2 + 4 * 3 / 2 + 9 / 4
    # Stop: 1, 0, 0, 0 on all 8, 7, 7, 5 tokens. 0, 1, 0, 0 on 7, 8, 7, 7.
    anywhere = (3 * 8 + 7 + 7 + 5) / 4 + (3 * 8 + 7 + 7 + 7) / 4
    assert logged["spans/placed"] == pytest.approx(placed / (placed + anywhere))
    assert logged["spans/flat"] == pytest.approx(1 / 8)


def test_where_only_criteria_differ_a_group_is_not_flat(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path / "a", swapped)
    assert trainer.state.log_history[0]["reward_std"] == 0
    assert trainer.state.log_history[0]["tempo/frac_zero_std"] == 0.0
    assert trainer.batches[0].output["advantages"][:, :2].abs().min() > 0.5
    assert train(tiny_model, tmp_path / "b", cls=FlatAnswers).state.log_history[0]["tempo/frac_zero_std"] == 0.5


def always(texts, **columns):
    """Both right everywhere, the one on its place and the other anywhere."""
    return [[SpanReward("here", 1.0, 0, 1), SpanReward("any.where", 1.0)] for _ in texts]


@pytest.mark.parametrize(
    ("functions", "named", "options"),
    [
        (fields, None, {}),
        ([fields, always], "always/here, always/any", {}),
        (fields, "city, item, stop, o", {"span_reward_weights": [0.0]}),
        ([fields, swapped], None, {"span_reward_weights": [0.0, 1.0]}),  # `fields` is there to be logged
    ],
    ids=["trains", "equal rewards", "weight 0", "weight 0 beside another"],
)
def test_a_criterion_that_has_trained_nothing_in_the_first_batches_is_named_once(
    functions, named, options, tiny_model, tmp_path, recwarn, monkeypatch
):
    monkeypatch.setattr("tempo_trl.methods.span_credit.FIRST_BATCHES", 2)
    train(tiny_model, tmp_path, functions, max_steps=4, **options)
    told = [str(each.message) for each in recwarn if "Nothing was trained" in str(each.message)]
    assert [message.split(" in the first")[0] for message in told] == [f"Nothing was trained on {named}"] * bool(named)
    assert all("first 2 batches" in message and "`span_reward_weights` is 0" in message for message in told)


def anywhere(texts, **columns):
    return [[SpanReward("a", float(i % 2)), SpanReward("b", float(i % 4 < 2))] for i in range(len(texts))]


@pytest.mark.parametrize(
    ("functions", "times"), [(anywhere, 1), ([anywhere, fields], 0), (always, 0)], ids=["none", "some", "flat"]
)
def test_criteria_without_a_place_in_the_first_batches_are_told_once(
    functions, times, tiny_model, tmp_path, recwarn, monkeypatch
):
    monkeypatch.setattr("tempo_trl.methods.span_credit.FIRST_BATCHES", 2)
    train(tiny_model, tmp_path, functions, max_steps=5)
    assert sum("had a place in the first 2 batches" in str(each.message) for each in recwarn) == times


def test_texts_know_what_the_policy_said(tiny_model, tmp_path):
    seen = []

    def notes(texts, completion_ids, completions, **columns):
        seen.extend(zip(texts, completion_ids, completions, strict=True))
        return [[SpanReward("any", float(i % 2))] for i in range(len(texts))]

    trainer = agents(tiny_model, tmp_path, notes, max_steps=1)
    (batch,) = trainer.batches
    decode = partial(trainer.processing_class.decode, skip_special_tokens=False)
    for (text, ids, completion), own in zip(seen, batch.output["tool_mask"].bool().tolist(), strict=True):
        sampled = [token for token, is_own in zip(ids, own, strict=False) if is_own]
        assert "".join(text[begin:end] for begin, end in text.turns) == decode(sampled)
        assert len(text.turns) == sum(message["role"] == "assistant" for message in completion)
    assert {len(text.turns) for text, *_ in seen} == {2, 3, 4}


def test_a_criterion_whose_places_are_in_the_answers_of_tools_is_named(tiny_model, tmp_path):
    def answers(texts, **columns):
        return [[SpanReward("answer", i % 2, at := text.index("room"), at + 4)] for i, text in enumerate(texts)]

    with pytest.warns(UserWarning, match="Nothing was trained on answer in .* place it on the call"):
        agents(tiny_model, tmp_path, answers, max_steps=10, trace_lambda=0.0)


def test_metrics_have_the_first_part_of_a_criterion_s_name_and_the_table_all_of_it(tiny_model, tmp_path):
    def nested(texts, **columns):
        names = ("order.city", "order.items[0].n", "calls[2].arguments.x", "[0].a", "plain")
        return [[SpanReward(name, float(k == i % 5)) for k, name in enumerate(names)] for i in range(len(texts))]

    logged = train(tiny_model, tmp_path, [nested, swapped], log_completions=True).state.log_history[0]
    means = {name.split("/")[2]: value for name, value in logged.items() if re.match("spans/nested/.*/mean", name)}
    # Rows 0 to 7 have criterion i % 5 right: the first three two of eight times each, the others once.
    assert means == pytest.approx({"order": 4 / 16, "calls": 2 / 8, "[]": 1 / 8, "plain": 1 / 8})
    table = pd.read_parquet(next((tmp_path / "completions").glob("*.parquet")))
    assert "nested/order.items[0].n: 0" in table["criteria"][0]


class AnswersOfUsers(Answers, TokenCreditTrainer):
    pass


@pytest.mark.parametrize("with_criteria", [True, False])
def test_span_credit_as_a_function_of_the_user_is_span_credit_and_fills_the_table_if_it_says_criteria(
    with_criteria, tiny_model, tmp_path
):
    def theirs(batch):
        credit = span_credit(batch, trace_lambda=0.0, with_outcome=False)
        return replace(credit, metrics={}, criteria=credit.criteria if with_criteria else None)

    ours = train(tiny_model, tmp_path / "ours", log_completions=True)
    args = config(tmp_path / "theirs", TokenCreditConfig, max_steps=1, log_completions=True)
    other = AnswersOfUsers(tiny_model, None, args, questions(), credit_func=theirs, span_reward_funcs=fields)
    other.train()
    assert_same_weights(other, ours)
    said, expected = (
        pd.read_parquet(next((tmp_path / name / "completions").glob("*.parquet")))["criteria"].tolist()
        for name in ("theirs", "ours")
    )
    assert (said == expected) == with_criteria


# Functions


async def stop(texts, **columns):
    return [[SpanReward("stop", float("!" in text))] for text in texts]


def test_the_criteria_of_several_functions_are_named_and_weighed_by_function(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, [fields, stop, partial(fields)], span_reward_weights=[0.5, -2.0, 1.0])
    (batch,) = trainer.batches
    scores, places, *rest = counted_by_hand(batch.completion_ids)
    columns = [*range(4), CRITERIA.index("stop"), *range(4)]
    scores, places = ([[row[k] for k in columns] for row in rows] for rows in (scores, places))
    weights = torch.tensor([0.5] * 4 + [-2.0] + [1.0] * 4)
    assert_close(batch.output["advantages"], by_definition((scores, places, *rest), weights.tolist()))
    logged = trainer.state.log_history[0]
    expected = [f"fields/{name}" for name in CRITERIA] + ["stop/stop"] + [f"fields_2/{name}" for name in CRITERIA]
    assert sorted(re.findall(r"spans/(\S+)/mean", " ".join(logged))) == sorted(expected)
    scores = torch.tensor(scores)
    mean = (scores.nan_to_num(0.0) @ weights) / (scores.isfinite().float() @ weights.abs())
    assert logged["reward"] == pytest.approx(mean.mean().item())


def test_functions_are_called_as_trl_calls_reward_functions_and_with_texts(tiny_model, tmp_path):
    seen = {}

    def whole(**keywords):
        seen["whole"] = keywords
        return [0.0] * len(keywords["completions"])

    def by_place(**keywords):
        seen["by_place"] = keywords
        return fields(keywords["texts"])

    trainer = train(tiny_model, tmp_path, by_place, whole)
    assert seen["by_place"].keys() - seen["whole"].keys() == {"texts"}
    for name in seen["whole"].keys() - {"log_metric", "log_extra"}:
        assert seen["by_place"][name] == seen["whole"][name], name
    assert seen["by_place"]["trainer_state"] is trainer.state
    decode = partial(trainer.processing_class.decode, skip_special_tokens=False)
    assert seen["by_place"]["texts"] == list(map(decode, seen["by_place"]["completion_ids"]))
    assert seen["by_place"]["texts"] == [answer + EOS for answer in ANSWERS]


# Agents


class RewardedRooms(Rooms):
    def get_reward(self) -> float:
        return self.room + self.answers / 4


def second_door(texts, **columns) -> list[list[SpanReward]]:
    """Whether the second door is odd, on the call that opens it; not judged where there is none."""
    calls = [list(re.finditer(r'<tool_call>.*?"door": (\d).*?</tool_call>', text, re.DOTALL)) for text in texts]
    return [[SpanReward("second", int(own[1][1]) % 2, *own[1].span())] if own[1:] else [] for own in calls]


def agents(model, folder, functions=second_door, **overrides):
    """Two groups of the four scripts of agents.py: their second doors are 2, 4 and 2; script 3 has one door."""
    keywords = {"span_reward_funcs": functions} | overrides.pop("trainer", {})
    return play(model, folder, RecordingSpans, trainer=keywords, reward_funcs=None, **overrides)


def test_a_place_in_the_second_turn_has_the_tokens_of_that_turn(tiny_model, tmp_path):
    doors = [(1, 2, 3), (3, 5, 3), (5, 2), (1,)]
    trainer = agents(tiny_model, tmp_path, doors=doors, scale_rewards="none", trace_lambda=0.0)
    (batch,) = trainer.batches
    tokenizer = trainer.processing_class
    call, end = (tokenizer.convert_tokens_to_ids(token) for token in ("<tool_call>", "</tool_call>"))
    for row, ids in enumerate(batch.completion_ids):
        expected = torch.zeros(batch.output["advantages"].shape[1])
        calls = [t for t, token in enumerate(ids) if token == call]
        if len(calls) > 1:  # 0, 1, 0: the mean is 1/3
            last = ids.index(end, calls[1])
            expected[calls[1] : last + 1] = (2 / 3) if row % 4 == 1 else (-1 / 3)
        assert_close(batch.output["advantages"][row], expected)


def test_environments_are_passed_and_one_that_owns_the_reward_adds(tiny_model, tmp_path):
    def rooms(texts, environments, **columns):
        return [[SpanReward("room", float(environment.room))] for environment in environments]

    trainer = agents(tiny_model, tmp_path, rooms, world=RewardedRooms)
    (batch,) = trainer.batches
    ends = [rooms_of(script)[-1] for script in range(4)] * 2
    answers = [len(doors) for doors in DOORS] * 2
    rewards = torch.tensor([room + n / 4 for room, n in zip(ends, answers, strict=True)])
    assert trainer.reward_func_names == ["RewardedRooms"]
    assert batch.rewards_per_func.tolist() == rewards[:, None].tolist()
    whole = outcome_advantages(rewards, 4) + outcome_advantages(torch.tensor(ends), 4)
    assert_close(batch.output["outcome"], whole)
    trained = batch.output["completion_mask"] * batch.output["tool_mask"]
    assert_close(batch.output["advantages"] * trained, whole[:, None] * trained)
    with pytest.raises(ValueError, match=r"`reward_weights` has 1 numbers, expected none.*weight of 1\. Remove it"):
        agents(tiny_model, tmp_path, rooms, world=RewardedRooms, reward_weights=[0.5])


# Ranks


@pytest.mark.matrix
def test_two_ranks_see_the_criteria_of_whole_groups_also_of_functions_that_name_others_on_each(tiny_model, tmp_path):
    """Ranks have six rows each of groups of four, and criteria and numbers of places of their own."""
    options = ("max_steps=1", "per_device_train_batch_size=6", "log_completions=True", "spans=['by_rank']")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    seen = [rank["batches"][0]["criteria"] for rank in ranks]
    for criteria in seen:
        assert criteria.names == ("both", "rank0", "rank1")
        assert criteria.starts.shape == (8, 3, 2)
        assert criteria.weights.tolist() == [1.0] * 3
    # Rank 0 has rows 0 to 5 of all 12, and sees 0 to 7; rank 1 has 6 to 11, and sees 4 to 11.
    for criteria, own in zip(seen, (range(0, 8), range(4, 12)), strict=True):
        of_rank_0 = torch.tensor([row < 6 for row in own])
        assert criteria.rewards[:, 0].isfinite().all()
        assert torch.equal(criteria.rewards[:, 1].isfinite(), of_rank_0)
        assert torch.equal(criteria.rewards[:, 2].isfinite(), ~of_rank_0)
        assert criteria.placed.tolist() == [[False, row < 6, row >= 6] for row in own]
        assert (criteria.starts[~of_rank_0, 2, 1] == 1).any()
    torch.testing.assert_close(seen[0].rewards[4:], seen[1].rewards[:4], equal_nan=True)
    logged = [{k: v for k, v in rank["history"][0].items() if k.startswith("spans/")} for rank in ranks]
    assert logged[0] == logged[1]
    assert logged[0]["spans/rank0/mean"] == 0.0 and logged[0]["spans/rank1/mean"] == 1.0


def test_a_rank_reports_only_criteria_that_its_own_rows_have():
    """With names that differ by prompt, what each rank sends would otherwise grow with the number of ranks."""
    everyone = SimpleNamespace(names=["city", "order[1]", "of another rank"])
    sums = by_logged_name("mean", everyone, torch.tensor([3.0, 1.0, 0.0]), torch.tensor([4, 2, 0]))
    assert sums == {"spans/city/mean": (3, 4), "spans/order/mean": (1, 2)}
