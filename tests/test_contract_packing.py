"""Each private thing of TRL and transformers that computing on the tree rests on, by name and shape.

What to do when one has moved is said in test_contract.py.
"""

import inspect

import torch
from transformers import AttentionInterface, Qwen3Config
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import FusedCausalLMOutput, add_fused_lm_head, shuffle_sequence_dict

from tempo_trl.tree_forward.tree_attention import IMPLEMENTATION
from tempo_trl.tree_forward.tree_pass import OF_TEXT, TreePass

from .tiny import tiny_model_config
from .tree_forward.models import model_of


def test_the_pass_takes_rows_a_width_and_what_of_images_is_none_without_them():
    parameters = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    names = list(parameters)
    ours = list(inspect.signature(TreePass.logps).parameters)
    by_place = ours[ours.index("model") : ours.index("kwargs")]
    assert names[1 : 1 + len(by_place)] == by_place, "TreePass passes these on by place"
    of_text, of_images = names[1 + len(by_place) :][: len(OF_TEXT)], names[1 + len(by_place) + len(OF_TEXT) :]
    assert tuple(of_text) == OF_TEXT, "TreePass takes what follows for images"
    assert all(parameters[name].default is None for name in of_images)


def test_policy_old_and_reference_log_probabilities_all_go_through_the_pass():
    call = "self._get_per_token_logps_and_entropies("
    assert inspect.getsource(GRPOTrainer._compute_loss).count(call) == 1
    scoring = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert scoring.count(call) == 3  # old; reference model; reference as the model without its adapter
    assert "with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient" in scoring
    assert next(iter(inspect.signature(disable_gradient_checkpointing).parameters)) == "model"


def test_the_pass_runs_the_model_once_a_chunk_with_a_fused_head_under_autocast():
    source = inspect.getsource(GRPOTrainer._get_per_token_logps_and_entropies)
    assert "with self.accelerator.autocast():" in source
    assert "outputs = model(**model_inputs, labels=labels, fused_lm_head=True)" in source
    assert "all_logps.append(outputs.log_probs[:, -logits_to_keep:])" in source
    assert "all_entropies.append(outputs.entropy[:, -logits_to_keep:])" in source


def test_the_fused_head_scores_shifted_labels_as_they_stand_and_nothing_where_there_is_none():
    model = model_of("qwen3")
    logits = model(torch.tensor([[5, 6, 7]])).logits[0].log_softmax(dim=-1)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    output = model(torch.tensor([[5, 6, 7]]), shift_labels=torch.tensor([[9, -100, 8]]), fused_lm_head=True)
    assert isinstance(output, FusedCausalLMOutput)
    expected = torch.stack([logits[0, 9], torch.tensor(0.0), logits[2, 8]])
    torch.testing.assert_close(output.log_probs[0], expected)
    assert output.entropy[0, 1] == 0


def test_a_scored_generation_batch_is_shuffled_by_a_function_of_trls_module_and_then_split():
    source = inspect.getsource(GRPOTrainer._prepare_inputs)
    shuffle, split = "= shuffle_sequence_dict(generation_batch)", "split_tensor_dict(generation_batch, self.args."
    assert source.index("self._generate_and_score_completions(") < source.index(shuffle) < source.index(split), (
        "TRL shuffles elsewhere: see TreePass.prepared"
    )
    shuffled = shuffle_sequence_dict({"row": torch.arange(4), "number": torch.tensor(3), "none": None})
    assert sorted(shuffled["row"].tolist()) == [0, 1, 2, 3]


def test_the_trainer_has_the_attributes_that_the_obstacles_are_read_from():
    source = inspect.getsource(GRPOTrainer)
    for name in ("aux_loss_enabled", "_buffered_inputs", "_step", "num_generations"):
        assert f"self.{name} = " in source, (
            f"GRPOTrainer.{name} is gone: see tree_forward/tree_pass.py and RunTrainer._run_epoch"
        )


def test_transformers_takes_a_mask_of_four_dimensions_as_it_is():
    config = tiny_model_config(20, sliding_window=4, use_sliding_window=True, max_window_layers=0)
    config._attn_implementation = IMPLEMENTATION
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    inputs = {"inputs_embeds": torch.zeros(1, 6, 16), "attention_mask": mask, "past_key_values": None}
    for create in (create_causal_mask, create_sliding_window_causal_mask):
        assert create(config, **inputs, position_ids=torch.tensor([[0, 1, 2, 1, 2, 3]])) is mask
    assert IMPLEMENTATION in AttentionInterface().valid_keys()
    assert Qwen3Config().rope_parameters["rope_type"] == "default"
