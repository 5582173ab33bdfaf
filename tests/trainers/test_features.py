"""Every GRPO feature, a few real steps each: the advantages that train are those of `credit/` on the same ids."""

import math
from itertools import cycle

import pytest
import torch
from datasets import IterableDataset
from transformers import Qwen3ForSequenceClassification

from tempo_trl.credit import prefix_values, td_errors, tempo_advantages

from ..tiny import tiny_model_config, tiny_tokenizer
from .agents import Rooms, scripted
from .recording import RecordingTrainer, parity, picky, questions, rolled_out, share_of_threes, train

pytestmark = pytest.mark.matrix


def from_credit(trainer, batch) -> torch.Tensor:
    """What `credit/` makes of a recorded batch, from its rewards alone."""
    args, rewards = trainer.args, batch.rewards_per_func
    summed = (rewards * trainer.reward_weights).nansum(dim=1).masked_fill(rewards.isnan().all(dim=1), math.nan)
    ids, lengths = padded(batch)
    num_generations = trainer.num_generations if batch.training else trainer.num_generations_eval
    return tempo_advantages(
        ids, lengths, summed, num_generations, scale_rewards=args.scale_rewards, td_coef=args.td_coef
    )


def padded(batch) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(ids) for ids in batch.completion_ids])
    ids = torch.full(batch.output["completion_ids"].shape, 7)
    for row, tokens in zip(ids, batch.completion_ids, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    return ids, lengths


def check_credit(trainer, batches=None):
    batches = batches or trainer.batches
    assert batches
    for batch in batches:
        torch.testing.assert_close(batch.output["advantages"], from_credit(trainer, batch), rtol=1e-4, atol=1e-5)
    assert any((b.output["advantages"] - b.output["outcome"][:, None]).any() for b in batches if b.training)


LOSSES = [{"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "dapo", "sapo", "vespo")]
LOSSES += [{"loss_type": "cispo", "epsilon_high": 5.0}]
LOSSES += [{"loss_type": "luspo", "importance_sampling_level": "sequence"}]
FEATURES = {
    "sequence_level_importance": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "steps_per_generation": {"steps_per_generation": 2, "per_device_train_batch_size": 4},
    "num_iterations": {"num_iterations": 2, "max_steps": 4},
    "gradient_accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "two_updates_a_generation": {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2},
    "two_sided_clipping": {"delta": 2.0, "loss_type": "grpo"},
    "beta": {"beta": 0.1},
    "scale_batch": {"scale_rewards": "batch"},
    "scale_none": {"scale_rewards": "none"},
    "scale_bool": {"scale_rewards": False},
    "td_coef_half": {"td_coef": 0.5},
    "mask_truncated_completions": {"mask_truncated_completions": True, "max_completion_length": 5},
    "top_entropy_quantile": {"top_entropy_quantile": 0.2},
    "entropy_coef": {"entropy_coef": 0.01},
    "adaptive_entropy": {"use_adaptive_entropy": True},
    "off_policy_mask": {"off_policy_mask_threshold": 1e-4, "num_iterations": 2, "loss_type": "grpo"},
    "pad_to_multiple_of": {"pad_to_multiple_of": 16},
    "bf16": {"bf16": True},
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "group_of_two": {"num_generations": 2},
}
# Each feature with one loss, and each loss with two features or more.
CONFIGURATIONS = {name: loss | options for (name, options), loss in zip(FEATURES.items(), cycle(LOSSES), strict=False)}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_advantages_that_train_are_those_of_credit(name, tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, **CONFIGURATIONS[name])
    check_credit(trainer)
    assert trainer.state.global_step == trainer.args.max_steps


def test_several_weighted_rewards_of_which_some_are_none(tiny_model, tmp_path):
    rewards = [share_of_threes, picky]
    check_credit(train(tiny_model, tmp_path, reward_funcs=rewards, reward_weights=[0.7, 2.0]))


def test_completions_that_no_function_scores_train_nothing(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, reward_funcs=picky, max_steps=4)
    check_credit(trainer)
    unscorable = [row for b in trainer.batches for row in b.output["advantages"][b.rewards_per_func[:, 0].isnan()]]
    assert unscorable
    assert not any(row.any() for row in unscorable)


def test_normalize_then_sum_spreads_trls_own_scalar(tiny_model, tmp_path):
    rewards = [share_of_threes, parity]
    trainer = train(tiny_model, tmp_path, reward_funcs=rewards, multi_objective_aggregation="normalize_then_sum")
    for batch in trainer.batches:
        ids, lengths = padded(batch)
        outcome = batch.output["outcome"]
        expected = outcome[:, None] + td_errors(prefix_values(ids, lengths, outcome, 4), lengths)
        inside = torch.arange(ids.shape[1]) < lengths[:, None]
        torch.testing.assert_close(batch.output["advantages"], expected * inside)


@pytest.mark.parametrize("num_generations_eval", [1, 2, None])
def test_evaluation(num_generations_eval, tiny_model, tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "max_steps": 2}
    trainer = train(
        tiny_model,
        tmp_path,
        num_generations_eval=num_generations_eval,
        trainer={"eval_dataset": questions(3)},
        **options,
    )
    evaluated = [batch for batch in trainer.batches if not batch.training]
    check_credit(trainer, trainer.batches)
    assert sum(len(batch.completion_ids) for batch in evaluated) == 3 * (num_generations_eval or 4)
    logged = next(entry for entry in trainer.state.log_history if "eval_reward" in entry)
    assert (logged["eval_tempo/branch_tokens"] > 0) == (num_generations_eval != 1)
    if num_generations_eval == 1:
        assert not any(batch.output["advantages"].any() for batch in evaluated)
        trees = {"branch_nodes", "branch_depth", "shared_prefix", "unique_tokens", "duplicates", "frac_zero_std"}
        assert not {f"eval_tempo/{name}" for name in trees} & logged.keys()


def test_conversational_prompts_with_template_options(tiny_model, tmp_path):
    options = {"chat_template_kwargs": {"enable_thinking": False}}
    check_credit(train(tiny_model, tmp_path, dataset=questions(conversational=True), **options))


def test_tools_that_are_functions(tiny_model, tmp_path):
    options = {"dataset": questions(conversational=True), "max_completion_length": 400, "max_steps": 1}
    options |= {"reward_funcs": share_of_threes, "trainer": {"tools": [Rooms().open]}}
    trainer = train(tiny_model, tmp_path, scripted(RecordingTrainer), **options)
    check_credit(trainer)
    assert trainer.state.log_history[0]["tools/call_frequency"] == 9 / 4  # of the four scripts


def test_reward_models_by_path_and_as_objects_with_a_tokenizer(tiny_model, tmp_path):
    folder, tokenizer = str(tmp_path / "reward"), tiny_tokenizer()
    model_config = tiny_model_config(len(tokenizer), num_labels=1, pad_token_id=tokenizer.pad_token_id)
    model = Qwen3ForSequenceClassification(model_config)
    for each in (model, tokenizer):
        each.save_pretrained(folder)
    keywords = {"reward_processing_classes": [None, tokenizer]}
    trainer = train(tiny_model, tmp_path, reward_funcs=[folder, model], trainer=keywords)
    check_credit(trainer)
    assert all(torch.equal(*batch.rewards_per_func.T) for batch in trainer.batches)


def test_iterable_datasets(tiny_model, tmp_path):
    stream = IterableDataset.from_generator(lambda: iter(questions()))
    check_credit(train(tiny_model, tmp_path, dataset=stream))


def test_continuous_batching_leaves_an_evaluation_an_evaluation(tiny_model, tmp_path):
    """TRL's generation ends in training mode; what is scored after it would train, on rows of the evaluation."""
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    trainer = train(
        tiny_model,
        tmp_path,
        use_transformers_continuous_batching=True,
        transformers_continuous_batching_config={"block_size": 32, "num_blocks": 64, "max_batch_tokens": 512},
        num_generations_eval=2,
        trainer={"eval_dataset": questions(4)},
        **options,
    )
    assert [batch.training for batch in trainer.batches] == [True, False, False, True, False, False]
    check_credit(trainer)
    assert sum("eval_reward" in entry for entry in trainer.state.log_history) == 2


def scripted_rollout(prompts, trainer):
    """Completions with environment tokens (mask 0) in their midst, on which the paths part too."""
    size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
    tails = [[20, 21], [20, 22], [23, 24, 25], [23, 24, 26]]
    completion_ids = [[10, 11, 30 + i % size // 2, *tails[i % size]] for i in range(len(prompts))]
    env_mask = [[1, 1, 0, *[1] * len(tails[i % size])] for i in range(len(prompts))]
    return rolled_out(prompts, trainer, completion_ids, env_mask=env_mask)


def test_rollout_func_tokens_of_the_environment_split_paths_and_are_not_trained_on(tiny_model, tmp_path):
    def last_token(completions, completion_ids, **columns):
        return [float(ids[-1] in (21, 22, 25)) for ids in completion_ids]

    trainer = train(tiny_model, tmp_path, reward_funcs=last_token, trainer={"rollout_func": scripted_rollout})
    batch = trainer.batches[0]
    assert batch.output["tool_mask"][0].tolist()[:3] == [1, 1, 0]
    values = prefix_values(*padded(batch), batch.rewards_per_func[:, 0], 4)
    assert values[0].tolist() == [0.75, 0.75, 0.75, 1.0, 1.0, 1.0, 1.0]  # the environment's token decided
    assert values[2].tolist() == [0.75, 0.75, 0.75, 0.5, 0.5, 0.5, 1.0]
    check_credit(trainer)
    # Of the 4 + 4 + 5 + 5 tokens that the model wrote, the last ones of rows 2 and 3 have a TD error.
    assert trainer.state.log_history[0]["tempo/branch_tokens"] == pytest.approx(2 / 18)


def test_the_model_card_names_tempo_and_its_paper(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, max_steps=1)
    trainer.create_model_card(model_name="tiny-tempo")
    card = (tmp_path / "README.md").read_text()
    header = card.split("---")[1]
    assert {"- trl", "- tempo"} <= set(header.splitlines())
    assert "https://huggingface.co/papers/2509.18314" in card
    assert "tran2025exploiting" in card
