"""Grown trees inside TRL's trainer: its completions are the tree's, its weights the sampler's, and what is refused."""

from contextlib import nullcontext
from string import ascii_letters

import pytest
import torch
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from tempo_trl import TEMPOTrainer
from tempo_trl.rollout.completion_rules import end_token_ids, rules_of
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.growth import grow
from tempo_trl.rollout.tree_requirements import check_trees_can_grow
from tempo_trl.rollout.tree_rollout import TreeRollout

from ..tiny import tiny_tokenizer
from ..trainers.recording import Recording, config, moved, parity, questions
from ..tree_forward.models import model_of
from .naive import NaiveGreedySampler, assert_same_trees
from .rank import GROWERS, take_the_likeliest

pytestmark = [pytest.mark.matrix, pytest.mark.both_stacks]


class RecordingGRPO(Recording, GRPOTrainer):
    pass


def build(model, folder, rollout, cls=RecordingGRPO, conversational=False, trainer=None, **overrides):
    args = config(folder, GRPOConfig, **({"max_steps": 2} | overrides))
    dataset = questions(conversational=conversational)
    return cls(model, parity, args, dataset, rollout_func=rollout, **(trainer or {}))


@pytest.mark.parametrize(("conversational", "checkpointing"), [(False, True), (True, False)], ids=["text", "messages"])
@pytest.mark.parametrize("name", GROWERS)
def test_plain_grpo_trains_on_the_completions_of_the_trees(name, conversational, checkpointing, tiny_model, tmp_path):
    rollout = TreeRollout(GROWERS[name])
    options = {"conversational": conversational, "gradient_checkpointing": checkpointing}
    trainer = build(tiny_model, tmp_path, rollout, **options)
    trainer.train()
    assert len(trainer.batches) == 2
    for batch in trainer.batches:
        assert batch.completion_ids == [tree.completion_ids(leaf) for tree in batch.trees for leaf in tree.rows]
        assert [len(tree.rows) for tree in batch.trees] == [4, 4]
    assert moved(trainer, tiny_model)


@pytest.mark.parametrize("weights", ["full", "lora"])
@pytest.mark.parametrize("name", GROWERS)
def test_trees_grow_from_the_weights_of_that_step(name, weights, tiny_model, tmp_path):
    class Learning(RecordingGRPO):
        def _generate(self, prompts):
            state = self.model.state_dict()
            self.steps.append((prompts[::4], {name: tensor.clone() for name, tensor in state.items()}))
            if self.state.global_step == 1:
                take_the_likeliest(self)
            return super()._generate(prompts)

        steps = []

    rollout = TreeRollout(GROWERS[name])
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "o_proj"], init_lora_weights=False)
    extra = {"trainer": {"peft_config": lora}} if weights == "lora" else {}
    large = {"top_k": 0, "learning_rate": 1.0, "optim": "adamw_torch", "lr_scheduler_type": "constant"}
    trainer = build(tiny_model, tmp_path, rollout, Learning, **large, **extra)
    trainer.train()

    def greedy_trees(step: int):
        trainer.model.load_state_dict(trainer.steps[step][1])
        prompts = [trainer._tokenizer(prompt)["input_ids"] for prompt in trainer.steps[1][0]]
        oracle = NaiveGreedySampler(trainer.model, trainer.eos_token_ids)
        return grow(GROWERS[name], prompts, rules_of(trainer), oracle)

    trees = trainer.batches[1].trees
    assert_same_trees(trees, greedy_trees(1))
    old = greedy_trees(0)
    assert [segment.token_ids for segment in trees[0].segments] != [segment.token_ids for segment in old[0].segments]


@pytest.mark.parametrize(("given", "added"), [(None, set()), (7, {7}), ([7, 8], {7, 8})])
def test_completions_end_where_generation_kwargs_end_them_too(given, added, tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, TreeRollout(GROWERS["entropy"]), generation_kwargs={"eos_token_id": given})
    rules = rules_of(trainer)
    assert {*rules.eos_token_ids} == {*trainer.eos_token_ids} | added
    assert all(rules.is_over([5, token]) for token in added)


@pytest.mark.parametrize(("given", "ends"), [({"stop_token_ids": [7]}, {7}), ({"ignore_eos": True}, None)])
def test_so_they_do_on_a_server(given, ends, tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, TreeRollout(GROWERS["entropy"]))
    trainer.use_vllm, trainer.args.generation_kwargs = True, given
    assert end_token_ids(trainer) == (set() if ends is None else {*trainer.eos_token_ids} | ends)


def test_evaluation_samples_independently_as_trl_does(tiny_model, tmp_path):
    def evaluated(rollout):
        torch.manual_seed(5)
        trainer = build(tiny_model, tmp_path, rollout, per_device_eval_batch_size=8, num_generations_eval=2)
        torch.manual_seed(7)
        trainer.evaluate(questions(8))
        return [batch.completion_ids for batch in trainer.batches]

    rollout = TreeRollout(GROWERS["fixed"])
    rollout.trees = ["of an earlier step"]
    assert evaluated(rollout) == evaluated(None)
    assert rollout.trees is None
    assert all(total == (0, 0) for total in rollout.statistics().values())


def test_statistics_are_those_of_the_last_trees():
    from tempo_trl.credit.grown_tree import GrownTree, Segment

    rollout = TreeRollout(FixedTree(2, 2, 2))
    assert set(rollout.statistics()) == set(TreeRollout(GROWERS["entropy"]).statistics())
    segments = [Segment(-1, [1, 2]), Segment(-1, [3]), Segment(0, [4]), Segment(0, [5, 6], forced=True)]
    rollout.trees = [GrownTree(segments, [1, 1, 2, 3])]
    assert rollout.statistics() == {
        "generated_tokens": (6, 1),
        "generated_share": (6, 1 + 1 + 3 + 4),
        "leaves": (3, 1),
        "depth": (1 + 2 + 2, 3),
        "forced_tokens": (1, 1),
        "repeated_rows": (1, 4),
    }


def test_a_rank_with_less_than_whole_groups_is_told_so(tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, TreeRollout(GROWERS["fixed"]))
    trainer.model.train()
    for prompts in (["a"] * 6, ["a"] * 3 + ["b"] * 5):
        with pytest.raises(RuntimeError, match="expected groups of 4 equal prompts"):
            trainer.rollout_func(prompts, trainer)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"max_completion_length": None}, "max_completion_length"),
        ({"num_generations": 2}, "needs num_generations=4, got 2"),
        ({"use_transformers_continuous_batching": True}, "sampled by plain `generate`"),
        ({"generation_kwargs": {"stop_strings": ["x"]}, "mask_truncated_completions": True}, "end at a stop string"),
        ({"use_vllm": True, "vllm_mode": "server", "generation_kwargs": {"presence_penalty": 1}}, "presence_penalty"),
    ],
)
def test_what_cannot_grow_trees_is_refused(overrides, said, tmp_path):
    """More such options are in the tests of `--check`, which asks the same function."""
    with pytest.raises(ValueError, match=said):
        check_trees_can_grow(config(tmp_path, GRPOConfig, **overrides), FixedTree(2, 2, 3))


def test_tools_are_refused_at_the_first_call(tiny_model, tmp_path):
    trainer = build(tiny_model, tmp_path, TreeRollout(GROWERS["fixed"]))
    trainer.tools = [print]
    with pytest.raises(ValueError, match="Tools and environments"):
        trainer.rollout_func(["a"] * 4, trainer)


def test_stop_strings_of_the_configuration_end_completions(tiny_model, tmp_path):
    rollout = TreeRollout(FixedTree(2, 2, 6))
    stops = list(ascii_letters)
    trainer = build(tiny_model, tmp_path, rollout, top_k=0, generation_kwargs={"stop_strings": stops})
    trainer.train()
    completions = [ids for batch in trainer.batches for ids in batch.completion_ids]
    assert any(trainer._tokenizer.decode(ids)[-1] in stops for ids in completions)
    for ids in completions:
        assert not any(stop in trainer._tokenizer.decode(ids[:-1]) for stop in stops)
        assert trainer._tokenizer.pad_token_id not in ids


def test_a_model_whose_cache_has_no_length_or_an_index_is_refused(tmp_path):
    """transformers would give it the whole prefix again, after the state that has already read it, or wrong keys."""
    with pytest.raises(ValueError, match="cannot be continued with layers of linear_attention"):
        build_tempo(model_of("mamba", state_size=8), tmp_path)
    indexed = model_of("qwen3")
    indexed.config.layer_types = ["indexed_attention", "full_attention"]  # which older versions call otherwise
    with pytest.raises(ValueError, match="cannot be continued with layers of full_attention, indexed_attention"):
        build_tempo(indexed, tmp_path)
    build_tempo(model_of("lfm2", layer_types=["conv", "full_attention"]), tmp_path)


@pytest.mark.parametrize("option", [{"min_new_tokens": 4}, {"forced_eos_token_id": 2}, {"num_beams": 2}])
def test_what_the_model_itself_asks_of_generate_is_refused_as_in_the_configuration(option, tmp_path):
    model = model_of("qwen3")
    model.generation_config.update(**option)
    with pytest.raises(ValueError, match=f"got {next(iter(option))} in the model's own `generation_config`"):
        build_tempo(model, tmp_path)


def test_what_files_of_models_have_is_no_such_option(tmp_path):
    model = model_of("qwen3")
    files = {"max_length": 4096, "top_k": 20, "temperature": 0.6, "do_sample": True, "transformers_version": "4.51.0"}
    older = {"_from_model_config": True, "cache_implementation": "static", "num_beams": 1, "chat_format": "chatml"}
    for name, value in (files | older).items():
        setattr(model.generation_config, name, value)
    trainer = build_tempo(model, tmp_path)
    assert len(trainer.rollout_func(["a"] * 4, trainer)["completion_ids"]) == 4
    assert model.generation_config.cache_implementation == "static"


@pytest.mark.parametrize("invoked", [True, False])
def test_an_adapter_that_depends_on_the_whole_row_is_refused(invoked, tmp_path):
    invocation = {"alora_invocation_tokens": [5]} if invoked else {}
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **invocation)
    with pytest.raises(ValueError, match="adapter depends on more than a token") if invoked else nullcontext():
        build_tempo(model_of("qwen3"), tmp_path, peft_config=lora)


def build_tempo(model, folder, **keywords):
    args = config(folder, rollout="fixed", tree_depth=2)
    return TEMPOTrainer(model, parity, args, questions(), processing_class=tiny_tokenizer(), **keywords)
