"""`tempo-trl credit` of conversations with tool messages: tokens, turns, states and credit are those of training."""

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from benchmarks.learning.policy import load_policy
from benchmarks.tasks.rooms import START, TURNS, Rooms, problems
from tempo_trl import TEMPOTrainer
from tempo_trl.launch.credit import read_groups
from tempo_trl.report.completion_file import CompletionFile
from tempo_trl.report.conversations import Encoder
from tempo_trl.report.group import recorded_groups
from tempo_trl.runs.messages import calls_and_observations

from ..trainers.recording import config
from .recorded import write

ROOMS = str(START)
GO = {"type": "function", "function": {"name": "go", "arguments": {"direction": "east"}}}
ASKED = [{"role": "user", "content": "key room2 exit room6 room4"}]
WENT = [
    {"role": "assistant", "content": "", "tool_calls": [GO]},
    {"role": "tool", "name": "go", "content": "room5 ; lamp dust"},
    {"role": "assistant", "content": "done"},
]
LINE = {"prompt": ASKED, "completion": WENT, "reward": 0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a short run, and a file with the conversations that it recorded."""
    folder, lines = tmp_path_factory.mktemp("agents"), []

    def won(prompts, completions, environments, seed, **columns):
        rewards = [float(environment.won) for environment in environments]
        named = ("prompt", "completion", "reward", "group")
        rows = zip(prompts, completions, rewards, seed, strict=True)
        lines.extend(json.dumps(dict(zip(named, row, strict=True))) for row in rows)
        return rewards

    turns = {"max_tool_calling_iterations": TURNS, "max_completion_length": 160}
    batch = {"per_device_train_batch_size": 16, "log_trees_prompts": 4, "max_steps": 1, "top_k": 0, "seed": 1}
    args = config(folder / "run", **turns, **batch)
    model, tokenizer = load_policy(ROOMS)
    TEMPOTrainer(model, won, args, problems(64, seed=0), processing_class=tokenizer, environment_factory=Rooms).train()
    (folder / "agents.jsonl").write_text("\n".join(lines))
    return folder


def test_conversations_get_the_tokens_turns_and_credit_of_training(trained):
    recorded = recorded_groups(trained / "run", 0)
    read = read_groups(trained / "agents.jsonl", ROOMS)
    assert len(read) == len(recorded) == 4
    for ours, theirs in zip(read, recorded, strict=True):
        assert ours.ids == theirs.ids
        assert (ours.calls, ours.observed) == (theirs.calls, theirs.observed)
        for name in ("turns", "loss_mask", "td_errors", "advantages", "values"):
            for own, trains in zip(getattr(ours, name), getattr(theirs, name), strict=True):
                np.testing.assert_allclose(own, trains, atol=1e-5)
    assert any(np.abs(td).max() > 0 for group in read for td in group.td_errors)


def test_a_turn_ends_with_eos_and_what_follows_belongs_to_the_observation():
    _, tokenizer = load_policy(ROOMS)
    ids, turns = Encoder(tokenizer)(ASKED, WENT)
    words = tokenizer.convert_ids_to_tokens(ids)
    assert " ".join(words) == "/go direction= east <end> <tool> room5 ; lamp dust <agent> done <end>"
    assert turns == [0] * 4 + [-1] * 6 + [1] * 2
    assert calls_and_observations(WENT, 2) == (["go", ""], ["", "room5 ; lamp dust"])


def test_a_template_that_rewrites_earlier_messages_is_refused():
    _, tokenizer = load_policy(ROOMS)
    encoder = Encoder(tokenizer)
    encoder._template = "{% for message in messages %}{{ loop.revindex }} {{ message.content }} {% endfor %}"
    with pytest.raises(ValueError, match="renders earlier messages differently when others follow"):
        encoder(ASKED, WENT)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "text", "completion": WENT}, "`prompt` must be a list of messages, as `completion` is"),
        ({"completion": [{"content": "x"}]}, "`completion` must be text, a list of token"),
        ({"completion": [WENT[0] | {"tool_calls": [{"name": "go"}]}]}, "cannot encode"),
    ],
)
def test_what_is_no_conversation_is_named_by_its_line(line, message, tmp_path):
    path = write(tmp_path, [LINE, LINE | line])
    with pytest.raises(ValueError, match=f"line 2: .*{message}"):
        CompletionFile(path, ROOMS).read()


def test_qwen3_s_template_keeps_what_a_turn_thought(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    thought = [WENT[0] | {"content": "<think>\nwhere?\n</think>\n\n"}, *WENT[1:]]
    ids, turns = Encoder(tokenizer)(ASKED, thought)
    texts = [tokenizer.decode([i for i, turn in zip(ids, turns, strict=True) if turn == n]) for n in (0, -1, 1)]
    assert "where?" in texts[0] and texts[0].endswith("<|im_end|>") and '"name": "go"' in texts[0]
    assert texts[1].startswith("\n<|im_start|>user\n<tool_response>\nroom5 ; lamp dust")
    assert texts[1].endswith("<|im_start|>assistant\n")
    assert texts[2].endswith("done<|im_end|>")
