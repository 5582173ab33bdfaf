"""The task `products`: the schema of a row says what its words ask for."""

import json

import pytest

from benchmarks.language_model.criteria import CRITERIA, functions
from benchmarks.tasks.products import examples, generated_rows, load

ROWS = [*generated_rows("train", 100), *generated_rows("test", 100)]
ROW = ROWS[0]


def verdicts(row: dict, text: str) -> dict[str, float]:
    (spans,) = functions("products")["products"](texts=[text], schema=[row["schema"]])
    return {span.name: span.reward for span in spans}


def test_a_valid_answer_earns_every_check():
    for row in ROWS:
        found = verdicts(row, row["valid"] + "<|im_end|>")
        assert set(found.values()) == {1.0}
        assert len(found) == CRITERIA["products"]


def changed(**values) -> str:
    return json.dumps(json.loads(ROW["valid"]) | values)


VALID = json.loads(ROW["valid"])
BY_HAND = {  # an answer, and what is wrong with it
    changed(): set(),
    changed(name="Xylophone"): {"name"},
    changed(name=VALID["name"].lower()): {"name"},
    changed(name=VALID["name"][0]): {"name"},
    changed(code=VALID["code"][1:]): {"code"},
    changed(code=VALID["code"] + "0"): {"code"},
    changed(code=VALID["code"].lower()): {"code"},
    changed(price=1000): {"price"},
    changed(price=str(VALID["price"])): {"price"},
    changed(price=VALID["price"] + 0.5): {"price"},
    changed(colours=VALID["colours"][1:]): {"colours"},
    changed(colours=[*VALID["colours"][1:], "purple"]): {"colours"},
    changed(colours=[*VALID["colours"][1:], VALID["colours"][1]]): {"colours"},
    changed(colours="blue"): {"colours"},
    changed(rooms=[*VALID["rooms"], "attic"]): {"rooms"},
    changed(rooms=[]): {"rooms"},
    changed(stock=True): {"additional"},
    changed().replace('"price"', '"prise"'): {"price", "additional"},
    "Here it is: " + changed(): {"outside"},
    "no idea": {"name", "code", "price", "colours", "rooms", "json", "additional", "outside"},
}


@pytest.mark.parametrize(("text", "wrong"), BY_HAND.items())
def test_twenty_answers_are_judged_as_by_hand(text, wrong):
    assert {name for name, reward in verdicts(ROW, f"{text}<|im_end|>").items() if reward == 0.0} == wrong


def test_no_checker_sees_a_valid_answer_and_no_request_is_in_both_splits():
    train, test = load("train"), load("test")
    assert train.column_names == test.column_names == ["prompt", "request", "schema"]
    assert not {*train["request"]} & {*test["request"]}
    assert {row["prompt"][-1]["content"] for row in examples(8)} <= {
        row["request"] for row in generated_rows("train", 8, seed="examples")
    }
