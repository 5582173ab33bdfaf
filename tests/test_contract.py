"""Each private thing of TRL that this package touches, by name and shape.

A TRL upgrade that moves one fails here first. What to do then: read the new source of the named thing, mend the
override in `tempo_trl/trainers/`, and only then this file and the range in setup.cfg.
"""

import inspect
import re
from collections import deque
from dataclasses import fields

import pytest
import torch
from transformers import Trainer, TrainingArguments
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer
from trl.trainer.utils import RepeatSampler, add_fused_lm_head

from tempo_trl.trainers.reward_functions import refuse_reserved_metrics

from .trainers.recording import config, parity, train

# Of GRPOConfig, beyond those of TrainingArguments.
FIELDS = """
    beta cache_implementation cast_lm_head_to_fp32 chat_template_kwargs delta disable_dropout
    ds3_gather_for_generation entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target
    epsilon epsilon_high generation_batch_size generation_kwargs importance_sampling_level log_completions
    log_completions_hub_repo log_multimodal log_unique_prompts loss_type mask_truncated_completions
    max_completion_length max_tool_calling_iterations min_p model_init_kwargs multi_objective_aggregation
    num_completions_to_print num_generations num_generations_eval num_iterations off_policy_mask_threshold
    pad_to_multiple_of ref_model_mixup_alpha ref_model_sync_steps repetition_penalty reward_weights
    router_aux_loss_coef sapo_temperature_neg sapo_temperature_pos scale_rewards shuffle_dataset
    steps_per_generation sync_ref_model temperature top_entropy_quantile top_k top_p
    transformers_continuous_batching_config trust_remote_code use_adaptive_entropy use_bias_correction_kl
    use_transformers_continuous_batching use_transformers_paged use_vllm vespo_k_neg vespo_k_pos vespo_lambda_neg
    vespo_lambda_pos vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length vllm_mode
    vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
    vllm_structured_outputs_regex vllm_tensor_parallel_size
"""

OVERRIDDEN = {
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_compute_loss": ["self", "model", "inputs"],
    "_tokenize_prompts": ["self", "prompts"],
    "_generate": ["self", "prompts"],
    "_get_tool_suffix_ids": ["self", "tool_messages"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_save_rng_state": ["self", "output_dir"],
    "log": ["self", "logs", "start_time"],
    "_generate_single_turn": [
        "self",
        "prompt_ids",
        "images",
        "multimodal_fields",
        "num_generations",
        "has_tool_images",
    ],
    "_tool_call_loop": [
        "self",
        "prompts",
        "prompt_ids",
        "completion_ids",
        "completions",
        "logprobs",
        "images",
        "multimodal_fields",
    ],
    "get_off_policy_mask": [
        "advantages",
        "per_token_logps",
        "sampling_per_token_logps",
        "mask",
        "off_policy_threshold",
    ],
}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_the_methods_we_wrap_have_the_signature_we_wrap(name):
    assert hasattr(GRPOTrainer, name), f"GRPOTrainer.{name} is gone: TEMPOTrainer wraps it"
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)
    assert parameters == OVERRIDDEN[name], f"GRPOTrainer.{name} takes {parameters} now: see TEMPOTrainer.{name}"


def test_each_turn_of_a_tool_call_loop_is_one_call_of_generate_single_turn():
    loop = inspect.getsource(GRPOTrainer._tool_call_loop)
    assert loop.count("self._generate_single_turn(") == 1, "environments' own keys are read before each such call"
    assert "self._tool_call_loop(\n" in inspect.getsource(GRPOTrainer._generate)
    assert "completions[idx_with_tool].append(tool_message)" in loop, "a row with a new answer at its end is in play"
    assert "del completions[idx_with_tool][completions_len_before[idx] :]" in loop, "... and not if it was too long"
    assert "self.environments" in inspect.getsource(GRPOTrainer._generate_and_score_completions)
    constructor = inspect.getsource(GRPOTrainer.__init__)
    assert "self.tools = " in constructor and "self.environments = None" in constructor
    assert "prepare_deepspeed(reward_func, self.accelerator)" in constructor, "step_rewards.py prepares models so, too"


def test_span_rewards_are_judged_where_trl_computes_its_rewards():
    scoring = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert scoring.count("self._calculate_rewards(inputs, prompts, completions, completion_ids_list)") == 1
    constructor = inspect.getsource(GRPOTrainer.__init__)
    for owned in ("reward_funcs", "reward_func_names", "reward_processing_classes"):
        # drop_first_reward removes the stand-in, which stands before the rewards of environments
        assert f"self.{owned}.append(" in constructor, f"{owned} of environments are no longer added at the end"
    assert "self.reward_weights = torch.cat([self.reward_weights, torch.ones(1)])" in constructor


def test_the_table_of_completions_is_printed_by_the_function_that_we_replace():
    assert "print_prompt_completions_sample(" in inspect.getsource(GRPOTrainer.log)
    parameters = list(inspect.signature(grpo_trainer.print_prompt_completions_sample).parameters)
    assert parameters[:2] == ["prompts", "completions"] and "extra" in parameters


def test_what_a_model_wrote_is_parsed_by_the_function_that_we_replace():
    for method, calls in ((GRPOTrainer._generate, 1), (GRPOTrainer._tool_call_loop, 1)):
        assert inspect.getsource(method).count("parse_response(") == calls, "RunTrainer._generate replaces it"
    assert "= self._generate(prompts)" in inspect.getsource(GRPOTrainer._generate_and_score_completions)


def test_the_loop_of_async_functions_is_an_attribute_that_we_share():
    assert "self.async_loop_thread, self.async_loop, self" in inspect.getsource(GRPOTrainer.__init__)
    assert "self.async_loop)" in inspect.getsource(GRPOTrainer._calculate_rewards)


def test_every_metric_that_trl_logs_is_reserved():
    source = inspect.getsource(grpo_trainer)
    names = set(re.findall(r'self\._metrics\[(?:mode|"train")\]\["(.+?)"\]', source))
    assert len(names) > 20
    for name in names:
        with pytest.raises(ValueError, match="log_metric"):
            refuse_reserved_metrics([name])
    assert "self._pending_metrics[name]" in source and "self._pending_extra_logs[column]" in source


def test_the_accelerator_is_made_by_a_method_of_trainers_that_we_wrap():
    parameters = list(inspect.signature(Trainer.create_accelerator_and_postprocess).parameters)
    assert parameters == ["self"], "RunTrainer wraps it, to set FSDP2's policy before any model is prepared"


def test_an_epoch_is_a_method_that_asks_for_the_end_after_each_step():
    loop = inspect.getsource(Trainer._inner_training_loop)
    assert loop.count("self._run_epoch(") == 1, "RunTrainer skips it where a run is resumed at its end"
    for name in ("train_dataloader", "epoch", "epochs_trained", "steps_trained_in_current_epoch"):
        assert f" {name}={name}," in loop, f"RunTrainer._run_epoch reads {name}"
    assert "self.state.max_steps" not in loop[loop.index("for epoch in range") :], "the override may not be needed"


def test_the_sampler_draws_an_epochs_order_when_its_iteration_begins_from_a_generator_of_its_own():
    sampler = RepeatSampler(range(20), mini_repeat_count=1, batch_size=20, seed=0)
    orders = [list(sampler), list(sampler)]
    assert orders[0] != orders[1], "no generator any more: RunTrainer._run_epoch need not draw them"
    again = RepeatSampler(range(20), mini_repeat_count=1, batch_size=20, seed=0)
    next(iter(again))
    assert list(again) == orders[1], "RunTrainer._run_epoch skips an epoch by beginning it"


def test_the_off_policy_mask_is_static_and_called_through_self():
    assert isinstance(inspect.getattr_static(GRPOTrainer, "get_off_policy_mask"), staticmethod)
    assert "self.get_off_policy_mask(" in inspect.getsource(GRPOTrainer._compute_loss)


def test_the_loss_takes_one_forward_pass_before_it_reads_the_old_logps():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    forward = "self._get_per_token_logps_and_entropies("
    assert source.count(forward) == 1, "GSPO-token replaces old_per_token_logps during the one forward of the loss"
    assert source.index(forward) < source.index('inputs.get("old_per_token_logps")')
    assert 'self.importance_sampling_level == "token"' in source


def test_a_row_s_loss_depends_on_its_own_logps_and_its_advantage_times_a_finite_factor():
    """`skip_zero_advantages` gives TRL constants for rows without an advantage, in the first two results."""
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert "per_token_logps, entropies, aux_loss = self._get_per_token_logps_and_entropies(" in source
    gradients = {"self.beta", "self._entropy_bonus_enabled", "self.top_entropy_quantile", "self.aux_loss_enabled"}
    asked = set(re.findall(r"if (self\.\w+)", source)) - {"self.loss_type", "self.importance_sampling_level"}
    known = gradients | {"self.off_policy_mask_threshold", "self.use_vllm", "self.model", "self.args"}
    known |= {
        "self.use_adaptive_entropy",
        "self._entropy_window_stats",
        "self._last_world_entropy",
        "self.accelerator",
    }
    assert asked <= known, "a part of the loss is new: does it train rows without an advantage?"


def test_the_head_scores_the_last_hidden_state_that_leaves_the_base_model_as_a_module():
    source = inspect.getsource(add_fused_lm_head)
    assert 'backbone_attr = "base_model"' in source
    assert "backbone_outputs = getattr(self, backbone_attr)(*args, **kwargs)" in source, "critic.py hooks this call"
    used = re.findall(r"= backbone_outputs\.last_hidden_state.*", source)
    assert used == ["= backbone_outputs.last_hidden_state[:, :-1]", "= backbone_outputs.last_hidden_state"]


def test_the_loss_reads_the_old_logps_for_the_ratio_and_the_off_policy_mask_alone():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    used = [line.strip() for line in source.splitlines() if re.search(r"[^_]old_per_token_logps\b", line)]
    used = [line for line in used if not line.startswith("#")]
    assert used == [
        'old_per_token_logps = inputs.get("old_per_token_logps")',
        "old_per_token_logps = per_token_logps.detach() if old_per_token_logps is None else old_per_token_logps",
        'sampling_per_token_logps = inputs.get("sampling_per_token_logps", old_per_token_logps)',
        "log_ratio = per_token_logps - old_per_token_logps",
    ], "GRPOLambdaTrainer replaces the old log-probabilities by what makes this log_ratio the traced one"
    assert source.count('inputs.get("sampling_per_token_logps"') == 1, "... and hands the mask the plain ones by it"


def test_the_losses_without_a_gradient_through_the_ratio_are_those_that_epsilon_trace_refuses():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert "clamped_ratios = torch.clamp(coef_1, max=self.epsilon_high).detach()" in source
    assert "per_token_kl = per_token_kl * coef_1" in source, "use_bias_correction_kl: see GRPOLambdaConfig"
    losses = set(re.findall(r'"(\w+)"', "".join(re.findall(r"self\.loss_type (?:==|in) (.*):", source))))
    assert losses == {"grpo", "bnpo", "dr_grpo", "dapo", "luspo", "sapo", "cispo", "vespo"}, "a loss is new or gone"


def test_the_configuration_has_no_field_that_nobody_has_decided_on():
    own, theirs = ({field.name for field in fields(cls)} for cls in (GRPOConfig, TrainingArguments))
    assert own - theirs == set(FIELDS.split()), "test a new field in test_features.py, or refuse it"


def test_epsilon_high_and_the_batch_geometry_are_fields_of_the_config(tmp_path):
    assert config(tmp_path, GRPOConfig).epsilon_high is None, "TRL has a default of its own now: see TEMPOConfig"
    for name in ("steps_per_generation", "num_iterations", "importance_sampling_level", "generation_kwargs"):
        assert name in GRPOConfig.__dataclass_fields__, f"GRPOConfig.{name} is gone"
    assert "use_bias_correction_kl" in GRPOConfig.__dataclass_fields__, "see GRPOLambdaConfig"
    assert (config(tmp_path, GRPOConfig).beta, config(tmp_path, GRPOConfig).loss_type) == (0.0, "dapo")


class SeenByASubclass(GRPOTrainer):
    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self.seen_ids, self.seen_rewards = completion_ids_list, rewards
        return rewards

    def _generate_and_score_completions(self, inputs):
        self.logged_before = len(self._logs["advantages"])
        output = super()._generate_and_score_completions(inputs)
        self.seen_output, self.seen_rows = output, len(inputs)
        return output

    def _compute_loss(self, model, inputs):
        self.seen_inputs = inputs
        return super()._compute_loss(model, inputs)


@pytest.fixture(scope="module")
def stock(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    options = {"num_iterations": 2, "max_steps": 1, "config_cls": GRPOConfig}
    return train(tiny_model, folder, SeenByASubclass, reward_funcs=[parity], **options)


def test_rewards_are_scored_on_unpadded_ids_and_returned_for_all_ranks(stock):
    assert isinstance(stock.seen_ids[0], list)
    assert len({len(ids) for ids in stock.seen_ids}) > 1
    assert stock.seen_rewards.shape == (stock.seen_rows, 1)


def test_the_scored_batch_is_a_dict_of_padded_tensors_with_scalar_advantages(stock):
    output, rows = stock.seen_output, stock.seen_rows
    width = max(map(len, stock.seen_ids))
    assert output["completion_ids"].shape == output["completion_mask"].shape == (rows, width)
    assert output["advantages"].shape == (rows,)
    assert output["old_per_token_logps"].shape == (rows, width)
    for row, ids in zip(output["completion_ids"], stock.seen_ids, strict=True):
        assert row[: len(ids)].tolist() == ids
    assert {"prompt_ids", "prompt_mask", "num_items_in_batch"} <= output.keys()


def test_an_environment_s_observation_is_in_the_prompts_that_rewards_see_and_in_their_ids(stock):
    assert stock.environments is None, "who has environments is asked here"
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    shown, generated, scored = (
        source.index(step)
        for step in ("environment.reset(", "self._generate(prompts)", "_calculate_rewards(inputs, prompts,")
    )
    assert shown < generated < scored, "prompts that differ in a group would share a tree"
    output = stock.seen_output
    assert (
        output["prompt_ids"].shape == output["prompt_mask"].shape == (stock.seen_rows, output["prompt_ids"].shape[1])
    )


def test_extra_keys_of_the_batch_reach_the_loss_row_by_row(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=4, max_steps=1)
    batches = trainer._buffered_inputs
    assert [batch["outcome"].shape for batch in batches] == [(4,), (4,)]
    rows = {tuple(row) for batch in batches for row in batch["advantages"].tolist()}
    assert rows == {tuple(row) for row in trainer.batches[0].output["advantages"].tolist()}


def test_metrics_and_the_completions_table_are_where_we_write_to(stock):
    assert stock._metrics["train"] is not None
    assert stock._metrics["eval"] is not None
    assert isinstance(stock._logs["advantages"], deque)
    assert len(stock._logs["advantages"]) - stock.logged_before == stock.seen_rows
    assert stock._logs["extra"]["a new column"].maxlen == stock._logs["advantages"].maxlen


def test_the_trainer_has_the_attributes_we_read(stock):
    for name in ("num_generations", "num_generations_eval", "importance_sampling_level", "model", "accelerator"):
        assert hasattr(stock, name), f"GRPOTrainer.{name} is gone"
    for name in ("eos_token_ids", "use_vllm", "rollout_func", "reward_func_names", "reward_weights", "_tokenizer"):
        assert hasattr(stock, name), f"GRPOTrainer.{name} is gone: see trainers/checks.py and faults.py"
    assert {"_tag_names", "_name", "_paper"} <= vars(GRPOTrainer).keys()


def test_trls_standard_deviation_is_ours(stock):
    from trl.trainer.utils import nanstd

    from tempo_trl.credit.advantages import EPSILON, outcome_advantages

    rewards = torch.tensor([0.0, 1.0, 0.25, torch.nan, 2.0, 2.5, 1.0, 0.0])
    groups = rewards.view(2, 4)
    expected = (groups - groups.nanmean(1, keepdim=True)) / (nanstd(groups, dim=1).unsqueeze(1) + EPSILON)
    ours = outcome_advantages(rewards, 4).float().view(2, 4)
    torch.testing.assert_close(ours, expected, equal_nan=True)
    assert "+ 1e-4)" in inspect.getsource(GRPOTrainer._generate_and_score_completions)


def test_log_writes_the_completions_by_pandas_when_the_metrics_are_logged_and_cleared():
    source = inspect.getsource(GRPOTrainer.log)
    assert source.index("super().log(") < source.index("_metrics[mode].clear()") < source.index(".to_parquet(")
    assert source.count(".to_parquet(") == 1, "see faults.surviving_table"
    assert 'f"completions_{self.state.global_step:05d}.parquet"' in source


def test_the_state_that_makes_a_checkpoint_whole_is_written_after_the_generators():
    source = inspect.getsource(Trainer._save_checkpoint)
    assert "run_dir = self._get_output_dir(trial=trial)" in source, "see RunTrainer._save_checkpoint"
    assert source.index("self._save_rng_state(") < source.index("self.state.save_to_json(")


def test_the_reference_model_that_follows_the_policy_is_the_attribute():
    source = inspect.getsource(GRPOTrainer.__init__)
    assert "SyncRefModelCallback(ref_model=self.ref_model" in source, "see RunTrainer._save_checkpoint"


def test_prompts_are_tokenized_once_a_batch_into_unpadded_ids(stock):
    assert inspect.getsource(GRPOTrainer).count("self._tokenize_prompts(") == 1
    prompt_ids, *_ = stock._tokenize_prompts(["a", "bcd"])
    assert [len(ids) for ids in prompt_ids] == [1, 3]
