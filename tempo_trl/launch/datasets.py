"""The prompts of a run: of a benchmark, of a built-in task, or of any dataset that TRL's scripts load."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import trl

from tempo_trl import rewards
from tempo_trl.data import BENCHMARKS, check_leaks, load_prompts
from tempo_trl.launch.arguments import RunArguments
from tempo_trl.launch.fields import BUILT_IN, TrainArguments
from tempo_trl.launch.functions import load_function
from tempo_trl.rewards.mean_reward import without_options

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_datasets(arguments: RunArguments) -> "tuple[Dataset, Dataset | None]":
    """The training prompts, and the evaluation prompts if the run evaluates."""
    task = arguments.script.task
    load = _load_as_trl_does if task is None else _load_benchmark if task in BENCHMARKS else _load_task
    return load(arguments.script, arguments.training, arguments.mixture)


def _load_benchmark(script_args, training_args, _):
    prompt_settings = script_args.system_prompt, script_args.instruction, script_args.prompt_style or "boxed"
    train_split, eval_split = script_args.dataset_train_split, _eval_split(script_args)
    train_dataset = load_prompts(script_args.task, train_split, script_args.train_file, *prompt_settings)
    if not (_evaluates(training_args) or script_args.drop_leaked_rows):
        return train_dataset, None
    is_local = script_args.train_file or script_args.eval_file
    if not is_local and eval_split in (train_split, train_split.partition("[")[0]):  # function_calls has one split
        same = f"the evaluation rows, {eval_split!r}, include all training rows, {train_split!r}"
        raise ValueError(f"{same}. Set `dataset_train_split` to train[:-500], `dataset_test_split` to train[-500:].")
    eval_dataset = load_prompts(script_args.task, eval_split, script_args.eval_file, *prompt_settings)
    train_dataset = check_leaks(train_dataset, eval_dataset, drop=script_args.drop_leaked_rows)
    return train_dataset, eval_dataset if _evaluates(training_args) else None


def _evaluates(args: trl.GRPOConfig) -> bool:
    return args.do_eval or args.eval_on_start


def _eval_split(script_args: TrainArguments) -> str:
    """The evaluation split: `dataset_test_split`, or the benchmark's own if it lacks that default."""
    benchmark, split = BENCHMARKS[script_args.task], script_args.dataset_test_split
    return benchmark.eval_split if split == "test" and split not in benchmark.splits else split


def _load_task(script_args, training_args, _):
    load = load_function(BUILT_IN.get(script_args.task, script_args.task))
    # Held-out rows do not depend on the seed, so that runs of different seeds are compared on the same ones.
    return _rows(load, "train", training_args.seed), _rows(load, "test", 0) if _evaluates(training_args) else None


def _rows(load: Callable, split: str, seed: int) -> "Dataset":
    expected = "`task` must be a function `load(split, seed)` that returns a Dataset"
    try:
        found = load(split, seed)
    except TypeError as error:  # of the call, or in the function: the traceback says which
        raise ValueError(f"{expected}, got {error!r}.") from error
    if not hasattr(found, "column_names"):
        raise ValueError(f"{expected}, got {found!r:.100}.")
    return found


def _load_as_trl_does(script_args, training_args, mixture):
    if mixture.datasets:
        dataset = _mixture_of(mixture)
    else:
        from datasets import load_dataset

        streaming = script_args.dataset_streaming
        dataset = load_dataset(script_args.dataset_name, name=script_args.dataset_config, streaming=streaming)
    eval_dataset = _split(dataset, "dataset_test_split", script_args) if _evaluates(training_args) else None
    return _split(dataset, "dataset_train_split", script_args), eval_dataset


def _mixture_of(mixture: "trl.DatasetMixtureConfig") -> "DatasetDict":
    """The datasets of a mixture, with its test split, if it has one."""
    dataset = trl.get_dataset(replace(mixture, test_split_size=None))
    if mixture.test_split_size is None:
        return dataset
    # TRL draws the split without a seed: each rank, and a run that resumes, would hold out other rows.
    return dataset["train"].train_test_split(test_size=mixture.test_split_size, seed=0)


def _split(dataset: "DatasetDict", field: str, script_args: TrainArguments) -> "Dataset":
    name = getattr(script_args, field)
    if name not in dataset:
        raise ValueError(f"`{field}` is {name!r}, expected a split of the data: {', '.join(dataset)}. Set it to one.")
    return dataset[name]


def refuse_functions_that_fail(functions: Iterable[Callable], *datasets: "Dataset | None") -> None:
    """
    Raise ValueError for a reward function of this package that cannot read one of the first 10,000 rows, which takes
    from seconds to a minute. Of a stream, and for `json_schema`, which asks a child process, only the first row is
    read. A run meets a later one when it samples it.
    """
    for function, dataset in product(functions, datasets):
        ours = _ours(function)
        if ours and dataset and dataset.column_names:  # those of a stream may be unknown
            columns = {*dataset.column_names} - {"prompt", "completion"}  # TRL does not pass these
            cells = _first_cells(dataset, columns, 1 if ours is rewards.json_schema else 10_000)
            empty = [""] * len(next(iter(cells.values()), [""]))
            function(**{"texts": empty, "completions": empty} | cells)


def _first_cells(dataset: "Dataset", columns: set[str], rows: int) -> dict[str, list]:
    if not hasattr(dataset, "__len__"):
        return {name: [value] for name, value in next(iter(dataset)).items() if name in columns}
    return {name: dataset[name][:rows] for name in columns - {"image", "images"}}  # which would be decoded


def _ours(function: Callable) -> Callable | None:
    """The function of this package that a reward function is, with options or as a `mean_reward`; None of another."""
    function = without_options(function)
    if hasattr(function, "with_tokenizer"):  # a `mean_reward`
        function = without_options(function.with_tokenizer.args[0])
    return function if any(function is each for each in vars(rewards).values()) else None
