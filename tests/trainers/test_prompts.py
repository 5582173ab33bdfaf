"""Groups whose completions continue different prompts: credit compares those with the same prompt only."""

import functools

import pytest
import torch
from datasets import Dataset, IterableDataset
from PIL import Image

from tempo_trl import TokenCreditConfig, TokenCreditTrainer
from tempo_trl.report import read_trees
from tempo_trl.trainers.agents import image_bytes, images_in
from tempo_trl.trainers.whole_groups import prompt_keys

from .recording import RecordingTrainer, assert_same_weights, config, parity, questions, train


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
    arrays = torch.zeros(2, 64, 64), torch.zeros(2, 64, 64), torch.zeros(2, 64, 64), torch.zeros(2, 32, 128)
    arrays[2][:, 20:40, 20:40] = 1  # in the middle, which `repr` leaves out
    for kind in (torch.Tensor.bfloat16, torch.Tensor.numpy):
        seen = [image_bytes(kind(tensor)) for tensor in arrays]
        assert seen[0] == seen[1] and len({*seen}) == 3
    assert image_bytes("a.png") == image_bytes("a.png") != image_bytes("b.png")
    assert list(images_in("plain text")) == list(images_in([{"role": "user", "content": "plain"}])) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"problem": ["a"]}, "the dataset has no column 'prompt', only problem"),
        ({"prompt": ["a"], "completions": ["b"]}, "the dataset has a column 'completions', but reward functions get"),
        ({"prompt": ["a"], "log_metric": ["b"]}, "the dataset has a column 'log_metric', but reward functions get"),
        ({"prompt": ["a", None]}, "the prompt of row 1 is null, expected text or messages. Drop the row."),
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


def wrapped(function):
    """It passes on less than it takes."""

    @functools.wraps(function)
    def called(*, completions, **columns):
        return function(completions)

    return called


class Judge:
    def __call__(self, completions, **columns):
        return [0.0] * len(completions)

    async def later(self, completions, key, **columns):
        return [0.0] * len(completions)


def without_a_signature(**columns): ...


without_a_signature.__signature__ = "none"
rows = questions().add_column("key", ["k"] * 8)
TAKEN = [  # functions, and what else the trainer gets
    (wrapped(lambda completions: []), {}),
    (functools.partial(lambda other, **columns: [], other=1), {}),
    (max, {}),
    (without_a_signature, {}),
    (Judge(), {}),
    (Judge().later, {}),
    ("no/such-reward-model", {}),
    (lambda prompts, completions, trainer_state, log_extra, log_metric, completion_ids: [], {"unused": True}),
    (lambda key, **columns: [], {"eval_dataset": questions()}),  # on which the run does not evaluate
    (lambda environments, **columns: [], {"environment_factory": Riddles}),
]
REFUSED = [
    (lambda texts, **columns: [], {}, r"missing a required .* 'texts'. Functions of `texts` are `span_reward_funcs`"),
    (
        lambda other, texts=None, **columns: [],
        {},
        "required argument: 'other'. Add the column to the dataset",
    ),
    (lambda prompts, completions: [], {}, r"unexpected keyword argument '\w+'. .* or \*\*columns to the function"),
    (lambda key, **columns: [], {"unused": True}, "missing a required argument: 'key'"),
    (lambda environments, **columns: [], {}, "missing a required argument: 'environments'"),
    (lambda key, **columns: [], {"eval_dataset": {"a": questions()}, "eval_strategy": "steps"}, "argument: 'key'"),
]


def built(function, unused=False, eval_strategy="no", **keywords):
    options = {"remove_unused_columns": unused, "eval_strategy": eval_strategy, "reward_funcs": [parity, function]}
    train("no/such-model", "unused", dataset=rows, **options, trainer=keywords)


@pytest.mark.parametrize(("function", "options"), TAKEN)
def test_a_function_that_trl_can_call_is_taken(function, options):
    with pytest.raises(OSError, match="connect"):  # the model is looked for next
        built(function, **options)


@pytest.mark.parametrize(("function", "options", "message"), REFUSED)
def test_a_function_that_cannot_be_called_is_refused_before_the_model_is_loaded(function, options, message):
    with pytest.raises(ValueError, match=f"`reward_funcs` .* cannot be called with what it gets .*{message}"):
        built(function, **options)


@pytest.mark.parametrize("argument", ["step_reward_funcs", "span_reward_funcs"])
def test_functions_of_steps_and_spans_are_called_likewise(argument, tmp_path):
    keywords = {argument: lambda other, **columns: [], "credit_func": lambda batch: batch.advantages}
    with pytest.raises(ValueError, match=f"`{argument}` .* missing a required argument: 'other'"):
        TokenCreditTrainer("no/such-model", parity, config(tmp_path, TokenCreditConfig), rows, **keywords)
    stream = rows.to_iterable_dataset()
    with pytest.raises(ValueError, match=f"`{argument}` .* missing a required argument: 'other'"):
        TokenCreditTrainer("no/such-model", parity, config(tmp_path, TokenCreditConfig), stream, **keywords)


def test_such_a_column_of_a_stream_is_refused_at_its_first_batch(tiny_model, tmp_path):
    stream = IterableDataset.from_generator(lambda: iter([{"prompt": "a", "completions": "b"}] * 8))
    assert stream.column_names is None
    with pytest.raises(ValueError, match="the dataset has a column 'completions', but reward functions get"):
        train(tiny_model, tmp_path, dataset=stream)


@pytest.mark.parametrize("prompts", [["a", "b", "", "c"], [""] * 4])
def test_a_prompt_without_tokens_is_refused_also_among_others(prompts, tiny_model, tmp_path):
    with pytest.raises(ValueError, match=r"The prompt in row \d has no tokens, expected at least one. Drop the row"):
        train(tiny_model, tmp_path, dataset=Dataset.from_dict({"prompt": prompts}))
