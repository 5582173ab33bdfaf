"""Rewards per turn or step: what functions are called with and may return, process reward models, ranks, metrics."""

import pytest
import torch
from transformers import Qwen3ForTokenClassification

from tempo_trl import (
    AnchorBaselineConfig,
    AnchorBaselineTrainer,
    Batch,
    GiGPOConfig,
    GiGPOTrainer,
    TEMPOConfig,
    TEMPOTrainer,
    TokenCreditConfig,
    TokenCreditTrainer,
)
from tempo_trl.credit.turns import spread_turns, turn_returns

from ..tiny import tiny_model_config, tiny_tokenizer
from . import credit_functions as functions
from .agents import rooms_of
from .credit_functions import door_rewards, length_of_steps
from .launching import run_ranks, torchrun
from .recording import share_of_threes, train
from .test_agents import play


def watch(model, folder, *step_reward_funcs, **overrides):
    watching = functions.Watching()
    keywords = {"credit_func": watching, "step_reward_funcs": list(step_reward_funcs)}
    trainer = play(model, folder, trainer=keywords, **overrides)
    return trainer, watching.batches[0]


def returns_to_go(batch: Batch) -> torch.Tensor:
    """A credit function of a user: the return from each step on, over the group's mean return."""
    returns = turn_returns(batch.step_rewards, batch.steps, batch.rewards)
    whole = returns[:, 0].view(-1, batch.num_generations)
    mean = whole.mean(dim=1).repeat_interleave(batch.num_generations)
    return spread_turns(returns.nan_to_num(0.0) - mean[:, None], batch.steps)


def test_every_turn_gets_its_reward_and_the_log_names_it(tiny_model, tmp_path):
    trainer, batch = watch(tiny_model, tmp_path, door_rewards)
    for row in range(8):
        rooms = rooms_of(row % 4)
        # The reward of a turn is the room that its door leads to; the last turn opens none.
        expected = [*map(float, rooms[1:]), torch.nan]
        got = batch.step_rewards[row].tolist()
        assert got == pytest.approx(expected + [torch.nan] * (len(got) - len(expected)), nan_ok=True)
    logged = trainer.state.log_history[0]
    assert logged["step_rewards/door_rewards/turn_0"] == 1.0  # every first door leads to room 1
    assert logged["step_rewards/door_rewards/turn_1"] == 0.0
    assert logged["step_rewards/door_rewards/mean"] == pytest.approx(6 / 9)


def test_functions_are_weighed_and_none_counts_as_no_reward(tiny_model, tmp_path):
    def half(completions, **columns):
        return [[0.5] * len(turns) for turns in door_rewards(completions)]

    _, batch = watch(tiny_model, tmp_path, door_rewards, half, step_reward_weights=[2.0, 1.0])
    assert batch.step_rewards[3, :2].tolist() == [2.5, 0.5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda completions: 3, r"must return 8 lists, one per completion, got int"),
        (lambda completions: [[1.0]] * 7, r"must return 8 lists, one per completion, got 7 lists"),
        (lambda completions: [[1.0]] * 8, r"must return 4 numbers for row 0, one per turn or step, got 1: \[1\.0\]"),
        (lambda completions: [["a"] * 4] * 8, r"must return numbers or None, got .* for row 0"),
        (lambda completions: [[float("inf")] * 4] * 8, r"must return finite numbers or None"),
    ],
)
def test_what_does_not_fit_is_named_with_its_row(given, message, tiny_model, tmp_path):
    def scores(completions, **columns):
        return given(completions)

    with pytest.raises(ValueError, match=rf"`step_reward_funcs` failed: scores {message}"):
        watch(tiny_model, tmp_path, scores)


def test_an_async_function_is_awaited(tiny_model, tmp_path):
    async def slowly(completions, **columns):
        return door_rewards(completions)

    _, batch = watch(tiny_model, tmp_path, slowly)
    assert batch.step_rewards[3, 0] == 1.0


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
        config_cls=TokenCreditConfig,
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


def test_a_method_that_would_not_read_them_refuses_them(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="TEMPOTrainer would not use rewards per turn"):
        play(tiny_model, tmp_path, TEMPOTrainer, config_cls=TEMPOConfig, trainer={"step_reward_funcs": door_rewards})


@pytest.mark.parametrize(
    ("cls", "config_cls"), [(GiGPOTrainer, GiGPOConfig), (AnchorBaselineTrainer, AnchorBaselineConfig)]
)
def test_methods_for_agents_train_on_them(cls, config_cls, tiny_model, tmp_path):
    options = {"config_cls": config_cls, "scale_rewards": "none", "learning_rate": 1e-2}
    without = play(tiny_model, tmp_path / "a", cls, **options)
    rewarded = play(tiny_model, tmp_path / "b", cls, **options, trainer={"step_reward_funcs": door_rewards})
    pairs = zip(without.model.parameters(), rewarded.model.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_weights_that_do_not_fit_are_refused(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="`step_reward_weights` must have 1 numbers"):
        watch(tiny_model, tmp_path, door_rewards, step_reward_weights=[1.0, 2.0])


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory):
    """A process reward model on the spot, with the policy's vocabulary."""
    folder, tokenizer = tmp_path_factory.mktemp("prm"), tiny_tokenizer()
    torch.manual_seed(1)
    config = tiny_model_config(len(tokenizer), num_labels=2, pad_token_id=tokenizer.pad_token_id)
    Qwen3ForTokenClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_process_reward_model_scores_each_turn_at_its_last_token(reward_model, tiny_model, tmp_path):
    trainer, batch = watch(tiny_model, tmp_path, str(reward_model))
    model = Qwen3ForTokenClassification.from_pretrained(reward_model).eval()
    tokenizer = trainer.processing_class
    for row in (0, 3):
        prompt = tokenizer.apply_chat_template(
            batch.columns["prompt"][row], tools=trainer.tools, add_generation_prompt=True, return_dict=True
        )["input_ids"]
        length = batch.lengths[row]
        ids = torch.tensor([[*prompt, *batch.completion_ids[row, :length].tolist()]])
        probability = model(ids).logits[0, len(prompt) :].softmax(dim=-1)[:, 1]
        for n in range(len(rooms_of(row % 4))):
            last = (batch.turns[row] == n).nonzero()[-1].item()
            assert float(batch.step_rewards[row, n]) == pytest.approx(float(probability[last]), abs=1e-4)
    assert f"step_rewards/{reward_model.name}/mean" in trainer.state.log_history[0]


def test_a_process_reward_model_of_another_vocabulary_is_refused(reward_model, tiny_model, tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<another>"])
    other = tmp_path / "other"
    Qwen3ForTokenClassification.from_pretrained(reward_model).save_pretrained(other)
    tokenizer.save_pretrained(other)
    with pytest.raises(ValueError, match="other must have the policy's vocabulary"):
        watch(tiny_model, tmp_path / "run", str(other))


@pytest.mark.matrix
def test_two_ranks_see_the_rewards_of_whole_groups(tiny_model, tmp_path):
    options = ("rooms=True", "max_completion_length=400", "per_device_train_batch_size=6", "max_steps=1")
    ranks = run_ranks(
        torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options, "steps=True"
    )
    for rank in ranks:
        assert rank["error"] is None
        rewards = rank["batches"][0]["step_rewards"]
        for row in range(len(rewards)):
            expected = [*map(float, rooms_of(row % 4)[1:])]
            assert rewards[row, : len(expected)].tolist() == expected
            assert rewards[row, len(expected) :].isnan().all()
    logged = [{k: v for k, v in rank["history"][0].items() if k.startswith("step_rewards")} for rank in ranks]
    assert logged[0] == logged[1] and logged[0]["step_rewards/door_rewards/mean"] == pytest.approx(6 / 9)


@pytest.mark.matrix
def test_a_function_that_fails_on_one_rank_ends_the_run_on_both(tiny_model, tmp_path):
    options = ("rooms=True", "max_completion_length=400", "max_steps=1", "steps='fails_on_the_last_rank'")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    assert ranks[0]["error"] == ranks[1]["error"]
    assert "`step_reward_funcs` raised KeyError" in ranks[0]["error"][1]


def test_a_users_function_reads_them(tiny_model, tmp_path):
    trainer = play(tiny_model, tmp_path, trainer={"credit_func": returns_to_go, "step_reward_funcs": door_rewards})
    assert trainer.state.global_step == 1
