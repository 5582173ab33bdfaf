"""What a run leaves in its logs: metrics, and the table of completions beside the batch it belongs to."""

import pandas as pd
import pytest
import torch

from .recording import parity, questions, rolled_out, share_of_threes, train


def scripted(prompts, trainer):
    """The hand-worked group of the README for every prompt, a character a token."""
    answers = ["7+5=2;2-3=9#9", "7+5=2;2-3=8#8", "7+5=3;3-3=0#0", "7+5=2;2-3=9#9"]
    encode = trainer.processing_class.encode
    return rolled_out(prompts, trainer, [encode(answers[i % 4]) for i in range(len(prompts))])


def nine(completions, **columns) -> list[float]:
    return [float(completion.endswith("#9")) for completion in completions]


def test_metrics_of_the_hand_worked_group(tiny_model, tmp_path):
    options = {"reward_funcs": nine, "trainer": {"rollout_func": scripted}, "scale_rewards": "none", "max_steps": 1}
    logged = train(tiny_model, tmp_path, **options).state.log_history[0]
    td = 3 * (2 / 3 - 1 / 2) + 1 / 2 + 2 * (1 - 2 / 3) + 2 / 3  # the TD errors of a group, see tests/credit
    outcome = 4 * 13 * 1 / 2
    expected = {
        "added_share": td / (td + outcome),
        "branch_tokens": 7 / 52,
        "branch_nodes": 2,
        "branch_depth": (4 + 10) / 2,
        "shared_prefix": (13 + 10 + 4 + 13) / 4,
        "unique_tokens": (13 + 3 + 9) / 52,
        "duplicates": 1 / 4,
        "frac_zero_std": 0,
        "turns": 1,
        "shared_states": 0,  # nothing is observed after the prompt
        # Only the two that are alike earn alike beyond what their groups do: C is capped at 0.98 of the variance.
        "prefix_r2": (0.98 + 0 + 0 + 0.98) / 4,
    }
    assert {key.removeprefix("tempo/") for key in logged if key.startswith("tempo/")} == expected.keys()
    for name, value in expected.items():
        assert logged[f"tempo/{name}"] == pytest.approx(value, rel=1e-5), name


def mean_advantages(output: dict) -> torch.Tensor:
    """Of each completion, over its tokens in the loss."""
    mask = output["completion_mask"]
    return (output["advantages"].view(len(mask), -1) * mask).sum(1) / mask.sum(1).clamp(min=1)


def test_the_metrics_see_the_td_errors_also_where_their_coefficient_is_zero(tiny_model, tmp_path):
    options = {"reward_funcs": nine, "trainer": {"rollout_func": scripted}, "max_steps": 1}
    shares = [train(tiny_model, tmp_path, td_coef=c, **options).state.log_history[0] for c in (0.0, 1.0, 2.0)]
    assert len({round(logged["tempo/added_share"], 5) for logged in shares}) == 1
    assert len({round(logged["tempo/branch_tokens"], 5) for logged in shares}) == 1


@pytest.mark.parametrize("td_coef", [0.0, 1.0])
def test_the_table_shows_what_trains_beside_its_own_completion(td_coef, tiny_model, tmp_path):
    trainer = train(
        tiny_model,
        tmp_path,
        reward_funcs=share_of_threes,
        td_coef=td_coef,
        log_completions=True,
        num_completions_to_print=1,
        mask_truncated_completions=True,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=4,
        trainer={"eval_dataset": questions(1)},
    )
    tokenizer = trainer.processing_class
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    batch = trainer.batches[0]
    assert table["completion"].tolist() == tokenizer.batch_decode(batch.completion_ids, skip_special_tokens=True)
    torch.testing.assert_close(torch.tensor(table["advantage"]).float(), mean_advantages(batch.output))
    assert table["added_share"].between(0, 1).all()
    assert (table["branch_tokens"] > 0).any()
    assert len(table) == len(batch.completion_ids)

    # TRL writes evaluation over the training table of the same step; either way a row stays whole.
    after_eval = pd.read_parquet(tmp_path / "completions" / "completions_00002.parquet")
    evaluated = next(b for b in trainer.batches if not b.training)
    assert after_eval["completion"].tolist()[-4:] == tokenizer.batch_decode(
        evaluated.completion_ids, skip_special_tokens=True
    )
    last = torch.tensor(after_eval["advantage"][-4:].to_numpy()).float()
    torch.testing.assert_close(last, mean_advantages(evaluated.output))


def test_a_table_smaller_than_the_batch_keeps_its_last_rows(tiny_model, tmp_path):
    trainer = train(
        tiny_model,
        tmp_path,
        reward_funcs=parity,
        max_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=16,
        trainer={"eval_dataset": questions(4)},
    )
    last = torch.tensor(list(trainer._logs["advantages"]))
    torch.testing.assert_close(last, mean_advantages(trainer.batches[-1].output)[-8:])
