"""Whatever a model writes into its calls of tools, or a tool answers: the run goes on, and its logs are complete."""

import json

import pandas as pd
import pytest
from trl import GRPOTrainer

from tempo_trl import SpanReward, TEMPOTrainer
from tempo_trl.runs.messages import valid_text

from .agents import Rooms
from .recording import assert_same_weights, questions, train
from .spans import RecordingSpans


class Writes:
    """Mixin: rows of a group write these texts as their first turn, and then end."""

    texts = ()

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        encode = self.processing_class.encode
        answer = encode("<tool_response>")[0]
        ends = [encode("done<|im_end|>")] * len(prompt_ids)
        first = [encode(self.texts[i % len(self.texts)] + "<|im_end|>") for i in range(len(prompt_ids))]
        return (ends if any(answer in ids for ids in prompt_ids) else first), None


class EchoRooms(Rooms):
    def reset(self, **columns) -> str:
        super().reset(**columns)
        return " \udc80"  # a byte of a file's name that is not UTF-8

    def open(self, door: str) -> str:
        """
        Opens a door.

        Args:
            door: Its name.
        """
        return f"no door {door}"


def call(arguments, name="open") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CALLS = {
    "arguments of two types": [call({"door": 2}), call({"door": "two"}), call("2 3"), call([1, 2])],
    "empty arguments": [call({}), call({}), call({}), "nothing"],
    "numbers beyond 64 bits": [call({"door": 10**30}), call({"door": 1}), call(None), call(7)],
    "surrogates": [
        call({"door": "\ud83d"}),
        call({"\ude00": 1}),
        call({"door": 1}, "\ud83d"),
        call({"door": "a\ud83d"}),
    ],
}


def run(model, folder, texts, reward, cls=TEMPOTrainer, factory=EchoRooms, **overrides):
    options = {"max_completion_length": 400, "max_steps": 1, "log_completions": True} | overrides
    options |= {"log_trees_steps": 1} if cls is TEMPOTrainer else {}
    writing = type("WritingTrainer", (Writes, cls), {"texts": texts})
    keywords = {"environment_factory": factory}
    return train(model, folder, writing, questions(conversational=True), reward, trainer=keywords, **options)


def length_reward(completions, **columns) -> list[float]:
    json.dumps(completions, ensure_ascii=False).encode()  # as a grader behind an API would send them
    return [float(len(completion)) for completion in completions]


@pytest.mark.parametrize("texts", CALLS.values(), ids=CALLS)
def test_tables_and_trees_are_written_whatever_a_model_wrote(texts, tiny_model, tmp_path, capsys):
    trainer = run(tiny_model, tmp_path, texts, length_reward)
    assert trainer.state.global_step == 1
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert all("no door" in row or "error" in row for row in map(str, table["completion"]) if "arguments" in row)
    assert "done" in str(table["completion"].tolist())
    assert len(table) == 8
    assert "Step 1" in capsys.readouterr().out
    assert len(pd.read_parquet(tmp_path / "tempo" / "trees_0.parquet")) == 8


def test_a_column_of_several_types_that_a_reward_function_logs_is_written_as_text(tiny_model, tmp_path):
    def logging_reward(completions, log_extra, **columns) -> list[float]:
        log_extra("found", [1, "one", None, [2]] * 2)
        return length_reward(completions)

    run(tiny_model, tmp_path, CALLS["arguments of two types"], logging_reward)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert table["found"].tolist() == ["1", "one", "null", "[2]"] * 2


class ListingRooms(Rooms):
    def open(self, door: str) -> list:
        """
        Opens a door.

        Args:
            door: Its name.
        """
        return [door, 2, None, {"text": 3}, {"type": "text", "text": 4}, {"type": "text", "text": "five"}]


def test_a_tool_may_return_a_list_of_anything_and_the_tokens_are_trls(tiny_model, tmp_path):
    def reward(completions, **columns) -> list[float]:
        return [float(i % 2) for i, _ in enumerate(completions)]

    texts, options = [call({"door": "a"}), "none"], {"factory": ListingRooms, "log_completions": False}
    theirs = run(tiny_model, tmp_path / "trl", texts, reward, GRPOTrainer, **options)
    ours = run(
        tiny_model, tmp_path, texts, reward, td_coef=0.0, epsilon_high=None, **options | {"log_completions": True}
    )
    assert_same_weights(ours, theirs)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    (answer,) = (message for message in json.loads(table["completion"][0]) if message["role"] == "tool")
    parts = ["a", "2", "None", "{'text': 3}", "{'type': 'text', 'text': 4}", "five"]
    assert [part["text"] for part in answer["content"]] == parts


def test_a_writable_table_is_the_one_that_trl_writes(tiny_model, tmp_path):
    run(tiny_model, tmp_path, [call({"door": "a"}), call({"door": "b"})], length_reward)
    table = pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert table["completion"][0][0]["tool_calls"][0]["function"]["arguments"] == {"door": "a"}


def test_two_halves_of_a_pair_become_their_character_and_others_a_replacement():
    assert valid_text({"a\ud83d": ["\ud83d\ude00", "é", 3, None]}) == {"a\ufffd": ["\U0001f600", "é", 3, None]}


def test_the_name_of_a_criterion_may_hold_what_a_model_wrote(tiny_model, tmp_path):
    def judged(texts, **columns):
        return [[SpanReward("key \ud83d", float(len(text) % 2))] for text in texts]

    options = {"reward_funcs": None, "trainer": {"span_reward_funcs": judged}}
    train(tiny_model, tmp_path, RecordingSpans, max_steps=1, log_completions=True, log_trees_steps=1, **options)
    (spans,) = pd.read_parquet(tmp_path / "tempo" / "trees_0.parquet")["spans"][0]
    assert spans["name"] == "key \ufffd"
    assert "key \ufffd" in pd.read_parquet(tmp_path / "completions" / "completions_00001.parquet")["criteria"][0]
