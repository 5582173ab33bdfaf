"""Settings of an evaluation. Each field of [`Settings`] is a flag of `tempo-trl evaluate`."""

import json
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple, get_args

EXAMPLES = """\
examples:
  tempo-trl evaluate --model runs/tempo --n 16 --backend vllm
  tempo-trl evaluate --model Qwen/Qwen3-1.7B --tasks math,amc23 --limit 20
  tempo-trl evaluate --model runs/tempo --tasks medqa --data_dir rows      # rows/medqa.jsonl with the Hub's columns

Repeat the command to resume an interrupted evaluation.
"""
PAPER_TASKS = "math,gsm_hard,amc23,medqa,medmcqa,mmlu_medical"
BATCH_SIZES = {"hf": 16, "vllm": 4096}
# Maximum completion length of the paper's recipes, and of the authors' code, which lets the model think.
MAX_TOKENS, MAX_TOKENS_THINKING = 1024, 8192
WORDS = ("system_prompt", "instruction", "prompt_style")  # of a prompt, in the order of `load_prompts`
# What is as in training, if the model is a run's and nothing else is given.
AS_TRAINED = (*WORDS, "chat_template_kwargs", "thinking", "max_tokens")


def _flag(meaning: str, default=MISSING, metavar: str | None = None, **options):
    """A field, and what argparse needs for its flag."""
    return field(default=default, metadata={"help": meaning, "metavar": metavar, **options})


class Decoding(NamedTuple):
    """How answers are sampled: `name` is part of file names, `n` the number of answers to each question."""

    name: str
    n: int
    temperature: float
    top_p: float
    top_k: int
    seed: int


GREEDY = Decoding("greedy", n=1, temperature=0.0, top_p=1.0, top_k=0, seed=0)


@dataclass(frozen=True)
class Settings:
    """Settings of one evaluation. Raises ValueError for an invalid value."""

    model: str = _flag("folder of a model or of a PEFT adapter, or its name on the Hub", metavar="DIR_OR_ID")
    tasks: str = _flag("comma-separated names (default: the paper's six, %(default)s)", PAPER_TASKS, "NAMES")
    output: str | None = _flag("folder to write to (default: MODEL/evaluation, or ./evaluation/MODEL)", None, "DIR")
    backend: str = _flag("backend for generation (%(default)s)", "hf", choices=tuple(BATCH_SIZES))
    n: int = _flag("sampled answers per question, beside the greedy one, for avg@N, pass@k and maj@N", 0, "N")
    limit: int | None = _flag("use only the first N questions of each task", None, "N")
    split: str | None = _flag("split of the rows, or a slice of it (default: each task's own)", None, "NAME")
    data_dir: str | None = _flag("folder of local rows, TASK.jsonl, .json or .parquet", None, "DIR")
    thinking: bool | None = _flag("enable thinking in the chat template (default: the run's, else no)", False)
    chat_template_kwargs: Mapping | None = _flag(
        "other arguments of the chat template (default: the run's)", None, "JSON", type=json.loads
    )
    max_tokens: int | None = _flag(
        f"tokens of an answer (default: the run's, else {MAX_TOKENS}, with thinking {MAX_TOKENS_THINKING})", None, "N"
    )
    temperature: float = _flag("temperature of the sampled answers (%(default)s, whatever the run's is)", 1.0, "T")
    top_p: float = _flag("top-p of the sampled answers (%(default)s)", 1.0, "P")
    top_k: int = _flag("top-k of the sampled answers (%(default)s: all tokens)", 0, "K")
    seed: int = _flag("seed of the sampled answers (%(default)s)", 0, "N")
    batch_size: int | None = _flag("answers generated together, then saved (hf: 16, vllm: 4,096)", None, "N")
    model_args: str = _flag("arguments for lm-eval's model: tensor_parallel_size=2", "", "KEY=VALUE,...")
    prompt_style: str = _flag("style of the prompts (default: the run's, else boxed)", "boxed", "NAME")
    system_prompt: str | None = _flag("system message (default: the run's, else the style's)", None, "TEXT")
    instruction: str | None = _flag("end of the user's message (default: the run's, else the style's)", None, "TEXT")

    def __post_init__(self):
        from tempo_trl.data import BENCHMARKS

        if unknown := [name for name in self.task_names if name not in BENCHMARKS]:
            raise ValueError(f"tasks: got {unknown[0]!r}, expected some of: {', '.join(BENCHMARKS)}.")
        if not isinstance(self.chat_template_kwargs, Mapping | None):
            raise ValueError(f"chat_template_kwargs is {self.chat_template_kwargs!r}, expected a JSON object.")
        for name, least in (("n", 0), ("limit", 1), ("max_tokens", 1), ("batch_size", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {least}. Raise it.")
        if self.split and self.data_dir:
            raise ValueError(f"got split {self.split!r} and data_dir, whose files have no splits. Remove one.")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature is {self.temperature}, expected more than 0. Raise it: greedy answers are included."
            )
        if not self.n and self._sampled[2:] != Settings(self.model, n=1)._sampled[2:]:
            raise ValueError("temperature, top_p, top_k and seed are for sampled answers, of which n is 0. Raise n.")

    @classmethod
    def of(cls, model: str, **given) -> "Settings":
        """The settings that are given. Of the others those in `AS_TRAINED` are the run's, if `model` is a run's."""
        return cls(model=model, **as_trained(model) | given)

    @property
    def task_names(self) -> list[str]:
        """Names of the tasks, once each."""
        return list(dict.fromkeys(name.strip() for name in self.tasks.split(",")))

    @property
    def decodings(self) -> list[Decoding]:
        """Greedy decoding, and sampling if `n` is above 0."""
        return [GREEDY, self._sampled] if self.n else [GREEDY]

    @property
    def _sampled(self) -> Decoding:
        return Decoding(f"n{self.n}", self.n, self.temperature, self.top_p, self.top_k, self.seed)

    @property
    def model_arguments(self) -> dict:
        """`model_args` as lm-eval reads them."""
        from lm_eval.utils import simple_parse_args_string

        return simple_parse_args_string(self.model_args)

    @property
    def tokens(self) -> int:
        """Maximum length of an answer, in tokens."""
        return self.max_tokens or (MAX_TOKENS_THINKING if self.thinking else MAX_TOKENS)

    @property
    def batch(self) -> int:
        """Number of answers generated together."""
        return self.batch_size or BATCH_SIZES[self.backend]

    @property
    def folder(self) -> Path:
        """The folder for results."""
        if self.output:
            return Path(self.output)
        return Path(self.model) / "evaluation" if Path(self.model).is_dir() else Path("evaluation") / self.model


def as_trained(model: str) -> dict:
    """The settings in `AS_TRAINED` of the run in a folder, or of a checkpoint in it, by its record; none without."""
    from tempo_trl.runs.run import home_of, record_of

    config = record_of(home_of(Path(model))).get("config") if Path(model).is_dir() else None
    if not config:
        return {}
    script, training = (config.get(part) or {} for part in ("script", "training"))
    words = {name: script[name] for name in WORDS if script.get(name) is not None}
    others = dict(training.get("chat_template_kwargs") or {})
    thinking = others.pop("enable_thinking", None)  # None is the template's default
    template = {"chat_template_kwargs": others or None, "thinking": thinking}
    return words | template | {"max_tokens": training.get("max_completion_length")}


def add_flags(parser: ArgumentParser) -> None:
    """The fields of [`Settings`] as flags. Those in `AS_TRAINED` are left out where they are not given."""
    for each in fields(Settings):
        kind = next(iter(get_args(each.type)), each.type)  # int of `int | None`
        options = {"action": BooleanOptionalAction} if kind is bool else {"type": kind}
        default = SUPPRESS if each.name in AS_TRAINED else each.default
        parser.add_argument(
            f"--{each.name}", default=default, required=each.default is MISSING, **options | each.metadata
        )
