"""What people write below a trainer: advantages that they weigh, and losses of their own."""

import pytest
import torch
from trl import GRPOTrainer

from tempo_trl import GRPOLambdaTrainer, TEMPOTrainer, TokenCreditTrainer
from tempo_trl.methods.tempo import tempo_credit

from .recording import assert_same_weights, share_of_threes, train

HALF = {"credit_func": lambda batch: batch.outcome * (torch.arange(len(batch.outcome)) % 2)}  # every second row


def test_advantages_per_completion_may_be_made_into_ones_per_token(tiny_model, tmp_path):
    """GRPO as TEMPO has one per completion. TRL's loss takes tokens, too."""

    class Spread(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            if output["advantages"].ndim == 1:
                output["advantages"] = output["advantages"][:, None].expand(output["completion_ids"].shape).clone()
            return output

    options = {"reward_funcs": share_of_threes, "max_steps": 2, "td_coef": 0.0}
    ours = train(tiny_model, tmp_path / "tokens", cls=Spread, **options)
    theirs = train(tiny_model, tmp_path / "completions", cls=TEMPOTrainer, **options)
    assert_same_weights(ours, theirs, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda advantages: advantages * torch.linspace(0.5, 1.5, 8)[:, None],  # as scripts with a length penalty do
        lambda advantages: advantages * torch.rand(8, 8, generator=torch.Generator().manual_seed(0)),
    ],
    ids=["per completion", "per token"],
)
def test_advantages_that_a_subclass_changes_train_as_credit_that_has_them(change, tiny_model, tmp_path):
    class Changing(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            return output | {"advantages": change(output["advantages"])}

    options = {"reward_funcs": share_of_threes, "max_steps": 1, "epsilon_high": None}
    options |= {"max_completion_length": 8, "generation_kwargs": {"min_new_tokens": 8}}
    credit = {"credit_func": lambda batch: change(tempo_credit(batch).advantages)}
    ours = train(tiny_model, tmp_path / "ours", cls=Changing, **options)
    theirs = train(tiny_model, tmp_path / "theirs", cls=TokenCreditTrainer, trainer=credit, **options)
    assert_same_weights(ours, theirs)


def entropy_of(trainer, model, inputs):
    """What a `_loss` of one's own may add, by TRL's method for log-probabilities."""
    ids, mask = (torch.cat([inputs[f"prompt_{k}"], inputs[f"completion_{k}"]], dim=1) for k in ("ids", "mask"))
    logps = trainer._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].shape[1])[0]
    return -(logps * inputs["completion_mask"]).mean()


@pytest.mark.parametrize("first", [True, False])
def test_a_term_that_a_loss_adds_by_trls_method_changes_no_credit(first, tiny_model, tmp_path):
    class Added(GRPOLambdaTrainer):
        def _loss(self, model, inputs, compute_loss):
            before = entropy_of(self, model, inputs) if first else 0.0
            loss = compute_loss(model, inputs)
            return loss + 0.0 * (before if first else entropy_of(self, model, inputs))

    options = {"reward_funcs": share_of_threes, "max_steps": 2, "num_iterations": 2}
    ours = train(tiny_model, tmp_path / "ours", cls=Added, **options)
    assert_same_weights(ours, train(tiny_model, tmp_path / "theirs", cls=GRPOLambdaTrainer, **options))


def test_a_term_that_a_loss_adds_sees_all_rows_where_those_without_credit_are_skipped(tiny_model, tmp_path):
    class Added(TokenCreditTrainer):
        def _loss(self, model, inputs, compute_loss):
            return compute_loss(model, inputs) + entropy_of(self, model, inputs)

    options = {"reward_funcs": share_of_threes, "max_steps": 1}
    trained = [
        train(tiny_model, tmp_path / str(skips), cls=Added, trainer=HALF, skip_zero_advantages=skips, **options)
        for skips in (True, False)
    ]
    assert_same_weights(*trained, rtol=1e-4, atol=1e-5)


def of_rows(model, inputs):
    """A loss as it was in older versions of TRL: with one advantage for each completion."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    logps = model(ids).logits[:, -inputs["completion_ids"].shape[1] - 1 : -1].log_softmax(dim=-1)
    taken = logps.gather(2, inputs["completion_ids"][..., None])[..., 0]
    return -(taken * inputs["advantages"].unsqueeze(1) * inputs["completion_mask"]).mean()


@pytest.mark.parametrize("method", ["_compute_loss", "compute_loss"])
def test_a_loss_that_leaves_ours_out_ends_the_run_before_it_moves_a_weight(method, tiny_model, tmp_path):
    """`(B, T).unsqueeze(1)` gives every completion the advantages of all rows, without an error."""
    of_its_own = type("OfItsOwn", (TEMPOTrainer,), {method: lambda self, model, inputs, **_: of_rows(model, inputs)})
    options = {"max_steps": 1, "save_strategy": "no"}
    with pytest.raises(ValueError, match=r"OfItsOwn has a loss that does not call .* override `_loss\(model, inputs"):
        train(tiny_model, tmp_path, cls=of_its_own, **options)
    trained = train(tiny_model, tmp_path, cls=of_its_own, td_coef=0.0, **options)  # one for each completion
    assert trained.state.global_step == 1


class Opposite:
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        return output | {"advantages": -output["advantages"]}


def test_the_off_policy_mask_reads_advantages_that_a_subclass_changes(tiny_model, tmp_path):
    options = {"off_policy_mask_threshold": 1e-5, "num_iterations": 3, "max_steps": 5, "learning_rate": 2e-2}
    ours = type("Ours", (Opposite, TEMPOTrainer), {})
    theirs = type("Theirs", (Opposite, GRPOTrainer), {})
    ours = train(tiny_model, tmp_path / "ours", cls=ours, td_coef=0.0, **options)
    theirs = train(tiny_model, tmp_path / "theirs", cls=theirs, epsilon_high=0.28, **options)
    assert_same_weights(ours, theirs, rtol=0, atol=0)


def test_a_subclass_may_score_batches_itself_with_advantages_per_token(tiny_model, tmp_path):
    class Scores(TEMPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = GRPOTrainer._generate_and_score_completions(self, inputs)
            return output | {"advantages": output["advantages"][:, None] * output["completion_mask"]}

    options = {"reward_funcs": share_of_threes, "max_steps": 2}
    ours = train(tiny_model, tmp_path / "tokens", cls=Scores, **options)
    theirs = train(tiny_model, tmp_path / "completions", cls=GRPOTrainer, epsilon_high=0.28, **options)
    assert_same_weights(ours, theirs, rtol=1.3e-6, atol=1e-5)
