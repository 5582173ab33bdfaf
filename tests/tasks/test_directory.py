"""The task `directory`: what is a right dialogue, and where each check has its place."""

import pytest
import torch
from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response, supports_tool_calling

from benchmarks.language_model.criteria import functions
from benchmarks.tasks import directory
from benchmarks.tasks.directory import END, NEXT_TURN, PEOPLE, Question, dialogue, examples, load, lookup, questions
from tests.smollm2 import whole_model

TOOL = "<|im_end|>\n<|im_start|>tool\n{}<|im_end|>\n" + NEXT_TURN
ASKED = questions("train", 40, "test")
TWO, THREE = (next(own for own in ASKED if len(own.path) == count) for count in (2, 3))


@pytest.fixture(scope="module")
def tokenizer():
    return directory.tokenizer(whole_model().path)


def text_of(*said: str) -> str:
    """A dialogue in which the policy says this, turn by turn, and the tool answers its calls."""
    parts = [turn + TOOL.format(lookup(turn.removeprefix("lookup: "))) for turn in said[:-1]]
    return "".join([*parts, said[-1] + END])


def right(question: Question) -> list[str]:
    return [*(f"lookup: {name}" for name in question.path), question.answer]


def verdicts(text: str, question: Question) -> dict[str, float]:
    (spans,) = directory.directory([text], path=[question.path], answer=[question.answer])
    return {span.name: span.reward for span in spans}


@pytest.mark.parametrize("question", ASKED)
def test_the_right_dialogue_earns_every_check_at_its_own_turn(question):
    text = text_of(*right(question))
    (spans,) = directory.directory([text], path=[question.path], answer=[question.answer])
    assert {span.reward for span in spans} == {1.0}
    *calls, stop, answer = [text[span.start : span.end] for span in spans]
    assert calls == [f"lookup: {name}{END}" for name in question.path]
    assert stop == answer == question.answer + END


FIRST, SECOND, REPLY = right(TWO)
SOMEBODY = next(name for name in PEOPLE["train"] if name not in TWO.path)
BY_HAND = {  # what is said in the turns, and what is wrong with it
    (FIRST, SECOND, REPLY): set(),
    (FIRST, SECOND, f" {REPLY}"): set(),
    (FIRST, SECOND, "0"): {"answer"},
    (FIRST, SECOND, ""): {"answer"},
    (FIRST, SECOND, f"It is {REPLY}"): {"answer"},
    (FIRST, REPLY): {"call 2", "stop"},
    (FIRST, "0"): {"call 2", "stop", "answer"},
    (REPLY,): {"call 1", "call 2", "stop"},
    ("",): {"call 1", "call 2", "stop", "answer"},
    (FIRST, SECOND, SECOND, REPLY): {"stop"},
    (FIRST, FIRST, SECOND, REPLY): {"call 2", "stop"},
    (FIRST, FIRST, REPLY): {"call 2"},
    (SECOND, FIRST, REPLY): {"call 1", "call 2"},
    (FIRST, f"lookup: {SOMEBODY}", REPLY): {"call 2"},
    (FIRST, f"lookup: {SOMEBODY}", "0"): {"call 2", "answer"},
    (f"lookup: {SOMEBODY}", SECOND, REPLY): {"call 1"},
    ("lookup: nobody at all", SECOND, REPLY): {"call 1"},
    (FIRST, SECOND[:-1], REPLY): {"call 2"},
    (FIRST, SECOND, SECOND): {"stop", "answer"},
    (FIRST, f"Lookup: {TWO.path[1]}"): {"call 2", "stop", "answer"},
}


@pytest.mark.parametrize(("said", "wrong"), BY_HAND.items())
def test_twenty_dialogues_are_judged_as_by_hand(said, wrong):
    assert {name for name, reward in verdicts(text_of(*said), TWO).items() if reward == 0.0} == wrong


def test_what_was_cut_off_is_judged_up_to_its_end():
    text = text_of(*right(THREE))
    cut = text[: text.index(f"lookup: {THREE.path[1]}") + len("lookup: ")]
    (spans,) = directory.directory([cut], path=[THREE.path], answer=[THREE.answer])
    assert [span.reward for span in spans] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [cut[span.start : span.end] for span in spans[1:]] == ["lookup: "] * 4


def test_held_out_questions_are_about_other_people():
    train, test = load("train"), load("test")
    assert (len(train), len(test)) == (3600, 256)
    assert not {name for path in train["path"] for name in path} & {name for path in test["path"] for name in path}


def test_the_loss_of_fine_tuning_is_of_what_the_policy_says_alone(tokenizer):
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    question, messages = questions("train", 1, "examples")[0], examples(1)[0]["messages"]
    encoded = tokenizer.apply_chat_template(messages, **options)
    own = torch.tensor(encoded["input_ids"])[torch.tensor(encoded["assistant_masks"]).bool()]
    assert tokenizer.decode(own) == "".join(f"{turn}{END}" for turn in right(question))


def test_trl_reads_the_calls_that_the_template_writes(tokenizer):
    assert supports_tool_calling(tokenizer)
    assert is_chat_template_prefix_preserving(tokenizer)
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    call, *_ = dialogue(TWO)
    said = encode(f"lookup: {TWO.path[0]}{END}")
    assert parse_response(tokenizer, said, prefix=encode(NEXT_TURN))["tool_calls"] == call["tool_calls"]
    assert "tool_calls" not in parse_response(tokenizer, encode(f"4821{END}"), prefix=encode(NEXT_TURN))


def test_every_arm_is_paid_by_the_whole_dialogue(tokenizer):
    texts = [text_of(*right(TWO)), text_of(FIRST, REPLY)]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    keywords = {"completions": [dialogue(TWO)] * 2, "completion_ids": ids}
    keywords |= {"path": [TWO.path] * 2, "answer": [TWO.answer] * 2}
    own = {
        name: func.with_tokenizer(tokenizer) for name, func in functions("directory").items() if name != "directory"
    }
    paid = {name: func(**keywords) for name, func in own.items()}
    assert paid["directory_mean"] == [1.0, 0.5]
    assert paid["directory_all"] == [1.0, 0.0]
    each = [paid[f"directory_{k}"] for k in range(5)]  # answer, call 1, call 2, stop, and none for two lookups
    assert each == [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [None, None]]
