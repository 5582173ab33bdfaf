"""The logged share of signal is that of the exact gradient of the recorded batch, whatever the pass and its pieces."""

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from tempo_trl import PPOConfig, PPOTrainer
from tempo_trl.credit.gradient_signal import random_signs, signal_and_square
from tempo_trl.trainers import signal_share
from tempo_trl.trainers.signal_share import GROUP
from tempo_trl.tree_forward.first_batch import FirstBatch
from tempo_trl.tree_forward.tree_pass import State

from .launching import run_ranks, torchrun
from .recording import RecordingTrainer, assert_same_weights, config, questions, share_of_threes, train

# SGD is linear in the gradient: Adam would blow up the rounding of sums taken in another order.
OPTIONS = {"log_signal_share": True, "reward_funcs": share_of_threes, "optim": "sgd", "num_generations": 4}
WHOLE, QUARTERS = (
    {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_steps": 1},
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "max_steps": 1},
)


def logged(trainer) -> list[float]:
    return [entry["tempo/signal_share"] for entry in trainer.state.log_history if "tempo/signal_share" in entry]


def exact_gradients(model: str, output: dict, group: int = 4) -> torch.Tensor:
    """The gradients of one linear map for each group on the last hidden state, `(n, 16, 16)`, by autograd."""
    model = AutoModelForCausalLM.from_pretrained(model)
    ids, mask = (torch.cat([output[f"prompt_{x}"], output[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
    width = output["completion_ids"].shape[1]
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
    maps = torch.zeros(len(ids) // group, 16, 16, requires_grad=True)
    hidden = hidden + torch.einsum("bij,btj->bti", maps.repeat_interleave(group, dim=0), hidden)
    logps = model.lm_head(hidden[:, -width - 1 : -1]).log_softmax(dim=2)
    logps = logps.gather(2, output["completion_ids"].unsqueeze(2)).squeeze(2)
    loss = -(output["advantages"] * logps * output["completion_mask"]).sum()  # on policy, up to a constant
    return torch.autograd.grad(loss, maps)[0]


def share_of(vectors: torch.Tensor) -> float:
    signal, square = signal_and_square(vectors, torch.ones(len(vectors))).tolist()
    return signal / square


def sketched(gradients: torch.Tensor) -> torch.Tensor:
    return torch.einsum("gij,ik,jk->gk", gradients, *random_signs(16))


@pytest.mark.parametrize("tree_forward", ["off", "on"])
@pytest.mark.parametrize("pieces", [WHOLE, QUARTERS], ids=["whole", "quarters"])
def test_it_is_that_of_the_exact_gradient(pieces, tree_forward, tiny_model, tmp_path):
    trainer = train(tiny_model, tmp_path, tree_forward=tree_forward, **OPTIONS, **pieces)
    gradients = exact_gradients(tiny_model, trainer.batches[0].output)
    assert logged(trainer) == [pytest.approx(share_of(sketched(gradients)), rel=1e-3, abs=1e-4)]
    assert logged(trainer) == [pytest.approx(share_of(gradients.flatten(1)), abs=0.1)]


@pytest.mark.parametrize("reentrant", [False, True])
def test_with_adapters_and_checkpointed_layers_too(reentrant, tiny_model, tmp_path):
    adapters = {"peft_config": LoraConfig(r=4, target_modules="all-linear")}  # which begin as the model itself
    checkpointed = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    trainer = train(tiny_model, tmp_path, **OPTIONS, **WHOLE, **checkpointed, trainer=adapters)
    gradients = exact_gradients(tiny_model, trainer.batches[0].output)
    assert logged(trainer) == [pytest.approx(share_of(sketched(gradients)), rel=1e-3, abs=1e-4)]


def test_in_bfloat16_it_is_close(tiny_model, tmp_path):
    half, full = (train(tiny_model, tmp_path, **OPTIONS, **WHOLE, bf16=given) for given in (True, False))
    assert logged(half) == [
        pytest.approx(share_of(sketched(exact_gradients(tiny_model, half.batches[0].output))), abs=0.05)
    ]
    assert logged(full) != logged(half)


@pytest.mark.parametrize("tree_forward", ["off", "on"])
def test_micro_batches_that_cut_groups_add_up(tree_forward, tiny_model, tmp_path):
    pairs = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "max_steps": 1}
    whole = train(tiny_model, tmp_path, **OPTIONS, **WHOLE)
    cut = train(tiny_model, tmp_path, tree_forward=tree_forward, **OPTIONS, **pairs)
    assert logged(cut) == [pytest.approx(value, rel=1e-3, abs=1e-4) for value in logged(whole)]


def test_a_first_batch_that_leaves_the_tree_counts_once(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(FirstBatch, "mistake", lambda self: "it is told to")
    left, off = (train(tiny_model, tmp_path, tree_forward=mode, **OPTIONS, **QUARTERS) for mode in ("auto", "off"))
    assert left.tree_pass.state is State.OFF
    assert logged(left) == [pytest.approx(value, rel=1e-3, abs=1e-4) for value in logged(off)]


def test_signal_and_square_are_summed_over_the_steps_of_a_log(tiny_model, tmp_path, monkeypatch):
    seen = []

    def recorded(*args):
        seen.append(signal_and_square(*args))
        return seen[-1]

    monkeypatch.setattr(signal_share, "signal_and_square", recorded)
    trainer = train(tiny_model, tmp_path, **OPTIONS, **WHOLE | {"max_steps": 4}, logging_steps=2)
    pairs = [(seen[i] + seen[i + 1]).tolist() for i in (0, 2)]
    assert logged(trainer) == [pytest.approx(signal / square) for signal, square in pairs]


def test_it_is_logged_in_training_only_and_changes_no_weight(tiny_model, tmp_path):
    options = OPTIONS | {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    options["trainer"] = {"eval_dataset": questions(2)}
    on, off = (train(tiny_model, tmp_path, **options | {"log_signal_share": given}) for given in (True, False))
    assert len(logged(on)) == 3
    assert logged(off) == []
    assert not any("eval_tempo/signal_share" in entry for entry in on.state.log_history)
    assert_same_weights(on, off)


@pytest.mark.parametrize("given", [True, False])
def test_off_there_is_neither_a_hook_nor_a_key_and_on_the_hook_is_removed(given, tiny_model, tmp_path, monkeypatch):
    registered = []
    register = torch.nn.Module.register_forward_hook

    def recording(module, *args, **kwargs):
        registered.append(module)
        return register(module, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "register_forward_hook", recording)
    trainer = train(tiny_model, tmp_path, **OPTIONS | {"log_signal_share": given, "max_steps": 2})
    trunk = trainer.accelerator.unwrap_model(trainer.model).base_model
    assert sum(module is trunk for module in registered) == 2 * given
    assert not trunk._forward_hooks
    assert (GROUP in trainer._buffered_inputs[0]) == given


def test_ppo_with_a_shared_trunk_logs_it(tiny_model, tmp_path):
    options = {"cls": PPOTrainer, "config_cls": PPOConfig, "shared_trunk": True, "max_steps": 2, "num_iterations": 1}
    assert len(logged(train(tiny_model, tmp_path, **OPTIONS | options))) == 2


def test_a_step_in_which_groups_with_equal_prompts_share_positions_is_left_out(tiny_model, tmp_path):
    twice = {"dataset": questions(1).select([0] * 8), "max_steps": 1}
    assert logged(train(tiny_model, tmp_path, **OPTIONS, **twice, tree_forward="on")) == []
    assert len(logged(train(tiny_model, tmp_path, **OPTIONS, **twice))) == 1


def test_a_compiled_model_is_refused(tiny_model, tmp_path):
    args = config(tmp_path, log_signal_share=True, torch_compile=True)
    with pytest.raises(ValueError, match=r"`log_signal_share=True` is not supported with torch.compile.*Unset"):
        RecordingTrainer(tiny_model, share_of_threes, args, questions())


@pytest.mark.parametrize(("tree_forward", "steps"), [("off", 1), ("on", 4)])
def test_steps_of_one_group_are_refused(tree_forward, steps, tiny_model, tmp_path):
    options = {"num_generations": 4, "per_device_train_batch_size": 4, "steps_per_generation": steps}
    args = config(tmp_path, log_signal_share=True, gradient_accumulation_steps=1, tree_forward=tree_forward, **options)
    with pytest.raises(ValueError, match=r"got 4 completions in groups of 4, expected at least 8. Raise"):
        RecordingTrainer(tiny_model, share_of_threes, args, questions())


@pytest.mark.matrix
@pytest.mark.parametrize("rows", [6, 8], ids=["groups cut by ranks", "groups inside ranks"])
def test_two_ranks_log_that_of_all_their_rows(rows, tiny_model, tmp_path):
    options = ("log_signal_share=True", "num_generations=4", f"per_device_train_batch_size={rows}", "max_steps=1")
    ranks = run_ranks(torchrun(2), 2, "tests.trainers.rank", tiny_model, tmp_path, *options)
    first, second = ([e["tempo/signal_share"] for e in rank["history"] if "loss" in e] for rank in ranks)
    gradients = exact_gradients(tiny_model, together([rank["batches"][0][3] for rank in ranks]))
    assert first == second == [pytest.approx(share_of(sketched(gradients)), rel=1e-3, abs=1e-4)]


def together(outputs: list[dict]) -> dict:
    """The rows of all ranks in one batch: prompts padded on the left, completions on the right."""
    names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
    widths = {name: max(output[name].shape[1] for output in outputs) for name in names}

    def padded(name: str, value: torch.Tensor) -> torch.Tensor:
        missing = widths[name] - value.shape[1]
        return F.pad(value, (missing, 0) if name.startswith("prompt") else (0, missing))

    return {name: torch.cat([padded(name, output[name]) for output in outputs]) for name in names}
