"""The fields that this package adds to a training run. Fields of method, model and dataset mixture are TRL's."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trl import ScriptArguments

from tempo_trl.config_help import with_help
from tempo_trl.data import BENCHMARKS
from tempo_trl.data.prompts import STYLES
from tempo_trl.methods import METHODS

if TYPE_CHECKING:
    from tempo_trl.data import Benchmark

BUILT_IN = {"sums": "tempo_trl.demo.task.load"}  # with a tiny model of its own
TASKS = (*BENCHMARKS, *BUILT_IN)
# Shorthands. Every other function is named by its dotted path.
_PLACED = ("json_fields", "json_schema", "tool_call_fields", "equations")
_TRLS = ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward", "get_soft_overlong_punishment")
REWARDS = {f"{name}_reward": f"tempo_trl.rewards.{name}_reward" for name in ("math", "choice", "format", *_PLACED)}
REWARDS |= {name: f"trl.rewards.{name}" for name in _TRLS}
SPAN_REWARDS = {name: f"tempo_trl.rewards.{name}" for name in _PLACED}  # which return rewards with a place


@with_help
@dataclass
class TrainArguments(ScriptArguments):
    """
    Method, data, rewards and credit function of a run, beside the fields of [`~trl.ScriptArguments`].

    Args:
        method (`str`, *optional*, defaults to `"tempo"`):
            A method of [`~tempo_trl.methods.METHODS`]. It determines the trainer and its config.
        task (`str`, *optional*):
            Built-in prompts instead of `dataset_name`: a benchmark of [`~tempo_trl.data.BENCHMARKS`] (`"math"`,
            `"medqa"`, `"medqa_5options"`, `"medmcqa"`, `"function_calls"`; without a download `"orders"`; with a
            `train_file` also the benchmarks without a training split: `"gsm_hard"`, `"amc23"`, `"mmlu_medical"`), or
            `"sums"` (sums of digits), which trains a tiny built-in model unless `model_name_or_path` is set. Or the
            dotted path of a function that returns a dataset, called with the split (`"train"` or `"test"`) and a
            seed.
        train_file (`str`, *optional*):
            Local file of a benchmark's training rows, instead of the Hub's `dataset_train_split`.
        eval_file (`str`, *optional*):
            Local file of a benchmark's evaluation rows, instead of the Hub's `dataset_test_split`. If that is left
            at `"test"` and the benchmark has no such split, its own evaluation split is used (MedMCQA:
            `validation`).
        system_prompt (`str`, *optional*):
            System message of a benchmark's prompts. An empty text removes it. Defaults to that of the benchmark or of
            the prompt style.
        instruction (`str`, *optional*):
            Last part of the user's message in a benchmark's prompts. It must ask for the format that the reward
            reads, a box. Defaults to that of the prompt style.
        prompt_style (`str`, *optional*):
            Wording and layout of a benchmark's prompts: `"boxed"` (default) or `"authors-code"`
            ([`~tempo_trl.data.prompts`]).
        drop_leaked_rows (`bool`, *optional*, defaults to `False`):
            Whether to drop a benchmark's training rows that are also evaluation rows. Otherwise they are kept and
            listed in a warning ([`~tempo_trl.data.leaks.check_leaks`]).
        reward_funcs (`list[str]`, *optional*):
            Reward functions: `"math_reward"`, `"choice_reward"`, `"json_fields_reward"`, `"json_schema_reward"`,
            `"tool_call_fields_reward"`, `"equations_reward"`, `"format_reward"` (use a weight of 0 in
            `reward_weights` to log it only), `"accuracy_reward"`, `"reasoning_accuracy_reward"`,
            `"think_format_reward"`, `"get_soft_overlong_punishment"` (with `max_completion_len=1280`,
            `soft_punish_cache=256`, as in TRL's script), or the dotted path of a function.
        reward_model_name_or_path (`str`, *optional*):
            Reward model, on the Hub or in a folder. It comes before `reward_funcs` in `reward_weights`.
        credit_func (`str`, *optional*):
            Dotted path of a credit function. Required by method `"token_credit"`, an error with any other method.
        step_reward_funcs (`list[str]`, *optional*):
            Rewards per turn or step: dotted paths of functions, or process reward models (a folder, or an id with a
            slash on the Hub).
        span_reward_funcs (`list[str]`, *optional*):
            Rewards with a place: `"json_fields"`, `"json_schema"`, `"tool_call_fields"`, `"equations"`, or dotted
            paths of functions. `reward_funcs` may then be left out.
        observation_key_func (`str`, *optional*):
            Dotted path of a function from the text of a tool's answer to what identifies the state.
        tools (`list[str]`, *optional*):
            Dotted paths of the functions that the model may call.
        environment_factory (`str`, *optional*):
            Dotted path of a class, or of another callable without arguments, that makes TRL's environments. Their
            public methods are the tools of the policy.

    Raises:
        ValueError: an unknown method, task, style or reward; no reward; no training data; a field that the task does
            not read.
    """

    method: str = field(default="tempo", metadata={"help": f"Trainer and config, one of: {', '.join(METHODS)}."})
    task: str | None = None
    train_file: str | None = None
    eval_file: str | None = None
    system_prompt: str | None = None
    instruction: str | None = None
    prompt_style: str | None = None
    drop_leaked_rows: bool = False
    reward_funcs: list[str] | None = None
    reward_model_name_or_path: str | None = None
    credit_func: str | None = None
    step_reward_funcs: list[str] | None = None
    span_reward_funcs: list[str] | None = None
    observation_key_func: str | None = None
    tools: list[str] | None = None
    environment_factory: str | None = None

    def __post_init__(self):
        expect_one_of("method", self.method, METHODS)
        if self.task is not None and "." not in self.task:
            expect_one_of("task", self.task, TASKS, "the dotted path of a function")
        for field_name, known in (("reward_funcs", REWARDS), ("span_reward_funcs", SPAN_REWARDS)):
            for name in getattr(self, field_name) or []:
                if "." not in name:
                    expect_one_of(field_name, name, known, "the dotted path of a function")
        rewards = self.reward_funcs or self.reward_model_name_or_path or self.environment_factory
        if not (rewards or self.span_reward_funcs):
            raise ValueError("got no reward. Set `reward_funcs` or `reward_model_name_or_path`.")
        if self.prompt_style is not None:
            expect_one_of("prompt_style", self.prompt_style, STYLES)
        self._check_benchmark(BENCHMARKS.get(self.task))

    def _check_benchmark(self, benchmark: "Benchmark | None") -> None:
        unread = () if benchmark else _OF_BENCHMARKS
        if self.task:
            unread += _OF_DATASETS if benchmark else (*_OF_DATASETS, *_OF_SPLITS)
        defaults = {name: type(self).__dataclass_fields__[name].default for name in unread}
        given = ", ".join(name for name, default in defaults.items() if getattr(self, name) != default)
        if given:
            instead = "" if benchmark else f", or set `task` to a benchmark: {', '.join(BENCHMARKS)}"
            raise ValueError(f"got {given} with `task` = {self.task!r}, which does not read it. Remove it{instead}.")
        if benchmark and benchmark.train_split is None and self.train_file is None:
            raise ValueError(f"`task` is {self.task!r}, which has no training split. Set `train_file`.")


_OF_BENCHMARKS = ("train_file", "eval_file", "system_prompt", "instruction", "prompt_style", "drop_leaked_rows")
_OF_DATASETS = ("dataset_config", "dataset_streaming")
_OF_SPLITS = ("dataset_train_split", "dataset_test_split")


def expect_one_of(name: str, value: str, known: Collection[str], otherwise: str | None = None) -> None:
    if value not in known:
        expected = ", ".join([*known, *([otherwise] if otherwise else [])])
        raise ValueError(f"`{name}` is {value!r}, expected one of: {expected}. Correct it.")
