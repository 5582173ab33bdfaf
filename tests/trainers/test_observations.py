"""What is observed before a turn: equal keys by definition, images, and the answer's text."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from tempo_trl.credit import anchors
from tempo_trl.credit.prefix_tree import sort_rows
from tempo_trl.trainers.agents import observed_before_steps, seen_ids
from tempo_trl.trainers.report import Report

from ..tiny import tiny_tokenizer


def random_steps(rng, rows: int, width: int) -> torch.Tensor:
    """Steps of random tokens: some follow each other at once, some after observed tokens; padding at the end."""
    steps = torch.full((rows, width), -1)
    for row in range(rows):
        step = at = 0
        while at < width - 3:
            length = int(rng.integers(1, 3))
            steps[row, at : at + length] = step
            at, step = at + length + int(rng.integers(0, 3)), step + 1
    return steps


def seen_by_definition(ids, steps, row: int, step: int) -> tuple:
    """What was observed just before a step, or, if nothing was, all tokens so far."""
    start = (steps[row] == step).nonzero()[0].item()
    before = (steps[row, :start] >= 0).nonzero().flatten()
    end = before[-1].item() + 1 if len(before) else 0
    if step and end == start:
        return ("so far", *ids[row, :start].tolist())
    return ("observed", *ids[row, end:start].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_equal_where_the_same_was_observed_or_else_all_tokens_so_far_are(seed):
    rng = np.random.default_rng(seed)
    ids, steps = torch.from_numpy(rng.integers(0, 2, (12, 9))), random_steps(rng, 12, 9)
    prompts = torch.from_numpy(rng.integers(-1, 1, 12))
    keys, known = anchors.observation_keys(ids, steps, prompts), {}
    assert keys.shape == (12, int(steps.max()) + 1)
    for row, step in np.argwhere(keys.numpy() != 0).tolist():
        seen = (prompts[row].item(), *seen_by_definition(ids, steps, row, step))
        assert known.setdefault(seen, keys[row, step].item()) == keys[row, step].item()
    assert len(set(known.values())) == len(known)
    assert ((keys != 0).sum(dim=1) == steps.amax(dim=1) + 1).all()


def keys_of(completions: list, key_func=None, state_keys=None, observed: int = 7, prompts=None) -> torch.Tensor:
    """Keys of conversations with two turns, in which the observed tokens are the same."""
    ids, turns = torch.tensor([[1, observed, observed, 2]]), torch.tensor([[0, -1, -1, 1]])
    ids, turns = (tensor.expand(len(completions), -1) for tensor in (ids, turns))
    trainer = SimpleNamespace(observation_key_func=key_func, _tokenizer=tiny_tokenizer())
    rows = SimpleNamespace(
        output={"completion_ids": ids},
        completion_ids=ids.tolist(),
        completions=completions,
        state_keys=state_keys or {},
    )
    report = Report(0)
    prompts = torch.tensor(prompts or [0] * len(ids))
    keys = observed_before_steps(trainer, rows, seen_ids(rows, turns), turns, turns, prompts, report)
    if report.cause is not None:
        raise report.cause
    return keys[:, 1]


def conversation(*content) -> list[dict]:
    said = {"role": "assistant", "content": "hm"}
    return [said, *({"role": "tool", "name": "look", "content": part} for part in content), said]


def picture(color: str) -> list[dict]:
    return [{"type": "image", "image": Image.new("RGB", (2, 2), color)}]


def test_images_that_have_the_same_tokens_are_told_apart():
    red, again, blue, none = keys_of([conversation(picture(c)) for c in ("red", "red", "blue")] + [conversation("")])
    assert red == again and len({red.item(), blue.item(), none.item()}) == 3
    red, again, blue, none = keys_of(
        [conversation(picture(c)) for c in ("red", "red", "blue")] + [conversation("[image]")], key_func=str.upper
    )
    assert red == again and len({red.item(), blue.item(), none.item()}) == 3
    own = keys_of([conversation(picture(c)) for c in ("red", "blue")], None, {(0, 1): b"k", (1, 1): b"k"})
    assert own[0] == own[1]


def test_an_environments_own_key_stands_for_the_state_whatever_the_prompt_says():
    same = [conversation("room 1"), conversation("room 1")]
    here, there = keys_of(same, None, {(0, 1): b"k", (1, 1): b"k"}, prompts=[0, 1])
    assert here == there
    here, there = keys_of(same, str.upper, prompts=[0, 1])
    assert here != there, "what a function reads is an answer after a prompt"


def test_paths_part_at_an_answer_that_shows_something_else():
    """Also the states of later steps of the same turn, which are known by all tokens so far."""
    ids, turns = torch.tensor([[1, 7, 7, 2, 3]] * 3), torch.tensor([[0, -1, -1, 1, 1]] * 3)
    rows = SimpleNamespace(
        output={"completion_ids": ids}, completions=[conversation(picture(c)) for c in ("red", "red", "blue")]
    )
    seen = seen_ids(rows, turns)
    assert seen[0].tolist() == seen[1].tolist()
    assert (seen != ids).nonzero().tolist() == [[0, 1], [1, 1], [2, 1]]
    order, lcp = sort_rows(seen.numpy(), np.full(3, 5), 3)
    assert sorted(lcp.tolist()) == [-1, 1, 5] and 2 in (order[0], order[-1])
    steps = torch.tensor([[0, -1, -1, 1, 2]] * 3)
    later = anchors.observation_keys(seen, steps, torch.zeros(3).long())[:, 2]
    assert later[0] == later[1] != later[2]


def test_the_function_gets_the_text_of_the_answers_a_line_each_and_without_messages_that_of_the_tokens():
    seen = []
    key_func = lambda text: seen.append(text) or text  # noqa: E731
    letter = tiny_tokenizer().encode("x")[0]
    keys_of(
        [conversation("room 1"), conversation("a", [{"type": "text", "text": "b"}]), "text"], key_func, None, letter
    )
    assert seen == ["room 1", "a\nb", "xx"]


def test_a_key_of_a_turn_that_sampled_no_token_is_left_out():
    completions = [conversation("a")]
    assert keys_of(completions, None, {(0, 5): b"asked, but no room was left"}) == keys_of(completions)
