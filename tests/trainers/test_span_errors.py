"""What span reward functions may not return, and what trainers refuse, each with its message."""

from functools import partial

import numpy as np
import pytest

from tempo_trl import SpanCreditConfig, SpanReward, TEMPOTrainer

from ..credit.test_spans import by_definition
from .credit_functions import door_rewards
from .launching import run_ranks, torchrun
from .recording import config, questions, share_of_threes
from .spans import EOS, RecordingAnswers, assert_close, counted_by_hand, fields, train

A, LONG = partial(SpanReward, "a", 1.0), len("rome,3!" + EOS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, " must return 8 lists of SpanReward, one per completion, got int"),
        ([[A()]] * 7, " must return 8 lists of SpanReward, one per completion, got 7 lists"),
        ([[A()], None, *[[A()]] * 6], ", row 1: expected a list of SpanReward, got None"),
        ([[("a", 1.0)]] * 8, r", row 0: expected a SpanReward\(name, reward, start, end\), got tuple: \('a', 1\.0\)"),
        ([[SpanReward(3, 1.0)]] * 8, ", row 0: the name of a criterion must be a text, got 3"),
        ([[SpanReward("a", "1")]] * 8, ", row 0: the reward of 'a' must be a finite number, or None .*, got '1'"),
        ([[A(0)]] * 8, ", row 0: 'a' must have a start and an end, or neither, got start 0 and end None"),
        ([[A(0, 1.5)]] * 8, r", row 0: the place of 'a' must have .* whole numbers, got start 0 and end 1\.5"),
        ([[A(2, 2)]] * 8, rf", row 0: the place of 'a' must have 0 <= start < end <= {LONG}, .*start 2 and end 2"),
        ([[A(0, LONG)]] * 8, rf", row 1: .* <= {LONG - 1}, the length of the completion's text .*end {LONG}"),
        ([[A(0, 2), A(0, 2)]] * 8, r", row 0: 'a' stands twice with the same place \(0, 2\)"),
        ([[A(0, 2), SpanReward("a", 0.0, 2, 3)]] * 8, r", row 0: .*reward=1\.0.*reward=0\.0.* have one name"),
    ],
)
def test_what_does_not_fit_is_named_with_its_row_and_criterion(given, message, tiny_model, tmp_path):
    def wrong(texts, **columns):
        return given

    with pytest.raises(ValueError, match=rf"`span_reward_funcs` wrong failed: wrong{message}.*\(on rank 0\)$"):
        train(tiny_model, tmp_path, [fields, wrong])


def test_numbers_and_rows_of_other_types_are_read_as_numbers_and_rows(tiny_model, tmp_path):
    def of_numpy(texts, **columns):
        numbers = {float: np.float32, int: np.int64}
        return [
            tuple(SpanReward(span.name, *(numbers.get(type(n), lambda n: n)(n) for n in span[1:])) for span in spans)
            for spans in fields(texts)
        ]

    (batch,) = train(tiny_model, tmp_path, of_numpy).batches
    assert_close(batch.output["advantages"], by_definition(counted_by_hand(batch.completion_ids), [1.0] * 4))


def test_a_dataset_column_named_texts_is_refused(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="the dataset has a column 'texts', but reward functions get something else"):
        dataset, args = questions().map(lambda row: {"texts": "a"}), config(tmp_path, SpanCreditConfig)
        RecordingAnswers("no/such-model", None, args, dataset, span_reward_funcs=fields)


REFUSED = [
    ({"functions": None}, r"`span_reward_funcs` must be a function .*, or a list of such.* got none\. Pass"),
    ({"functions": (fields, fields)}, r"`span_reward_funcs` must be a function .*, or a list of such.* got"),
    ({"functions": [fields, "model"]}, r"`span_reward_funcs` must be a function .*, or a list of such.* got"),
    ({"span_reward_weights": [1.0, 2.0]}, r"`span_reward_weights` must have 1 numbers, one per function.*, got 2"),
    ({"reward_weights": [2.0]}, "`reward_weights` has 1 numbers, expected none: there are no `reward_funcs`"),
    ({"trainer": {"step_reward_funcs": door_rewards}}, "`step_reward_funcs` must be None, got 1: .* Use GiGPO"),
    ({"trace_lambda": float("nan")}, "`trace_lambda` must be between 0 and 1, got nan"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_no_span_credit_is_refused_when_the_trainer_is_built(options, message, tiny_model, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(tiny_model, tmp_path, **options)


def test_a_method_that_would_not_read_them_refuses_them(tiny_model, tmp_path):
    message = "`span_reward_funcs` must be None, got 1: TEMPOTrainer would not use them. Use SpanCreditTrainer"
    with pytest.raises(ValueError, match=message):
        TEMPOTrainer(tiny_model, share_of_threes, config(tmp_path), questions(), span_reward_funcs=fields)


@pytest.mark.matrix
def test_a_function_that_fails_on_one_rank_ends_the_run_on_both(tiny_model, tmp_path):
    options = ("max_steps=1", "per_device_train_batch_size=6", "spans=['out_of_the_text_on_the_last_rank', 'halves']")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.credit_functions", tiny_model, tmp_path, "Watching", *options)
    assert ranks[0]["error"] == ranks[1]["error"]
    kind, text = ranks[0]["error"]
    assert kind == "ValueError"
    assert "failed: out_of_the_text_on_the_last_rank, row 0: the place" in text and "(on rank 1)" in text
