"""The pages and the example of span credit say what the code does: their arithmetic, their code and what it prints."""

import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from datasets import Dataset

from tempo_trl import SpanReward

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "methods" / "span_credit.md").read_text()
GUIDE = (REPOSITORY / "docs" / "guides" / "rewards_that_say_where.md").read_text()
CREDIT_FUNCTION = (REPOSITORY / "docs" / "guides" / "credit_function.md").read_text()


@pytest.fixture
def example() -> dict:
    return runpy.run_path(str(REPOSITORY / "examples" / "rewards_that_say_where.py"))


@pytest.fixture(scope="module")
def guide() -> dict:
    """What the guide's Python defines, and what each block printed."""
    names: dict = {}
    printed = []
    for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL):
        with redirect_stdout(StringIO()) as output:
            exec(code, names)
        printed += [output.getvalue().rstrip()] if output.getvalue() else []
    return names | {"printed": printed}


# The group worked by hand


def test_the_arithmetic_of_the_page_gives_the_numbers_behind_it():
    worked = re.findall(r"(\([\d/ -]+\) / [\d.]+|sqrt\([^|]*\)) = (-?[\d.]+) ", PAGE)
    assert len(worked) == 12
    for formula, result in worked:
        value = eval(formula.replace(" x ", " * ").replace("sqrt", "(lambda x: x**0.5)"))
        assert f"{value:.{len(result.partition('.')[2])}f}" == result, formula


def test_the_numbers_of_the_page_are_those_of_the_code(example):
    deviations = [column.std().item() for column in (*example["rewards"].T, example["rewards"].mean(dim=1))]
    assert [f"{deviation:.4g}" for deviation in deviations] == ["0.5", "0.5774", "0.25"]
    starts, credit, traced, grpo = (example[name] for name in ("starts", "credit", "traced", "grpo"))
    assert example["names"] == ["city", "quantity"]
    for at, expected in zip(starts.T.tolist(), ([0.5, 0.5, 0.5, -1.5], [0.87, -0.87, -0.87, 0.87]), strict=True):
        assert credit[range(4), at].tolist() == pytest.approx(expected, abs=0.005)
    assert grpo[:, 0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=0.005)

    parts = [at for _, at in example["pieces"](3)]
    lines = re.findall(r"^\| (?:GRPO,|span ).*", PAGE, re.MULTILINE)
    rows = [re.findall(r"([-+]?\d\.?\d*) \|", line) for line in lines]
    for numbers, advantages in zip(rows, (grpo, credit, traced), strict=True):
        assert [float(number) for number in numbers] == pytest.approx(advantages[3, parts].tolist(), abs=0.005)


def test_the_page_has_the_answers_of_the_example(example):
    answers = zip(example["ANSWERS"], example["rewards"].tolist(), strict=True)
    for number, (answer, (city, quantity)) in enumerate(answers, 1):
        assert f"| {number}: `{answer}` | {city:.0f} | {quantity:.0f} |" in PAGE


# The guide


def test_the_guide_s_code_prints_what_the_guide_shows(guide):
    shown = re.findall(r"```text\n(.*?)\n```", GUIDE, re.DOTALL)
    assert guide["printed"] == shown
    assert len(shown) == 5


def test_both_functions_of_the_guide_agree(guide):
    answers = ["city: Rome\nitem: knife", "item: knife\ncity: Rome", "city: \nitem: knives", "", "Rome, knife"]
    columns = {"city": ["Rome"] * len(answers), "item": ["knife"] * len(answers)}
    judged = guide["order_fields"](texts=[f"{answer}<|im_end|>" for answer in answers], **columns)
    completions = [[{"role": "assistant", "content": answer}] for answer in answers]
    assert guide["order_reward"](completions=completions, **columns) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert guide["order_mean"](completions=completions, **columns) == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert judged[2] == [SpanReward("city", 0.0, 0, 6), SpanReward("item", 0.0, 7, 19)]
    assert judged[3] == [SpanReward("city", 0.0), SpanReward("item", 0.0)]


@pytest.mark.parametrize("kind", ["the guide's function", "a credit function"])
def test_the_functions_train(kind, guide, tiny_model, tmp_path):
    from tempo_trl import SpanCreditConfig, SpanCreditTrainer, TokenCreditConfig, TokenCreditTrainer
    from tests.trainers.recording import config

    prompts = [f"Order {n}" for n in range(8)]
    dataset = Dataset.from_dict({"prompt": prompts, "city": ["Rome"] * 8, "item": ["knife"] * 8})

    def first_character(texts, **columns):
        return [[SpanReward("odd", float(ord(text[0]) % 2), 0, 1)] for text in texts]

    keywords = {"train_dataset": dataset, "span_reward_funcs": [guide["order_fields"], first_character]}
    if kind == "a credit function":
        blocks = re.findall(r"```python\n(.*?)```", CREDIT_FUNCTION, re.DOTALL)
        names = {}
        exec("import torch\nfrom tempo_trl import Batch\n" + blocks[1], names)
        trainer = TokenCreditTrainer(
            tiny_model, args=config(tmp_path, TokenCreditConfig), credit_func=names["half_on_places"], **keywords
        )
    else:
        trainer = SpanCreditTrainer(tiny_model, args=config(tmp_path, SpanCreditConfig), **keywords)
    trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["spans/order_fields/city/mean"] == 0.0
    assert "spans/first_character/odd/mean" in logged
    assert trainer.state.global_step == 3
    assert not any(parameter.isnan().any() for parameter in trainer.model.parameters())
