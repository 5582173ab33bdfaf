"""`tempo-trl credit`: any completions with rewards, credited as in training."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from tempo_trl.credit import prefix_values, tempo_advantages
from tempo_trl.demo.task import policy_path
from tempo_trl.launch.cli import main
from tempo_trl.launch.credit import read_groups

from .recorded import HAND_REWARDS, HAND_WORKED, write

DEMO = str(policy_path())


def hand_worked(prompt="7+5-3?", **extra):
    answers = zip(HAND_WORKED, HAND_REWARDS, strict=True)
    return [{"prompt": prompt, "completion": text, "reward": reward} | extra for text, reward in answers]


def test_it_prints_the_tree_and_the_credit_of_the_hand_worked_group(tmp_path, capsys):
    assert main(["credit", str(write(tmp_path, hand_worked())), "--tokenizer", DEMO]) == 0
    printed = capsys.readouterr().out
    for words in ("2;2-3=   n=3  V=0.67  TD=+0.17", "8#8<eos>   n=1  V=0.00  TD=-0.67", "-2.02", "of the credit"):
        assert words in printed


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("td_coef", [0.0, 1.0, 0.5])
def test_its_advantages_are_those_of_training(scale, td_coef, tmp_path):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 3, (12, 6), generator=generator)
    rewards = torch.rand(12, generator=generator)
    rewards[5] = torch.nan
    rows = [
        {"prompt": f"p{i // 4}", "completion": ids[i].tolist(), "reward": None if i == 5 else rewards[i].item()}
        for i in range(12)
    ]
    groups = read_groups(write(tmp_path, rows), scale_rewards=scale, td_coef=td_coef)
    lengths = torch.full((12,), 6)
    expected = tempo_advantages(ids, lengths, rewards, 4, scale_rewards=scale, td_coef=td_coef)
    got = torch.tensor([row.tolist() for group in groups for row in group.advantages])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    values = torch.tensor([row.tolist() for group in groups for row in group.values])
    torch.testing.assert_close(values, prefix_values(ids, lengths, rewards, 4))


def test_groups_may_differ_in_size_and_lie_in_any_order(tmp_path):
    rows = [
        {"prompt": "a", "completion": [1, 2], "reward": 1},
        {"prompt": "b", "completion": [1], "reward": 0},
        {"prompt": "a", "completion": [1, 3], "reward": 0},
        {"prompt": "a", "completion": [], "reward": 0.5},
        {"prompt": "a", "group": 1, "completion": [7], "reward": 1},
    ]
    groups = read_groups(write(tmp_path, rows))
    assert [(g.prompt, len(g.ids)) for g in groups] == [("a", 3), ("b", 1), ("a", 1)]
    assert all((row == 0).all() for group in groups[1:] for row in group.advantages)


def test_prompts_that_read_alike_are_two_groups(tmp_path):
    """Images, and what a tool was called with, are not in the text of a prompt."""

    def asked(image: str, city: str) -> list[dict]:
        call = {"type": "function", "function": {"name": "look", "arguments": {"city": city}}}
        shown = [{"type": "image", "image": image}, {"type": "text", "text": "What is it?"}]
        return [{"role": "user", "content": shown}, {"role": "assistant", "content": "", "tool_calls": [call]}]

    prompts = asked("cat.png", "Rome"), asked("dog.png", "Rome"), asked("cat.png", "Oslo")
    rows = [{"prompt": prompt, "completion": [i], "reward": i} for prompt in prompts for i in range(2)]
    groups = read_groups(write(tmp_path, [*rows[::2], *rows[1::2]]))
    assert [len(group.ids) for group in groups] == [2, 2, 2]
    assert len({group.prompt for group in groups}) == 1
    assert all(row.any() for group in groups for row in group.td_errors)


def test_a_text_ends_with_eos_unless_it_was_truncated(tmp_path):
    ended = read_groups(write(tmp_path, hand_worked()), DEMO)[0]
    cut = read_groups(write(tmp_path, hand_worked(truncated=True)), DEMO)[0]
    assert [tokens[-1] for tokens in ended.tokens] == ["<eos>"] * 4
    assert [tokens[-1] for tokens in cut.tokens] == ["9", "8", "0", "9"]


def test_a_line_separator_within_a_text_ends_no_line(tmp_path):
    path = write(tmp_path, [])
    lines = (json.dumps(line, ensure_ascii=False) for line in hand_worked("7+5\u2028-3?\x85"))
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_groups(path, DEMO)[0].prompt == "7+5\u2028-3?\x85"


def test_token_ids_and_messages_are_a_prompt_too(tmp_path):
    rows = [{"prompt": [5 + i // 2, 7], "completion": [i], "reward": i % 2} for i in range(4)]
    groups = read_groups(write(tmp_path, rows))
    assert [group.prompt for group in groups] == ["<5><7>", "<6><7>"]
    encode = AutoTokenizer.from_pretrained(DEMO).encode
    with_text = read_groups(write(tmp_path, hand_worked(encode("7+5-3?"))), DEMO)
    assert [group.prompt for group in with_text] == ["7+5-3?"]
    of_messages = read_groups(write(tmp_path, hand_worked([{"role": "user", "content": "7+5-3?"}])), DEMO)
    assert [group.prompt for group in of_messages] == ["user: 7+5-3?"]


def test_fields_and_parts_of_the_users_own_are_left_alone(tmp_path):
    own = {"turns": 2, "criteria": "c", "calls": 3}
    lines = [{"prompt": [{"role": "user", "content": ["a"]}], "completion": [1, i], "reward": i} | own for i in (0, 1)]
    (group,) = read_groups(write(tmp_path, lines))
    assert group.prompt == "user: a"


def test_a_lone_surrogate_is_read_as_a_replacement_and_printed(tmp_path, capsys):
    rows = [{"prompt": "a\ud83d", "completion": [i], "reward": i} for i in range(2)]
    assert main(["credit", str(write(tmp_path, rows)), "-o", str(tmp_path / "credit.html")]) == 0
    assert "a\ufffd" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        (["{"], "line 1: Expecting property name"),
        ([{"prompt": "a", "completion": [1]}], "line 1: `reward` is missing"),
        (
            [{"prompt": "a", "completion": [1, -100], "reward": 1}],
            "line 1: `completion` must have token ids of at least 0",
        ),
        ([{"prompt": "a", "completion": [2**70], "reward": 1}], "must have token ids of at least 0"),
        ([{"prompt": "a", "completion": "x", "reward": 1}], "Pass --tokenizer"),
        *(
            (
                [{"prompt": "a", "completion": [1], "spans": spans}],
                "`spans` must be a list of objects with name, reward",
            )
            for spans in (None, {"name": "a", "reward": 1}, [{"name": "a", "rewrd": 1}])
        ),
    ],
)
def test_what_is_no_completion_is_named_by_its_line(lines, message, tmp_path, capsys):
    assert main(["credit", str(write(tmp_path, lines))]) == 2
    assert message in capsys.readouterr().err
