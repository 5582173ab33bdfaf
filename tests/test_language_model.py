"""Each method on a real language model, for one step: what tiny models cannot show, such as its chat template.

Recipes and methods train its first layers, which takes a fifth of the time; TEMPO trains all of it.
"""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM

from tempo_trl.data.orders import generated_rows
from tempo_trl.demo.language_model import HUB_ID
from tempo_trl.launch import cli, train
from tempo_trl.launch.arguments import parse
from tempo_trl.methods import METHODS
from tempo_trl.report import read_trees
from tempo_trl.rewards import json_fields_reward
from tempo_trl.runs.recipes import recipe_names

from .credit.groups import advantages_by_definition, values_by_definition
from .hub.conftest import client, hub  # noqa: F401 (fixtures)
from .smollm2 import first_layers, whole_model
from .trainers.every_method import OPTIONS

pytestmark = pytest.mark.matrix

FOLDER = "smollm2-135m/orders"
RECIPES = [name for name in recipe_names() if name.startswith(FOLDER)]
OTHERS = [method for method in METHODS if f"{FOLDER}/{method}" not in RECIPES]
OF_THE_OTHERS = OPTIONS | {
    "token_credit": {"credit_func": "tests.trainers.credit_functions.later_counts_more"},
    "span_credit": {"span_reward_funcs": "tests.trainers.credit_functions.halves"},
}
SMALL = {"reward_funcs": "tests.test_language_model.letters", "max_completion_length": 12, "max_steps": 1}
SMALL |= {"num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
SMALL |= {"save_strategy": "no", "log_completions": False}
# Plain gradient descent: an update is the gradient, which AdamW's first step reduces to its signs.
ONE_STEP = SMALL | {"optim": "sgd", "learning_rate": 0.1}
ONE_GROUP = {"per_device_train_batch_size": 4}  # half of the time
SAVES = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
SAVED = SMALL | SAVES | {"max_steps": 2, "log_trees_steps": 1, "temperature": 1.0}  # no group is flat


def letters(completions, **columns) -> list[float]:
    """A reward that differs among short completions: the share of letters."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(map(str.isalpha, text)) / (1 + len(text)) for text in texts]


@pytest.fixture(scope="module", autouse=True)
def model():
    return whole_model()


@pytest.fixture(scope="module")
def short_model(tmp_path_factory) -> str:
    return first_layers(tmp_path_factory.mktemp("short"))


def arguments(recipe: str, folder, fields: dict) -> list[str]:
    values = fields | {"output_dir": folder}
    flags = [[f"--{key}", *map(str, v if isinstance(v, list) else [v])] for key, v in values.items()]
    return ["--config", recipe, *(text for flag in flags for text in flag)]


def trained(name: str, folder, **changes) -> tuple[torch.Tensor, dict, object]:
    """The update of the last MLP's down projection by one step of a recipe, its log, and the trainer."""
    trainer = train.build_trainer(parse(arguments(name, folder, ONE_STEP | changes)))
    *_, weight = (w for key, w in trainer.model.named_parameters() if "mlp.down_proj" in key and w.requires_grad)
    before = weight.detach().clone()
    trainer.train()
    return weight.detach() - before, trainer.state.log_history[0], trainer


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def assert_it_trained(update: torch.Tensor, log: dict) -> None:
    assert math.isfinite(log["loss"])
    assert log["reward_std"] > 0
    assert update.isfinite().all()
    assert update.norm() > 0


@pytest.fixture(scope="module")
def tempo(tmp_path_factory):
    return trained(f"{FOLDER}/tempo", tmp_path_factory.mktemp("tempo"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of two steps of TEMPO by the command, with checkpoints, and its trees recorded."""
    folder = tmp_path_factory.mktemp("run") / "tempo"
    assert train.main(arguments(f"{FOLDER}/tempo", folder, SAVED)) == 0
    yield folder
    shutil.rmtree(folder)  # pytest would keep 4 GB


@pytest.fixture(scope="module")
def evaluated(run):
    """The same folder, with its model's answers to ten held-out orders."""
    small = ["--tasks", "orders", "--limit", "10", "--max_tokens", "12", "--batch_size", "10"]
    assert cli.main(["evaluate", "--model", str(run), *small]) == 0
    return run


@pytest.mark.parametrize("name", [name for name in RECIPES if name != f"{FOLDER}/tempo"])
def test_every_recipe_trains(name, short_model, tmp_path):
    assert_it_trained(*trained(name, tmp_path, model_name_or_path=short_model, **ONE_GROUP)[:2])


@pytest.mark.parametrize("method", OTHERS)
def test_every_method_without_a_recipe_of_its_own_trains(method, short_model, tmp_path):
    fields = ONE_GROUP | {"method": method, "model_name_or_path": short_model} | OF_THE_OTHERS.get(method, {})
    update, log, trainer = trained(f"{FOLDER}/grpo", tmp_path, **fields)
    assert_it_trained(update, log)
    assert type(trainer).__name__ == METHODS[method].trainer.rpartition(".")[2]


@pytest.mark.both_stacks
def test_prompts_are_the_chat_template_s_and_answers_end_with_its_end_of_turn(tempo, model):
    *_, trainer = tempo
    tokenizer, prompt = trainer.processing_class, [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token == "<|im_end|>"
    assert np.atleast_1d(trainer.model.generation_config.eos_token_id).tolist() == [tokenizer.eos_token_id]
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    untrained = AutoModelForCausalLM.from_pretrained(model.path)
    answer = untrained.generate(**ids, do_sample=False, max_new_tokens=60)[0, ids["input_ids"].shape[1] :]
    assert answer.tolist().index(tokenizer.eos_token_id) == len(answer) - 1


def test_the_tree_pass_changes_no_update_beyond_rounding(tempo, tmp_path):
    update, log, _ = tempo
    assert_it_trained(update, log)
    assert log["tempo/packing_ratio"] > 1
    other, *_ = trained(f"{FOLDER}/tempo", tmp_path, tree_forward="off")
    assert distance(update, other) < 1e-3


@pytest.mark.both_stacks
def test_the_credit_of_the_recorded_batch_is_that_of_the_definition(run):
    trees = read_trees(run)
    assert trees["step"].unique().tolist() == [0, 1]
    for _, batch in trees.groupby("step"):
        rows = [ids.tolist() for ids in batch["completion_ids"]]
        values = values_by_definition(rows, batch["reward"].tolist(), 4)
        advantages = advantages_by_definition(rows, batch["reward"].tolist(), 4, "group", 1.0)
        for recorded, expected in ((batch["values"], values), (batch["advantages"], advantages)):
            for ours, by_definition in zip(recorded, expected, strict=True):
                np.testing.assert_allclose(ours, by_definition, rtol=1e-3, atol=1e-4)
        assert any(np.ptp(row) > 0 for row in batch["advantages"])  # token by token


def test_the_saved_model_answers_the_held_out_orders(evaluated):
    entries = json.loads((evaluated / "evaluation/orders.json").read_text())
    (accuracy,) = [entry for entry in entries if entry["metric"] == "accuracy"]
    assert (accuracy["task"], accuracy["split"], accuracy["n"]) == ("orders", "test", 10)
    answered = pd.read_json(evaluated / "evaluation/orders.greedy.jsonl", lines=True)
    truth = [row["truth"] for row in generated_rows("test")[:10]]
    assert answered["gold"].tolist() == truth
    rewards = json_fields_reward([row[0] for row in answered["completions"]], truth=truth)
    right = [reward == 1 for reward in rewards]
    assert [row[0] for row in answered["correct"]] == right
    assert accuracy["value"] == pytest.approx(np.mean(right))


def test_the_card_names_the_model_that_was_trained_and_where_its_weights_are_from(evaluated, model, client):  # noqa: F811
    assert cli.main(["publish", str(evaluated), "--repo", "me/smol"]) == 0
    files = client.model("me/smol").files
    assert files["model.safetensors"] == (evaluated / "model.safetensors").read_bytes()
    for card in (files["README.md"].decode(), (evaluated / "README.md").read_text()):
        assert ModelCard(card).data.base_model == HUB_ID
        assert f"[{HUB_ID}](https://huggingface.co/{HUB_ID})" in card
        assert ("4-bit weights, read into float32" in card) == (model.path != HUB_ID)
    assert "| orders |" in files["README.md"].decode()
