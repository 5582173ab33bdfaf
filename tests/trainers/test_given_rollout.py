"""What a `rollout_func` returns is compared with the prompts that it got: counts, lengths and order."""

import re

import pytest
import torch
from datasets import Dataset

from .recording import questions, rolled_out, train


def answers(prompts, trainer) -> dict:
    """A completion of two or three tokens for each prompt."""
    ids = [[30 + i, 31, 2][: 2 + i % 2] for i in range(len(prompts))]
    texts = [prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in prompts]
    return rolled_out(texts, trainer, ids, env_mask=None)


def changed(**changes):
    """That rollout with some of its values changed."""

    def rollout(prompts, trainer):
        output = answers(prompts, trainer)
        return output | {name: change(output) for name, change in changes.items()}

    return rollout


def everything(rearranged):
    """That rollout with the rows of every value in another order, or repeated."""

    def rollout(prompts, trainer):
        return {name: values and rearranged(values) for name, values in answers(prompts, trainer).items()}

    return rollout


def test_ids_may_be_a_tensor_as_for_trl(tiny_model, tmp_path):
    def rollout(prompts, trainer):
        output = rolled_out(prompts, trainer, [[30 + i, 31, 2] for i in range(len(prompts))], env_mask=None)
        return output | {"completion_ids": torch.tensor(output["completion_ids"])}

    trainer = train(tiny_model, tmp_path, trainer={"rollout_func": rollout}, max_steps=1)
    assert trainer.state.global_step == 1


WRONG = {
    "no completions": (lambda *given: {"prompt_ids": [[5]] * 8, "logprobs": None}, "keys .'completion_ids'"),
    "each prompt again": (everything(lambda rows: [row for row in rows for _ in range(4)]), "got 32 rows .* for 8"),
    "groups interleaved": (everything(lambda rows: [*rows[::4], *rows[1::4], *rows[2::4], *rows[3::4]]), "order of"),
    "groups in another order": (everything(lambda rows: rows[::-1]), "the text of prompt 4 in `prompt_ids` of row 0"),
    "log-probabilities one short": (
        changed(logprobs=lambda output: [row[:-1] for row in output["logprobs"]]),
        r"one number per token .* in `logprobs`, got 1 for the 2 tokens of row 0",
    ),
    "no token": (
        changed(
            completion_ids=lambda output: [*output["completion_ids"][:5], [], *output["completion_ids"][6:]],
        ),
        "got none in `completion_ids` of row 5",
    ),
    "half a token": (
        changed(env_mask=lambda output: [[0.5] * len(row) for row in output["completion_ids"]]),
        r"1 for each token .* `env_mask`, got 0.5 in row 0",
    ),
    "a column too short": (changed(score=lambda output: [1.0] * 7), "got 7 rows of `score` for 8 prompts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rollout_that_does_not_fit_its_prompts_is_refused_with_the_row(name, tiny_model, tmp_path):
    rollout, message = WRONG[name]
    for conversational in (False, True) if name.startswith("groups") else (False,):
        with pytest.raises(ValueError, match=rf"rollout_func`? must return .*{message}"):
            train(tiny_model, tmp_path, dataset=questions(8, conversational), trainer={"rollout_func": rollout})


def look(place: str) -> str:
    """
    Looks.

    Args:
        place: Where.
    """
    return place


def test_a_rollout_that_marks_its_own_tokens_is_refused_beside_tools_that_trl_would_call(tiny_model, tmp_path):
    rollout = changed(env_mask=lambda output: [[1] * len(row) for row in output["completion_ids"]])
    options = {"rollout_func": rollout, "tools": [look]}
    with pytest.raises(ValueError, match=r"returned an `env_mask`, which TRL drops beside tools, got .*look"):
        train(tiny_model, tmp_path, dataset=questions(8, True), trainer=options, max_steps=1)


def own_prompt(prompts, trainer):
    """A rollout whose environment asks something else than the dataset, of more than one row alike."""
    output = answers(prompts, trainer)
    texts = [f"Room {int(re.search('[0-9]+', prompt)[0]) % 2}, go:" for prompt in prompts]
    return output | {"prompt_ids": trainer.processing_class(text=texts)["input_ids"], "seed": 3, "mark": texts}


def in_another_spelling(prompts, trainer):
    """A rollout whose template adds to the prompt and changes its white space."""
    texts = ["System: answer.\n" + prompt.replace(" ", "  ") + "\nAnswer:" for prompt in prompts]
    return answers(prompts, trainer) | {"prompt_ids": trainer.processing_class(text=texts)["input_ids"]}


def with_numbers(prompts, trainer):
    """A rollout whose environment writes prompts in which the dataset's short ones stand by chance."""
    texts = [f"You are in room {7 - int(re.search('[0-9]+', prompt)[0])} and have 10 moves" for prompt in prompts]
    return answers(prompts, trainer) | {"prompt_ids": trainer.processing_class(text=texts)["input_ids"]}


SHORT = ["1", "2", "3", "4"]
IN_ANOTHER = ["Two?", "One and Two?", "One and Two? And Three?", "Four?"]


@pytest.mark.parametrize(
    ("rollout", "prompts"),
    [(answers, None), (answers, IN_ANOTHER), (own_prompt, None), (in_another_spelling, None), (with_numbers, SHORT)],
)
def test_a_rollout_may_write_prompts_of_its_own(rollout, prompts, tiny_model, tmp_path):
    dataset = Dataset.from_dict({"prompt": prompts}) if prompts else questions()
    trainer = train(tiny_model, tmp_path, dataset=dataset, trainer={"rollout_func": rollout}, max_steps=2)
    assert trainer.state.global_step == 2
    assert trainer.rollout_func is rollout
