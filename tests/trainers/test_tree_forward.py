"""Whole runs on the tree against stock runs; what `auto` leaves and `on` refuses; groups kept together; metrics."""

import warnings
from itertools import pairwise

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from tempo_trl import GRPOLambdaConfig, PPOConfig, PPOTrainer, TEMPOConfig, TEMPOTrainer
from tempo_trl.tree_forward.group_shuffle import keep_groups_together
from tempo_trl.tree_forward.tree_pass import State

from ..tree_forward.models import TreeGRPOConfig, TreeGRPOTrainer, model_of, trainer_of
from .every_method import EVERY_METHOD
from .every_method import trainer_of as trainer_of_method
from .rank_matrix import reward_of, scripted
from .recording import config, questions, train, weights

# SGD is linear in the gradient: Adam would blow up the rounding of sums taken in another order.
SGD = {"optim": "sgd", "learning_rate": 0.1, "max_steps": 4, "max_completion_length": 48, "num_generations": 8}
ACCUMULATED = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 16}
STOCK = ("grpo", "hepo")  # methods on TRL's own trainer
RUNS = {
    "one micro-batch": {"per_device_train_batch_size": 16},
    "two micro-batches of two groups each": ACCUMULATED,
    "half a group a micro-batch": {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4},
    "two iterations with a KL term": ACCUMULATED | {"num_iterations": 2, "beta": 0.1},
    "tokens of high entropy alone": {"per_device_train_batch_size": 16, "top_entropy_quantile": 0.3},
    "an entropy bonus": ACCUMULATED | {"entropy_coef": 0.01},
    "sequence-level importance": ACCUMULATED
    | {"num_iterations": 2, "importance_sampling_level": "sequence", "loss_type": "grpo"},
    "layers computed again": ACCUMULATED | {"gradient_checkpointing": True},
    "truncated completions masked": ACCUMULATED | {"mask_truncated_completions": True},
    "tokens of the environment": ACCUMULATED | {"style": "environment"},
    "evaluation": ACCUMULATED | {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4},
}


def run(cls, config_cls, model, folder, style="plain", lora=False, **options):
    adapters = LoraConfig(r=4, target_modules="all-linear", init_lora_weights="gaussian") if lora else None
    keywords = {"rollout_func": scripted(style), "eval_dataset": questions(4), "peft_config": adapters}
    torch.manual_seed(0)
    return train(model, folder, cls, questions(8), reward_of(style), config_cls, trainer=keywords, **(SGD | options))


def assert_same_run(ours, stock):
    assert ours._tree_state is State.IN_USE
    for name, expected in weights(stock).items():
        torch.testing.assert_close(weights(ours)[name], expected, rtol=1e-5, atol=1e-6)
    for key in ("loss", "entropy", "kl", "grad_norm", "eval_loss", "eval_entropy"):
        theirs = [entry[key] for entry in stock.state.log_history if key in entry]
        # A mean over micro-batches of means over their tokens, in TRL: other rows make other micro-batches.
        assert [entry[key] for entry in ours.state.log_history if key in entry] == pytest.approx(theirs, 5e-3, 1e-5)


@pytest.mark.parametrize("case", RUNS)
def test_a_run_on_the_tree_has_the_weights_of_the_stock_trainer(case, tiny_model, tmp_path):
    stock = run(GRPOTrainer, GRPOConfig, tiny_model, tmp_path / "stock", **RUNS[case])
    ours = run(TreeGRPOTrainer, TreeGRPOConfig, tiny_model, tmp_path / "tree", tree_forward="on", **RUNS[case])
    assert_same_run(ours, stock)
    before = dict(AutoModelForCausalLM.from_pretrained(tiny_model).named_parameters())
    assert all((value - before[name]).abs().max() > 1e-5 for name, value in weights(ours).items() if "embed" in name)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_so_it_is_with_token_credit(lora, tiny_model, tmp_path):
    options = ACCUMULATED | {"num_iterations": 2, "beta": 0.1, "lora": lora}
    plain = run(TEMPOTrainer, TEMPOConfig, tiny_model, tmp_path / "plain", **options)
    ours = run(TEMPOTrainer, TEMPOConfig, tiny_model, tmp_path / "tree", tree_forward="on", **options)
    assert_same_run(ours, plain)


@pytest.mark.parametrize("method", [method for method in EVERY_METHOD if method not in STOCK])
def test_every_method_trains_the_same_on_the_tree(method, tiny_model, tmp_path):
    def trained(folder, **options):
        options |= {"optim": "sgd", "learning_rate": 0.1, "beta": 0.05, "num_iterations": 2, "max_steps": 4}
        trainer = trainer_of_method(method, tiny_model, tmp_path / folder, **options)
        trainer.train()
        return trainer

    plain, ours = trained("plain"), trained("tree", tree_forward="on")
    assert ours._tree_state is State.IN_USE
    for name, expected in weights(plain).items():
        torch.testing.assert_close(weights(ours)[name], expected, rtol=1e-4, atol=1e-5)


# What is not computed on the tree

OBSTACLES = {
    "chunked layers": (lambda: model_of("qwen3", layer_types=["chunked_attention"] * 2), {}, "layers of another kind"),
    "recurrent layers": (lambda: model_of("qwen3_next"), {}, "layers of another kind: linear_attention"),
    "sinks, in eager attention": (lambda: eager("qwen3"), {}, "attends with 'eager'"),
    "soft-capping": (lambda: model_of("qwen3", attn_logit_softcapping=30.0), {}, "caps its attention scores"),
    "dropout": (lambda: model_of("qwen3", attention_dropout=0.1), {}, "share its noise"),
    "positions that are learned": (
        lambda: model_of("gpt2", n_embd=32, n_layer=2),
        {},
        "no rotary positions",
    ),
    "positions that depend on the batch": (
        lambda: model_of("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        {},
        "change with the length of the batch: dynamic",
    ),
    "auxiliary loss": (lambda: model_of("qwen3_moe"), {"router_aux_loss_coef": 0.1}, "auxiliary loss of the router"),
    "dropout of adapters": (
        lambda: model_of("qwen3"),
        {"peft_config": LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)},
        "share its noise",
    ),
    "virtual tokens": (
        lambda: model_of("qwen3"),
        {"peft_config": PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")},
        "puts tokens of its own",
    ),
}


def eager(architecture: str):
    model = model_of(architecture)
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_the_tree_does_not_compute_is_left_with_one_warning_or_refused(name, tmp_path):
    build, options, reason = OBSTACLES[name]
    with pytest.warns(UserWarning, match=f"tree_forward='auto' is off for this run: .*{reason}") as told:
        trainer = trainer_of(build(), tmp_path, tree_forward="auto", **options)
    assert sum("tree_forward" in str(warning.message) for warning in told) == 1
    assert trainer._tree_state is State.OFF
    with pytest.raises(ValueError, match=f"tree_forward='on' cannot be: .*{reason}"):
        trainer_of(build(), tmp_path, tree_forward="on", **options)


def test_a_critic_on_the_policys_hidden_states_is_refused(tiny_model, tmp_path):
    args = config(tmp_path, PPOConfig, shared_trunk=True, tree_forward="on")
    with pytest.raises(ValueError, match="the critic reads the policy's hidden states"):
        PPOTrainer(tiny_model, reward_of("plain"), args, questions())


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_model_that_is_wrong_on_the_tree_is_found_on_the_first_batch(mode, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempo_trl.tree_forward.tree_attention._mask", lambda *sizes: None)
    options = ACCUMULATED | {"tree_forward": mode}
    if mode == "on":
        with pytest.raises(ValueError, match=r"'on' cannot be: the first batch is up to .* nats from TRL's numbers"):
            run(TreeGRPOTrainer, TreeGRPOConfig, tiny_model, tmp_path, **options)
        return
    with pytest.warns(UserWarning, match="'auto' is off for this run: the first batch is up to") as told:
        ours = run(TreeGRPOTrainer, TreeGRPOConfig, tiny_model, tmp_path / "tree", **options)
    assert sum("tree_forward" in str(warning.message) for warning in told) == 1
    stock = run(GRPOTrainer, GRPOConfig, tiny_model, tmp_path / "stock", **ACCUMULATED)
    for name, expected in weights(stock).items():
        torch.testing.assert_close(weights(ours)[name], expected, rtol=1e-5, atol=1e-6)


def test_a_window_that_does_not_reach_the_attention_is_found_though_the_first_batch_is_shorter(tmp_path, monkeypatch):
    from transformers.models.mistral import modeling_mistral

    model = model_of("mistral", sliding_window=4096)
    plain = modeling_mistral.ALL_ATTENTION_FUNCTIONS["sdpa"]

    class Silent:
        def get_interface(self, *names):
            return lambda *args, sliding_window=None, **kwargs: plain(*args, **kwargs)

    trainer = trainer_of(model, tmp_path, tree_forward="auto")
    plain = modeling_mistral.ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setattr(modeling_mistral, "ALL_ATTENTION_FUNCTIONS", Silent())
    ids = torch.randint(3, 200, (4, 12))
    with pytest.warns(UserWarning, match="its window of 4096 tokens did not reach the attention"):
        trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 4)


# 8 rows of 7 tokens: 56; on the tree 8 paths that share the prompt alone, each repeating it: 56.
TOO_LITTLE = "the 56 tokens of the first batch leave 56 on the tree, a ratio of 1.00"


def apart(prompts, trainer):
    """One-token prompts and completions that part at once: nothing to share but a token."""
    ids = [[30 + i % 8, 31, 32, 33, 34, 35] for i in range(len(prompts))]
    return {"prompt_ids": [[9]] * len(prompts), "completion_ids": ids, "logprobs": [[-1.0] * 6 for _ in ids]}


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_batch_that_shares_too_little_is_left_or_refused(mode, tiny_model, tmp_path):
    expected = {
        "auto": pytest.warns(UserWarning, match=f"tree_forward='auto' is off for this run: {TOO_LITTLE}"),
        "on": pytest.raises(ValueError, match=f"tree_forward='on' cannot be: {TOO_LITTLE}"),
    }
    keywords = {"rollout_func": apart}
    with expected[mode]:
        train(tiny_model, tmp_path, TreeGRPOTrainer, config_cls=TreeGRPOConfig, trainer=keywords, tree_forward=mode)


def test_an_evaluation_before_training_decides_nothing(tiny_model, tmp_path):
    """Its prompts have one completion each here: no tree could pay."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True, "num_generations_eval": 1}
    trainer = run(TEMPOTrainer, TEMPOConfig, tiny_model, tmp_path, tree_forward="on", **ACCUMULATED, **options)
    assert trainer._tree_state is State.IN_USE


def test_off_is_the_default_and_stock_bit_for_bit(tiny_model, tmp_path):
    options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "max_steps": 4, "td_coef": 0.0}
    stock_options = {name: value for name, value in options.items() if name != "td_coef"} | {"epsilon_high": 0.28}
    ours = train(tiny_model, tmp_path / "ours", TEMPOTrainer, **options)
    stock = train(tiny_model, tmp_path / "stock", GRPOTrainer, config_cls=GRPOConfig, **stock_options)
    assert ours.args.tree_forward == "off"
    assert ours._tree_state is State.OFF
    for name, expected in weights(stock).items():
        assert torch.equal(weights(ours)[name], expected)


@pytest.mark.parametrize(("given", "kept"), [(False, "off"), (True, "on"), ("auto", "auto")])
def test_yamls_off_and_on_are_read_as_such(given, kept, tmp_path):
    assert config(tmp_path, GRPOLambdaConfig, tree_forward=given).tree_forward == kept


def test_another_word_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`tree_forward` must be one of .* got 'yes'"):
        config(tmp_path, TreeGRPOConfig, tree_forward="yes")


# Groups


def shuffled_rows(rows: int, micro_batches: int, seed: int) -> list[dict]:
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    total = torch.tensor(7)
    return [
        {
            "generation_row": rows,
            "ids": rows[:, None] * 10,
            "names": list(map(str, rows.tolist())),
            "n": total,
            "no": None,
        }
        for rows in order.chunk(micro_batches)
    ]


def test_groups_are_shuffled_whole_and_rows_keep_what_is_theirs():
    for seed in range(20):
        batches = keep_groups_together(shuffled_rows(24, 3, seed), num_generations=4)
        rows = torch.cat([batch["generation_row"] for batch in batches])
        assert sorted(rows.tolist()) == list(range(24))
        assert torch.equal(rows.view(-1, 4), rows.view(-1, 4)[:, :1] + torch.arange(4))
        for batch in batches:
            assert torch.equal(batch["ids"][:, 0], batch["generation_row"] * 10)
            assert batch["names"] == [str(row) for row in batch["generation_row"].tolist()]
            assert (batch["n"], batch["no"]) == (7, None)


def test_every_order_of_the_groups_is_as_likely():
    batches = [keep_groups_together(shuffled_rows(12, 3, seed), 4)[0] for seed in range(600)]
    firsts = [batch["generation_row"][0].item() for batch in batches]
    assert set(firsts) == {0, 4, 8}
    assert all(150 < firsts.count(first) < 250 for first in (0, 4, 8))  # 200 in the mean, 11.5 standard deviation


def test_a_group_that_lies_on_two_ranks_is_cut_where_they_cut_it():
    """Rows 6 to 17 of groups of 8: two of the first, a whole one, two of the third."""
    batches = shuffled_rows(12, 3, seed=1)
    moved = [batch | {"generation_row": batch["generation_row"] + 6} for batch in batches]
    rows = torch.cat([batch["generation_row"] for batch in keep_groups_together(moved, 8)]).tolist()
    groups = [row // 8 for row in rows]
    assert sorted(rows) == list(range(6, 18))
    assert sum(a != b for a, b in pairwise(groups)) == 2


def test_micro_batches_of_a_run_hold_whole_groups_and_nothing_else_of_the_run_changes(tiny_model, tmp_path):
    stock = run(GRPOTrainer, GRPOConfig, tiny_model, tmp_path / "stock", **ACCUMULATED)
    ours = run(TreeGRPOTrainer, TreeGRPOConfig, tiny_model, tmp_path / "tree", tree_forward="on", **ACCUMULATED)
    for batch in ours._buffered_inputs:
        assert len(batch["prompt_ids"].unique(dim=0)) == 2  # 16 rows, groups of 8
    assert max(len(batch["prompt_ids"].unique(dim=0)) for batch in stock._buffered_inputs) > 2

    def rows(trainer):
        ids = torch.cat([torch.cat([b["prompt_ids"], b["completion_ids"]], dim=1) for b in trainer._buffered_inputs])
        return sorted(map(tuple, ids.tolist()))

    assert rows(ours) == rows(stock)


@pytest.mark.parametrize(("rows", "told"), [(4, "computed 2 times instead of once"), (12, "4 of the 8 completions")])
def test_micro_batches_that_cut_groups_are_told_with_the_arithmetic(rows, told, tmp_path):
    options = {"num_generations": 8, "per_device_train_batch_size": rows, "gradient_accumulation_steps": 2}
    with pytest.warns(UserWarning, match=f"={rows} rows do not hold whole groups of num_generations=8: .*{told}"):
        trainer_of(model_of("qwen3"), tmp_path, **options)


def test_whole_groups_are_not_warned_of(tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer_of(model_of("qwen3"), tmp_path, num_generations=4, per_device_train_batch_size=8)
    assert not [warning for warning in told if "groups" in str(warning.message)]


# Metrics


def test_the_packing_ratio_is_tokens_over_packed_tokens_in_training_and_evaluation(tiny_model, tmp_path):
    options = ACCUMULATED | {"eval_strategy": "steps", "eval_steps": 2, "num_generations_eval": 4}
    trainer = run(TreeGRPOTrainer, TreeGRPOConfig, tiny_model, tmp_path, tree_forward="on", **options)
    history = trainer.state.log_history
    ratios = [entry["tempo/packing_ratio"] for entry in history if "tempo/packing_ratio" in entry]
    assert len(ratios) == 4
    assert all(2 < ratio < 8 for ratio in ratios)  # eights share their prompt, fours a stem
    assert all(entry["tempo/tree_pass_seconds"] > 0 for entry in history if "tempo/packing_ratio" in entry)
    evaluated = [entry["eval_tempo/packing_ratio"] for entry in history if "eval_loss" in entry]
    assert len(evaluated) == 2
    assert all(1.5 < ratio < 4 for ratio in evaluated)


def test_without_the_tree_there_are_no_such_metrics(tiny_model, tmp_path):
    trainer = run(TEMPOTrainer, TEMPOConfig, tiny_model, tmp_path, **ACCUMULATED)
    logged = {key for entry in trainer.state.log_history for key in entry}
    assert not [key for key in logged if "tempo/packing" in key or "tree_" in key]
