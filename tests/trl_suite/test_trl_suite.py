"""The parts of `make test-trl`, on a clone of TRL with two tests."""

from pathlib import Path

import pytest
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from .__main__ import TESTS, run
from .stand_ins import MODELS, SENTENCES, save_stand_ins
from .table import table

SUITE = """
import pytest
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.grpo_config import GRPOConfig as StockConfig

class TestNames:
    def test_stock(self):
        assert GRPOTrainer.__name__ == "GRPOTrainer"

    def test_ours(self):
        assert GRPOConfig.__name__ == "TEMPOConfig"

    def test_a_config_of_trl(self, tmp_path):
        args = StockConfig(str(tmp_path), use_cpu=True, bf16=False)
        prompts = load_dataset("trl-internal-testing/zen", "standard_prompt_only", split="train")
        GRPOTrainer("trl-internal-testing/tiny-Qwen2ForCausalLM-2.5", lambda **columns: [], args, prompts)

    @pytest.mark.skip
    def test_on_a_gpu(self): ...
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    save_stand_ins(folder)
    return folder


def test_models_and_prompts_load_by_their_names_on_the_hub(hub, monkeypatch):
    monkeypatch.chdir(hub)
    for name in MODELS:
        classifier = "SequenceClassification" in name
        cls = AutoModelForSequenceClassification if classifier else AutoModelForCausalLM
        model = cls.from_pretrained(f"trl-internal-testing/{name}")
        assert type(model).__name__ == name.removeprefix("tiny-").partition("-")[0]
        tokens = AutoTokenizer.from_pretrained(f"trl-internal-testing/{name}")("2 + 2", return_tensors="pt")
        assert model(**tokens).logits.shape[-1] == (1 if classifier else model.config.vocab_size)
    for name, kind in (("standard_prompt_only", str), ("conversational_prompt_only", list)):
        train, test = (load_dataset("trl-internal-testing/zen", name, split=split) for split in ("train", "test"))
        assert (len(train), len(test), type(train[0]["prompt"])) == (SENTENCES - 2, 2, kind)


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_the_suite_runs_with_either_trainer(hub, tmp_path):
    clone = tmp_path / "trl"
    (clone / TESTS).parent.mkdir(parents=True)
    (clone / TESTS).write_text(SUITE)
    (clone / "tests/__init__.py").touch()
    stock, ours = (run(clone, trainer, hub, ["-n", "0"]) for trainer in ("stock", "tempo"))
    outcomes = {name: (stock[name][0], ours[name][0]) for name in stock}
    assert outcomes == {
        "TestNames::test_stock": ("passed", "failure"),
        "TestNames::test_ours": ("failure", "passed"),
        "TestNames::test_a_config_of_trl": ("passed", "failure"),
        "TestNames::test_on_a_gpu": ("skipped", "skipped"),
    }
    assert "`args` must be a TEMPOConfig, got GRPOConfig" in ours["TestNames::test_a_config_of_trl"][1]


@pytest.mark.matrix
@pytest.mark.usefixtures("quick_python")
def test_a_suite_that_cannot_be_collected_ends_with_a_message(tmp_path):
    with pytest.raises(SystemExit, match="pytest did not run"):
        run(tmp_path, "stock", tmp_path, ["-n", "0"])


def test_the_table_counts_and_names_what_differs():
    stock = {"a": ("passed", ""), "b": ("failure", "x"), "c": ("skipped", "")}
    ours = {"a": ("failure", "why\nmore"), "b": ("passed", ""), "c": ("skipped", "")}
    lines = table(stock, ours).splitlines()
    assert [line.split() for line in lines[1:5]] == [
        ["passed", "1", "1"],
        ["failure", "1", "1"],
        ["error", "0", "0"],
        ["skipped", "1", "1"],
    ]
    assert lines[6:] == [
        *("Passes with GRPOTrainer alone: 1", "  a", "    why", ""),
        *("Passes with TEMPOTrainer alone: 1", "  b", "    x"),
    ]
