"""The seam: a credit function of a user on TRL's loop."""

import inspect
import warnings
from functools import partial

import pytest
import torch
from trl import GRPOTrainer

import tempo_trl
from tempo_trl import Credit, TEMPOTrainer, TokenCreditConfig, TokenCreditTrainer
from tempo_trl.methods.tempo import tempo_credit

from . import credit_functions as functions
from .launching import run_ranks, torchrun
from .recording import Recording, assert_same_weights, config, parity, picky, questions, share_of_threes, train
from .test_features import scripted_rollout

TRAINERS = [name for name in tempo_trl.__all__ if name.endswith("Trainer")]
EVALUATION = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 6, "num_generations_eval": 3}


def run(model, folder, credit_func, cls=TokenCreditTrainer, **overrides):
    keywords = overrides.pop("trainer", {}) | {"credit_func": credit_func}
    return train(model, folder, cls=cls, trainer=keywords, **overrides)


@pytest.mark.parametrize("credit_func", [functions.grpo, functions.spread])
def test_the_outcome_as_credit_is_grpo(credit_func, tiny_model, tmp_path):
    stock = train(tiny_model, tmp_path / "a", cls=GRPOTrainer)
    assert_same_weights(run(tiny_model, tmp_path / "b", credit_func), stock)


def test_the_off_policy_mask_reads_the_same_outcome_in_both_forms_of_one_credit(tiny_model, tmp_path):
    """All completions are off policy: those with a negative outcome are dropped, whatever the advantages say."""

    def one(batch):
        return Credit(batch.advantages, outcome=-batch.advantages)

    def each(batch):
        return Credit(batch.advantages[:, None].expand(batch.completion_ids.shape), outcome=-batch.advantages)

    options = {"off_policy_mask_threshold": -10.0, "num_iterations": 2, "max_steps": 2, "loss_type": "grpo"}
    first, second = (run(tiny_model, tmp_path / form.__name__, form, **options) for form in (one, each))
    assert_same_weights(first, second)
    plain = run(tiny_model, tmp_path / "plain", functions.grpo, **options)
    with pytest.raises(AssertionError):
        assert_same_weights(first, plain)


def test_one_number_per_completion_is_the_outcome_that_the_off_policy_mask_reads(tiny_model, tmp_path):
    def turned(batch):
        return -batch.advantages

    def told(batch):
        return Credit(-batch.advantages, outcome=-batch.advantages)

    options = {"off_policy_mask_threshold": -10.0, "num_iterations": 2, "max_steps": 2, "loss_type": "grpo"}
    assert_same_weights(*(run(tiny_model, tmp_path / each.__name__, each, **options) for each in (turned, told)))


@pytest.mark.parametrize("change", [list.pop, lambda ids: ids.extend([0] * 30)], ids=["shorter", "longer"])
def test_a_reward_function_that_changes_token_ids_changes_no_credit(change, tiny_model, tmp_path):
    def changing(completion_ids, **columns):
        rewards = share_of_threes(completion_ids=completion_ids, **columns)
        for ids in completion_ids:
            change(ids)
        return rewards

    plain = train(tiny_model, tmp_path / "a", cls=TEMPOTrainer, reward_funcs=share_of_threes)
    assert_same_weights(train(tiny_model, tmp_path / "b", cls=TEMPOTrainer, reward_funcs=changing), plain)


def test_tempos_credit_as_a_function_of_the_user_is_tempo(tiny_model, tmp_path):
    ours = train(tiny_model, tmp_path / "a", cls=TEMPOTrainer, reward_funcs=[parity, picky], epsilon_high=None)
    theirs = run(tiny_model, tmp_path / "b", tempo_credit, reward_funcs=[parity, picky])
    assert_same_weights(theirs, ours)


def test_values_outside_of_the_loss_are_never_read(tiny_model, tmp_path):
    options = {"trainer": {"rollout_func": scripted_rollout}, "reward_funcs": share_of_threes}
    finite = run(tiny_model, tmp_path / "a", functions.spread, **options | {"trainer": dict(options["trainer"])})
    holes = run(tiny_model, tmp_path / "b", functions.unread_outside_of_the_loss, **options)
    assert_same_weights(holes, finite)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (functions.one_column_short, ValueError, r"one_column_short failed: `advantages` must be a tensor of shape"),
        (functions.not_a_number, ValueError, r"not_a_number failed: .*got 1 non-finite values.* row 1, token 2: nan"),
        (functions.infinite, ValueError, r"infinite failed: `advantages` must be finite on every token of the loss"),
        (functions.with_trls_metric, ValueError, r"with_trls_metric failed: .*returned a metric 'reward', but the"),
        (functions.raises, RuntimeError, r"raises raised KeyError: 'segment' \(on rank 0\)"),
    ],
)
def test_a_credit_function_that_fails_is_named_with_what_was_expected(function, error, message, tiny_model, tmp_path):
    with pytest.raises(error, match=rf"`credit_func` {message}"):
        run(tiny_model, tmp_path, function, reward_funcs=share_of_threes)


def test_the_credit_of_a_method_that_fails_is_named_as_the_method_s(tiny_model, tmp_path):
    failing = type("Failing", (TokenCreditTrainer,), {"credit": lambda self, batch: functions.raises(batch)})
    with pytest.raises(RuntimeError, match=r"the credit of Failing raised KeyError: 'segment' \(on rank 0\)"):
        train(tiny_model, tmp_path, cls=failing)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "kind"), [("raises", "RuntimeError"), ("infinite", "ValueError"), ("cannot_be_sent", "RuntimeError")]
)
def test_a_function_that_fails_on_one_rank_ends_the_run_on_all(name, kind, tiny_model, tmp_path):
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, name)
    assert ranks[0]["error"] == ranks[1]["error"]
    assert ranks[0]["error"][0] == kind
    assert name in ranks[0]["error"][1]


def test_what_a_function_changes_in_place_is_told_from_what_it_was_given(tiny_model, tmp_path):
    logs = []
    for number, doubled in enumerate((lambda batch: batch.advantages.mul_(2), lambda batch: 2 * batch.advantages)):
        trainer = run(tiny_model, tmp_path / str(number), doubled, max_steps=1)
        logs.append(trainer.state.log_history[0]["tempo/added_share"])
    assert logs[0] == logs[1] > 0


def test_metrics_are_ratios_of_sums(tiny_model, tmp_path):
    trainer = run(tiny_model, tmp_path, functions.later_counts_more)
    for entry in trainer.state.log_history[:-1]:
        assert entry["mine/length"] == pytest.approx(entry["completions/mean_length"])


def test_checkpoints_of_the_model_only_hold_what_a_method_has_learned(tiny_model, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1, "save_only_model": True, "max_steps": 2}
    run(tiny_model, tmp_path, functions.RunningMean(), **saving)

    def updates_at_the_end() -> int:
        memory = functions.RunningMean()
        run(tiny_model, tmp_path, memory, resume=str(tmp_path / "checkpoint-1"), **saving)
        return memory.updates

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r".*checkpoint-1 has no")
        assert updates_at_the_end() == 2
    (tmp_path / "checkpoint-1" / "credit_state.pt").unlink()
    with pytest.warns(UserWarning, match=r"checkpoint-1 has no credit_state.pt: .* resume from a checkpoint with"):
        assert updates_at_the_end() == 1


@pytest.mark.matrix
@pytest.mark.parametrize("rows", [6, 8])  # groups of four: split over the ranks, and inside them
def test_two_ranks_see_whole_groups_and_learn_alike(rows, tiny_model, tmp_path):
    options = (f"per_device_train_batch_size={rows}", "max_steps=2", *(f"{k}={v!r}" for k, v in EVALUATION.items()))
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    for first, second in zip(ranks[0]["batches"], ranks[1]["batches"], strict=True):
        assert first["training"] == second["training"]
        size = first["num_generations"]
        for batch in (first, second):
            assert len(batch["completion_ids"]) % size == 0
            groups = [batch["columns"]["difficulty"][k : k + size] for k in range(0, len(batch["lengths"]), size)]
            assert all(len(set(group)) == 1 for group in groups)  # one prompt each, its columns with it
            inside = torch.arange(batch["completion_ids"].shape[1]) < batch["lengths"][:, None]
            assert torch.equal(batch["loss_mask"], inside)
            assert torch.equal(batch["turns"], torch.where(inside, 0, -1))
            assert len(batch["prompts"].view(-1, size).unique()) == len(batch["lengths"]) // size
        counted = [batch["lengths"][batch["counted"]] for batch in (first, second)]
        assert len(counted[0]) + len(counted[1]) == 2 * (rows if first["training"] else 6)
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "RunningMean", *options)
    assert ranks[0]["state"] == ranks[1]["state"]
    assert ranks[0]["state"]["count"] == 2 * 2 * rows


def test_environment_tokens_of_a_rollout_end_a_turn(tiny_model, tmp_path):
    watching = functions.Watching()
    run(tiny_model, tmp_path, watching, max_steps=1, trainer={"rollout_func": scripted_rollout})
    assert watching.batches[0].turns[2].tolist() == [0, 0, -1, 1, 1, 1]
    assert watching.batches[0].loss_mask[0].tolist() == [True, True, False, True, True, False]


def test_log_probabilities_and_entropies_are_there_where_trl_computed_them(tiny_model, tmp_path):
    once, twice = functions.Watching(), functions.Watching()
    run(tiny_model, tmp_path / "a", once, max_steps=2, **EVALUATION, trainer={"eval_dataset": questions(2)})
    assert all(batch.logps is None and batch.entropies is None for batch in once.batches)
    assert {batch.training for batch in once.batches} == {True, False}
    options = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "max_steps": 2, "temperature": 0.7}
    trainer = run(tiny_model, tmp_path / "b", twice, **options)
    batch = twice.batches[0]
    assert batch.logps.shape == batch.entropies.shape == batch.completion_ids.shape
    assert (batch.logps[batch.loss_mask] <= 0).all() and (batch.entropies[batch.loss_mask] >= 0).all()
    # Of the untrained model: recomputed without the trainer, at the sampling temperature.
    model = trainer.model.from_pretrained(tiny_model)
    prompts = [trainer.processing_class(text)["input_ids"] for text in batch.columns["prompt"]]
    row, length = 0, batch.lengths[0].item()
    ids = torch.tensor([[*prompts[row], *batch.completion_ids[row, :length].tolist()]])
    logits = model(ids).logits[0, -length - 1 : -1] / 0.7
    distribution = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(
        batch.logps[row, :length], distribution.log_prob(ids[0, -length:]), rtol=1e-3, atol=1e-4
    )
    torch.testing.assert_close(batch.entropies[row, :length], distribution.entropy(), rtol=1e-3, atol=1e-4)


def test_what_a_method_sees_does_not_depend_on_the_recorder(tiny_model, tmp_path):
    seen = []

    class Seeing(TokenCreditTrainer):
        def credit(self, batch):
            seen.append(batch.entropies is not None)
            return batch.advantages

    for every in (0, 10):
        train(tiny_model, tmp_path, cls=Seeing, log_trees_steps=every, num_iterations=2, max_steps=3)
    assert seen == [True] * 4


def test_a_credit_function_is_asked_for_where_there_is_none_and_refused_where_a_method_has_its_own(
    tiny_model, tmp_path
):
    with pytest.raises(ValueError, match=r"`credit_func` must be a function .* got None"):
        TokenCreditTrainer(tiny_model, parity, config(tmp_path, TokenCreditConfig), questions())
    with pytest.raises(ValueError, match=r"or an object of a class with `__call__`, got <class .*RunningMean"):
        run(tiny_model, tmp_path, functions.RunningMean)
    for part in (functions.RunningMean().__call__, partial(functions.RunningMean())):
        with pytest.raises(ValueError, match=r"a method or a partial of .*RunningMean.* whose `update` would not be"):
            run(tiny_model, tmp_path, part)
    with pytest.raises(ValueError, match=r"TEMPOTrainer has its own credit function"):
        TEMPOTrainer(tiny_model, parity, config(tmp_path), questions(), credit_func=functions.grpo)


@pytest.mark.parametrize("name", TRAINERS)
def test_signatures_name_trls_parameters_in_trls_order(name):
    theirs = list(inspect.signature(GRPOTrainer).parameters)
    ours = list(inspect.signature(getattr(tempo_trl, name)).parameters)
    assert ours == [*theirs, "credit_func", "step_reward_funcs", "span_reward_funcs", "observation_key_func"]


@pytest.mark.parametrize("name", TRAINERS)
def test_no_trl_method_is_overridden_twice_in_a_hierarchy(name):
    ours = [cls for cls in getattr(tempo_trl, name).__mro__ if cls.__module__.startswith("tempo_trl")]
    for method in {method for cls in GRPOTrainer.__mro__ for method in vars(cls)}:
        defining = [cls.__name__ for cls in ours if method in vars(cls)]
        assert len(defining) <= 1 or method.startswith(("__", "_name", "_tag", "_paper")), (method, defining)


def test_a_loss_mask_of_the_credit_adds_no_token_of_the_environment(tiny_model, tmp_path):
    def without_the_first(batch):
        kept = torch.arange(batch.loss_mask.shape[1]) > 0
        return Credit(batch.advantages, loss_mask=kept.expand(batch.loss_mask.shape))

    recorded, masks = type("Recorded", (Recording, TokenCreditTrainer), {}), []
    for function in (functions.grpo, without_the_first):
        given = {"cls": recorded, "max_steps": 1, "reward_funcs": share_of_threes}
        trainer = run(tiny_model, tmp_path, function, **given, trainer={"rollout_func": scripted_rollout})
        output = trainer.batches[0].output
        masks.append(output["completion_mask"] * output["tool_mask"])
    masks[0][:, 0] = 0
    assert torch.equal(masks[1], masks[0])
    assert output["num_items_in_batch"] == masks[0].sum()
