"""The tasks that are drawn from a seed: their splits share nothing, and their truths earn all rewards."""

import json
import re

import pytest
from transformers import AutoTokenizer

from benchmarks.tasks import calls, instructions, prompts_of, word_sums
from tempo_trl.data import orders
from tempo_trl.data.leaks import leaked_rows
from tempo_trl.rewards import json_fields, tool_call_fields
from tempo_trl.rewards.equation_reading import equations_of

from ..smollm2 import whole_model
from .answers import answer_of

TASKS = {"orders": orders, "calls": calls, "word_sums": word_sums}
SPANS = {"orders": json_fields, "calls": tool_call_fields, "word_sums": word_sums.story_sums}
DRAWN = TASKS | {"instructions": instructions}
FIELDS = [(name, field) for name, task in DRAWN.items() for field in task.VOCABULARIES["train"]._fields]
ROWS = dict.fromkeys(DRAWN, (3600, 240)) | {"calls": (3600, 128), "word_sums": (3600, 128)}
each_task = pytest.mark.parametrize("name", TASKS)
each_drawn_task = pytest.mark.parametrize("name", DRAWN)


def judged(name: str, rows: list[dict], texts: list[str]) -> list[dict[str, float]]:
    """Reward of each criterion, by the task's span reward function."""
    columns = {column: [row[column] for row in rows] for column in rows[0] if column != "prompt"}
    return [{span.name: span.reward for span in spans} for spans in SPANS[name](texts, **columns)]


def words_of(cell: object) -> set[str]:
    """What a field of a vocabulary holds: the words, and what they stand for."""
    pairs = [*cell.items()] if isinstance(cell, dict) else [(value, value) for value in cell]
    return {repr(each) for pair in pairs for each in pair if not isinstance(each, bool)}


@each_drawn_task
def test_the_same_seed_draws_the_same_rows(name):
    rows = DRAWN[name].generated_rows
    assert rows("train", 30, seed=1) == rows("train", 30, seed=1)
    assert rows("train", 30, seed=1) != rows("train", 30, seed=2)


@each_drawn_task
def test_a_split_has_the_rows_of_the_task_and_no_training_row_is_held_out(name):
    train, test = prompts_of(name, "train"), prompts_of(name, "test")
    assert (len(train), len(test)) == ROWS[name]
    assert leaked_rows(train, test) == []


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_the_splits_share_no_word_number_or_sentence(name, field):
    train, test = (getattr(DRAWN[name].VOCABULARIES[split], field) for split in ("train", "test"))
    if (name, field) == ("calls", "sentences"):  # by tool; the tools are the same
        train, test = train.values(), test.values()
    assert words_of(train)
    assert words_of(test)
    assert not words_of(train) & words_of(test)


@each_task
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_right_answer_of_a_row_meets_every_criterion(name, split):
    rows = prompts_of(name, split).to_list()[:120]
    for verdict in judged(name, rows, [answer_of(name, row) + "<|im_end|>" for row in rows]):
        assert set(verdict.values()) == {1.0}


def test_an_order_says_what_its_truth_has():
    for row in orders.generated_rows("train", 60) + orders.generated_rows("test", 60):
        said, truth = row["order"], json.loads(row["truth"])
        month, day = map(int, truth["date"].split("-"))
        assert orders.MONTHS[month - 1] in said
        assert re.search(rf"\b{day}\b", said)
        assert " ".join(reversed(truth["customer"].split(", "))) in said
        assert truth["city"] in said
        assert ("by express" in said) == truth["express"]


def test_each_sum_continues_with_the_result_before_and_has_at_most_two_digits():
    for row in word_sums.generated_rows("train", 200) + word_sums.generated_rows("test", 200):
        sums = [*equations_of(row["sums"])]
        results = [equation.result.value for equation in sums]
        assert [equation.operands[0].value for equation in sums[1:]] == results[:-1]
        assert all(0 < result < 100 for result in results)
        assert row["sums"].endswith(f"\nAnswer: {row['answer']}")
        assert results[-1] == int(row["answer"])


STORY = {"sums": ["3 * 4 = 12\n12 + 6 = 18\n18 * 2 = 36\n36 - 8 = 28\nAnswer: 28"], "answer": ["28"]}


def told(text: str, ending: str = "as told") -> dict[str, tuple[float, str]]:
    (spans,) = word_sums.story_sums([text], **STORY)
    return {span.name: (span.reward, text[span.start : span.end]) for span in spans if span.name.endswith(ending)}


EASY = "3 * 4 = 12\n12 + 0 = 12\n12 * 2 = 24\n24 + 8 = 33\nAnswer: 33<|im_end|>"


def test_a_right_sum_that_the_story_does_not_tell_is_found_at_its_operand():
    assert told(EASY) == {
        "line 1 as told": (1.0, "3 * 4"),
        "line 2 as told": (0.0, " + 0"),
        "line 3 as told": (1.0, " * 2"),
        "line 4 as told": (0.0, " + 8"),
    }


def test_arithmetic_earns_something_only_in_a_line_of_the_story():
    wrong = EASY.replace("= 24", "= 25")
    assert [told(text, f"line {n}")[f"line {n}"] for text in (EASY, wrong) for n in (1, 2, 3, 4)] == [
        (1.0, "12"), (0.0, " + 0"), (1.0, "24"), (0.0, " + 8"),
        (1.0, "12"), (0.0, " + 0"), (0.0, "25"), (0.0, " + 8"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reward", "place"),
    [
        ("1 + 1 = 2\n2 + 1 = 3\n3 + 1 = 4\n4 + 1 = 5\nAnswer: 5<|im_end|>", 1.0, "\nAnswer: 5<|im_end|>"),
        ("1 + 1 = 2\n2 + 1 = 3\n3 + 1 = 4\n4 + 1 = 5\n5 + 1 = 6\n6 +", 0.0, "\n5 + 1 = 6\n6 +"),
        ("1 + 1 = 2\nAnswer: 2<|im_end|>", 0.0, "\nAnswer: 2<|im_end|>"),
        ("I do not know.<|im_end|>", 0.0, "I do not know.<|im_end|>"),
    ],
)
def test_four_sums_are_counted_in_what_follows_them(text, reward, place):
    assert told(text, "four sums") == {"four sums": (reward, place)}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(whole_model().path)


@pytest.mark.parametrize(
    ("name", "prompt_tokens", "answer_tokens"), [("orders", 114, 48), ("calls", 130, 40), ("word_sums", 130, 48)]
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_prompts_and_answers_are_short(name, prompt_tokens, answer_tokens, split, tokenizer):
    rows = prompts_of(name, split).to_list()[:200]
    prompts = [
        tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False) for row in rows
    ]
    assert max(len(ids) for ids in tokenizer(prompts)["input_ids"]) <= prompt_tokens
    answers = [answer_of(name, row) + "<|im_end|>" for row in rows]
    assert max(len(ids) for ids in tokenizer(answers)["input_ids"]) <= answer_tokens
