"""Each private thing of TRL and transformers that grown trees and the critic touch: see test_contract.py."""

import inspect

from transformers import DynamicCache, GenerationConfig, GenerationMixin, Trainer
from trl import GRPOTrainer
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from .trainers.recording import train


def test_a_rollout_func_is_called_with_prompts_and_trainer_before_anything_is_tokenized():
    source = inspect.getsource(GRPOTrainer._generate)
    assert "output = self.rollout_func(prompts, self)" in source, "see TreeRollout.__call__"
    assert 'required_keys = {"prompt_ids", "completion_ids", "logprobs"}' in source
    assert source.index("self.vllm_generation.sync_weights()") < source.index("self.rollout_func(prompts, self)"), (
        "a tree must grow from the weights of the step"
    )


def test_weights_are_sent_within_a_single_turn_through_the_attribute_that_is_watched():
    assert "self.vllm_generation.sync_weights()" in inspect.getsource(GRPOTrainer._generate_single_turn)


def test_trl_warns_of_an_experimental_rollout_func_in_these_words():
    assert "You are using 'rollout_func'" in inspect.getsource(GRPOTrainer.__init__), "RunTrainer silences it"


def test_a_single_turn_without_images_samples_as_trl_does():
    parameters = list(inspect.signature(GRPOTrainer._generate_single_turn).parameters)[1:5]
    assert parameters == ["prompt_ids", "images", "multimodal_fields", "num_generations"], "TreeRollout calls it"


def test_generation_enters_the_contexts_that_the_tree_s_sampler_enters():
    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    regular = source[source.index('profiling_context(self, "transformers.generate")') :]
    for entered in (
        "self.model_wrapped,\n                    self.accelerator,",
        "gather_deepspeed3_params=self.args.ds3_gather_for_generation",
        "generation_kwargs=self.generation_kwargs",
        "gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs",
        "torch.no_grad()",
        "self._dist.summon_full_params(self.model_wrapped, recurse=False)",
    ):
        assert entered in regular, f"{entered} is gone or new: see rollout/transformers_sampler.py"


def test_a_cache_can_be_copied_for_siblings():
    assert hasattr(DynamicCache, "reorder_cache"), "see rollout/transformers_sampler.py"
    assert hasattr(GenerationMixin, "_supports_logits_to_keep"), "see rollout/transformers_sampler.py"


def test_the_server_s_sampling_settings_are_where_the_tree_s_sampler_reads_them():
    source = inspect.getsource(VLLMGeneration)
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "vllm_client"):
        assert f"self.{name} = " in source, f"VLLMGeneration.{name} is gone: see rollout/vllm_sampler.py"
    parameters = inspect.signature(VLLMClient.generate).parameters
    assert {"prompts", "n", "max_tokens", "logprobs", "generation_kwargs"} <= parameters.keys()
    assert '"logprob_token_ids": logprob_token_ids' in inspect.getsource(VLLMClient.generate)


def test_the_loss_counts_its_tokens_by_the_batch_s_own_number_and_mask():
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert "num_items_in_batch = self.accelerator.gather(loss_mask.sum()).sum()" in source, (
        "see token_credit._assign_credit"
    )
    assert 'inputs["num_items_in_batch"]' in inspect.getsource(GRPOTrainer._compute_loss)
    assert 'if "tool_mask" not in inputs else completion_mask * inputs["tool_mask"]' in inspect.getsource(
        GRPOTrainer._compute_loss
    ), "treerpo takes tokens out of the loss by it"


def test_the_trainer_has_the_attributes_that_trees_and_the_critic_read(tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, max_steps=1)
    names = ("_tokenizer", "_dist", "_is_vlm", "tools", "environment_factories", "generation_config", "reward_weights")
    names += ("num_generations_eval", "max_completion_length", "temperature", "is_fsdp_enabled", "eos_token_ids")
    for name in names:
        assert hasattr(trainer, name), f"GRPOTrainer.{name} is gone"


def test_what_the_configuration_leaves_out_generate_takes_from_the_model_and_then_from_transformers_defaults():
    source = inspect.getsource(GenerationMixin._prepare_generation_config)
    of_model, of_all = "update(**self.generation_config.to_dict(), defaults_only=True", "update(**global_defaults, def"
    assert source.index(of_model) < source.index(of_all), "see rollout/tree_requirements.py"
    assert {"num_beams": 1, "min_length": 0}.items() <= GenerationConfig()._get_default_generation_params().items()


def test_the_generators_of_every_rank_are_saved_by_a_method_of_their_own():
    assert list(inspect.signature(Trainer._save_rng_state).parameters) == ["self", "output_dir"]


def test_learned_state_is_loaded_with_the_optimizer_before_a_resumed_run_samples_or_evaluates():
    assert list(inspect.signature(Trainer._load_optimizer_and_scheduler).parameters) == ["self", "checkpoint"]
    assert "self._load_optimizer_and_scheduler(resume_from_checkpoint)" in inspect.getsource(Trainer), (
        "Trainer calls _load_optimizer_and_scheduler elsewhere: see RunTrainer._load_method"
    )


def test_the_critic_begins_with_the_schedule_and_is_saved_with_the_checkpoint():
    assert list(inspect.signature(Trainer.create_scheduler).parameters)[:2] == ["self", "num_training_steps"]
    assert list(inspect.signature(GRPOTrainer._save_checkpoint).parameters) == ["self", "model", "trial"]
    assert list(inspect.signature(GRPOTrainer.training_step).parameters)[1:] == [
        "model",
        "inputs",
        "num_items_in_batch",
    ]


def test_the_critic_steps_when_the_policy_does():
    source = inspect.getsource(Trainer)
    assert "self.accelerator.gradient_state._set_sync_gradients(do_sync_step)" in source, "PPOTrainer._after_backward"
    assert source.index("_set_sync_gradients(do_sync_step)") < source.index("self.training_step(model, inputs")
    assert "self.current_gradient_accumulation_steps" in source


def test_the_critic_reads_what_it_is_made_from():
    from transformers import AutoModelForTokenClassification

    assert AutoModelForTokenClassification._model_mapping, "critic.py asks it for an architecture's critic"
    for name in ("_get_output_dir", "get_decay_parameter_names"):
        assert hasattr(Trainer, name), f"Trainer.{name} is gone: see PPOTrainer and critic.py"
