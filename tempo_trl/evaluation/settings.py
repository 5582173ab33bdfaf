"""Settings of an evaluation. Each field of [`Settings`] is a flag of `tempo-trl evaluate`."""

from argparse import ArgumentParser
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

TASKS_FOLDER = Path(__file__).with_name("tasks")
EXAMPLES = """\
examples:
  tempo-trl evaluate --model runs/tempo --n 16 --backend vllm
  tempo-trl evaluate --model Qwen/Qwen3-1.7B --tasks math,amc23 --limit 20
  tempo-trl evaluate --model runs/tempo --tasks medqa --data_dir rows      # rows/medqa.jsonl with the Hub's columns

Repeat the command to resume an interrupted evaluation. lm-eval's own command runs the same tasks with greedy answers:
  lm_eval --model hf --model_args pretrained=Qwen/Qwen3-1.7B,enable_thinking=False --apply_chat_template \\
      --tasks tempo_math --include_path "$(python -m tempo_trl.evaluation)" [--metadata '{"data_dir": "rows"}']
"""
PAPER_TASKS = "math,gsm_hard,amc23,medqa,medmcqa,mmlu_medical"
BATCH_SIZES = {"hf": 16, "vllm": 4096}
_SIZES = ", ".join(f"{backend}: {size:,}" for backend, size in BATCH_SIZES.items())
# Maximum completion length of the paper's recipes, and of the authors' code, which lets the model think.
MAX_TOKENS, MAX_TOKENS_THINKING = 1024, 8192


def _flag(meaning: str, default=MISSING, metavar: str | None = None, choices: tuple[str, ...] | None = None):
    return field(default=default, metadata={"help": meaning, "metavar": metavar, "choices": choices})


class Decoding(NamedTuple):
    """How answers are sampled: `name` is part of file names, `n` the number of answers to each question."""

    name: str
    n: int
    temperature: float
    top_p: float
    top_k: int


GREEDY = Decoding("greedy", n=1, temperature=0.0, top_p=1.0, top_k=0)


@dataclass(frozen=True)
class Settings:
    """Settings of one evaluation. Raises ValueError for an invalid value."""

    model: str = _flag("folder of a model or of a PEFT adapter, or its name on the Hub", metavar="DIR_OR_ID")
    tasks: str = _flag("comma-separated names (default: the paper's six, %(default)s)", PAPER_TASKS, "NAMES")
    output: str | None = _flag("folder to write to (default: MODEL/evaluation, or ./evaluation/MODEL)", None, "DIR")
    backend: str = _flag("backend for generation (%(default)s)", "hf", choices=tuple(BATCH_SIZES))
    n: int = _flag("sampled answers per question, beside the greedy one, for avg@N, pass@k and maj@N", 0, "N")
    limit: int | None = _flag("use only the first N questions of each task", None, "N")
    data_dir: str | None = _flag("folder of local rows, TASK.jsonl, .json or .parquet", None, "DIR")
    thinking: bool = _flag("enable thinking in the chat template, with more tokens", False)
    max_tokens: int | None = _flag(
        f"maximum length of an answer, in tokens ({MAX_TOKENS}; with --thinking {MAX_TOKENS_THINKING})", None, "N"
    )
    temperature: float = _flag("temperature of the sampled answers (%(default)s, as in training)", 1.0, "T")
    top_p: float = _flag("top-p of the sampled answers (%(default)s)", 1.0, "P")
    top_k: int = _flag("top-k of the sampled answers (%(default)s: all tokens)", 0, "K")
    seed: int = _flag("seed of the sampled answers (%(default)s)", 0, "N")
    batch_size: int | None = _flag(f"answers generated together, then saved ({_SIZES})", None, "N")
    model_args: str = _flag("arguments for lm-eval's model: tensor_parallel_size=2", "", "KEY=VALUE,...")
    prompt_style: str = _flag("style of the prompts, as in training (%(default)s)", "boxed", "NAME")
    system_prompt: str | None = _flag("system message of the prompts, instead of the style's", None, "TEXT")
    instruction: str | None = _flag("last part of the user's message, instead of the style's", None, "TEXT")
    boxes: str = _flag("which boxes are the answer; all must be equal (%(default)s)", "last", choices=("last", "all"))
    overwrite: bool = _flag("delete existing answers and results of these tasks, and start over", False)

    def __post_init__(self):
        from tempo_trl.data import BENCHMARKS
        from tempo_trl.data.prompts import STYLES

        _expect("tasks", self.task_names, BENCHMARKS)
        _expect("backend", [self.backend], BATCH_SIZES)
        _expect("boxes", [self.boxes], ("last", "all"))
        _expect("prompt_style", [self.prompt_style], STYLES)
        for name, least in (("n", 0), ("limit", 1), ("max_tokens", 1), ("batch_size", 1), ("top_k", 0)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {least}. Raise it.")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature is {self.temperature}, expected more than 0. Raise it: greedy answers are included."
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, expected more than 0 and at most 1. Change it.")

    @property
    def task_names(self) -> list[str]:
        """Names of the tasks, once each."""
        return list(dict.fromkeys(name.strip() for name in self.tasks.split(",")))

    @property
    def decodings(self) -> list[Decoding]:
        """Greedy decoding, and sampling if `n` is above 0."""
        sampled = Decoding(f"n{self.n}", self.n, self.temperature, self.top_p, self.top_k)
        return [GREEDY, sampled] if self.n else [GREEDY]

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
        local = Path(self.model).expanduser()
        return local / "evaluation" if local.is_dir() else Path("evaluation") / self.model


def _expect(name: str, values: list[str], known) -> None:
    unknown = [value for value in values if value not in known]
    if unknown:
        raise ValueError(f"{name}: got {unknown[0]!r}, expected one of: {', '.join(known)}.")


def add_flags(parser: ArgumentParser) -> None:
    """The fields of [`Settings`] as flags."""
    for each in fields(Settings):
        shown = {"help": each.metadata["help"], "required": each.default is MISSING}
        if each.type is bool:
            parser.add_argument(f"--{each.name}", action="store_true", help=shown["help"])
            continue
        kind = next(kind for kind in (int, float, str) if kind in (each.type, *getattr(each.type, "__args__", ())))
        default = None if each.default is MISSING else each.default
        extra = {key: each.metadata[key] for key in ("metavar", "choices") if each.metadata[key]}
        parser.add_argument(f"--{each.name}", type=kind, default=default, **extra, **shown)
