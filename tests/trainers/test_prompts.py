"""Groups whose completions continue different prompts: credit compares those with the same prompt only."""

import functools

import pytest
import torch
from datasets import Dataset, IterableDataset
from PIL import Image

from tempo_trl.report import read_trees
from tempo_trl.trainers.agents import images_in
from tempo_trl.trainers.whole_groups import prompt_keys

from .recording import RecordingTrainer, assert_same_weights, parity, questions, train


class Riddles:
    """An environment that shows every other completion of a prompt another riddle; each has answers of its own."""

    shown = 0

    def reset(self, **columns):
        self.riddle = Riddles.shown % 2
        Riddles.shown += 1
        return f" riddle {self.riddle}"

    def look(self, x: int) -> int:
        """
        Looks.

        Args:
            x: Where.
        """
        return x


class Riddling:
    """Its completions begin alike and part by place: what they earn is their riddle's, `riddle_reward`."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        tails = ("ab x", "ab y", "ab z", "ab w")
        eos = self.processing_class.eos_token_id
        return [[*self.processing_class.encode(tails[i % 4]), eos] for i in range(len(prompt_ids))], None


class RiddleTrainer(Riddling, RecordingTrainer):
    pass


def riddle_reward(completions, environments, **columns):
    return [float(environment.riddle) for environment in environments]


def test_completions_of_different_prompts_share_no_state(tiny_model, tmp_path, said_once):
    trainer = train(
        tiny_model,
        tmp_path,
        cls=RiddleTrainer,
        dataset=questions(conversational=True),
        reward_funcs=riddle_reward,
        max_completion_length=200,
        max_steps=1,
        trainer={"environment_factory": Riddles},
    )
    assert len(said_once("continue different prompts")) == 1
    output = trainer.batches[0].output
    outcome, mask = output["outcome"][:, None], output["completion_mask"]
    torch.testing.assert_close(output["advantages"], outcome * mask)
    assert not read_trees(tmp_path).size


def test_rows_without_a_prompt_get_that_of_their_environment(tiny_model, tmp_path):
    class Shown(Riddles):
        def reset(self, **columns):
            self.riddle = 1
            return "the same for all"

    rows = Dataset.from_dict({"environment": ["a", "b"] * 4})
    factories = {"environment_factory": {"a": Shown, "b": Shown}}
    options = {"max_completion_length": 200, "max_steps": 1, "log_trees_steps": 1}
    trainer = train(tiny_model, tmp_path, cls=RiddleTrainer, dataset=rows, trainer=factories, **options)
    assert trainer.state.global_step == 1
    assert set(read_trees(tmp_path)["prompt"]) == {"user: the same for all"}


def test_prompts_have_one_number_wherever_they_are_padded():
    ids = torch.tensor([[0, 0, 5, 6], [5, 6, 0, 0], [5, 6, 0, 7], [0, 0, 0, 5]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
    keys = prompt_keys(ids, mask)
    assert keys.dtype == torch.int64
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_images_tell_prompts_apart_by_what_they_show():
    black, same, white = (Image.new("RGB", (2, 2), colour) for colour in ("black", "black", "white"))
    parts = [{"type": "text", "text": "look"}]
    prompts = [[{"role": "user", "content": [{"type": "image", "image": i}, *parts]}] for i in (black, same, white)]
    images = [list(images_in(prompt)) for prompt in prompts]
    keys = prompt_keys(torch.ones(3, 2, dtype=torch.long), torch.ones(3, 2), images)
    assert keys[0] == keys[1] != keys[2]
    assert list(images_in("plain text")) == list(images_in([{"role": "user", "content": "plain"}])) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"problem": ["a"]}, "the dataset has no column 'prompt', only problem"),
        ({"prompt": ["a"], "completions": ["b"]}, "the dataset has a column 'completions', but reward functions get"),
        ({"prompt": ["a"], "log_metric": ["b"]}, "the dataset has a column 'log_metric', but reward functions get"),
    ],
)
@pytest.mark.parametrize("place", ["train", "eval", "one of two for eval"])
def test_columns_that_trl_would_stumble_over_are_refused_before_the_model_is_loaded(columns, message, place, tmp_path):
    wrong, right = Dataset.from_dict({name: own * 8 for name, own in columns.items()}), questions(8)
    data = {
        "train": {"dataset": wrong},
        "eval": {"trainer": {"eval_dataset": wrong}},
        "one of two for eval": {"trainer": {"eval_dataset": {"right": right, "wrong": wrong}}},
    }
    with pytest.raises(ValueError, match=message):
        train("no/such-model", tmp_path, **data[place])


def test_columns_are_those_of_a_row_as_it_is_read(tiny_model, tmp_path):
    """A transform makes prompts, and hides a column that TRL would stumble over."""
    raw = Dataset.from_dict({"question": questions()["prompt"][:], "completions": ["b"] * 8})
    lazy = raw.with_transform(lambda rows: {"prompt": rows["question"]})
    ours, theirs = (train(tiny_model, tmp_path, dataset=own, max_steps=1) for own in (lazy, questions()))
    assert_same_weights(ours, theirs)


def test_a_column_of_environments_is_refused_where_functions_get_environments(tmp_path):
    rows = questions(conversational=True).add_column("environments", ["kitchen"] * 8)
    with pytest.raises(ValueError, match="the dataset has a column 'environments', but reward functions get"):
        train("no/such-model", tmp_path, dataset=rows, trainer={"environment_factory": Riddles})
    with pytest.raises(OSError, match="connect"):  # without environments it is a column like others
        train("no/such-model", tmp_path, dataset=rows)


def wrapped(function):
    """It passes on less than it takes."""

    @functools.wraps(function)
    def called(*, completions, **columns):
        return function(completions)

    return called


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda texts, **columns: [],
            "missing a required argument: 'texts'. Functions of `texts` are `span_",
        ),
        (lambda prompts, completions: [], "got an unexpected keyword argument '.*'. Rename a column, or add"),
        (wrapped(lambda completions: []), None),
        (max, None),  # without a signature
        (functools.partial(lambda key, **columns: [], key=1), None),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_the_model_is_loaded(function, message, tmp_path):
    with pytest.raises(OSError if message is None else ValueError, match=message or "connect"):
        train("no/such-model", tmp_path, reward_funcs=[parity, function])


def test_such_a_column_of_a_stream_is_refused_at_its_first_batch(tiny_model, tmp_path):
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": "a", "completions": "b"}] * 8))
    assert stream.column_names is None
    with pytest.raises(ValueError, match="the dataset has a column 'completions', but reward functions get"):
        train(tiny_model, tmp_path, dataset=stream)


@pytest.mark.parametrize("prompts", [["a", "b", "", "c"], [""] * 4])
def test_a_prompt_without_tokens_is_refused_also_among_others(prompts, tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"The prompt in row \d has no tokens, expected at least one. Drop the row"):
        train(tiny_model, tmp_path, dataset=Dataset.from_dict({"prompt": prompts}))
