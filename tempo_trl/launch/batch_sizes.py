"""Prompts, completions and steps of a run: the batch sizes that result on the devices of its launch."""

from importlib import import_module
from math import ceil, gcd, lcm
from typing import TYPE_CHECKING, NamedTuple

from tempo_trl.launch.fields import BUILT_IN
from tempo_trl.launch.plan import Engine, LaunchPlan
from tempo_trl.rollout.config_fields import EntropyTreeFields, FixedTreeFields

if TYPE_CHECKING:
    from argparse import Namespace

    from trl import GRPOConfig

    from tempo_trl.launch.fields import TrainArguments

# Rows of the Hub's train splits. Sources: papers 2103.03874 (MATH), 2009.13081 (MedQA), 2203.14371 (MedMCQA) on
# https://huggingface.co/papers.
TRAIN_PROMPTS = {"math": 7500, "medqa": 10_178, "medqa_5options": 10_178, "medmcqa": 182_822}
TRAIN_PROMPTS |= {"instructions": 3600, "ifeval_rl": 56_339}
TRAIN_PROMPTS |= {"orders": 3600, "calls": 3600, "word_sums": 3600}
TRAIN_PROMPTS |= {"function_calls": None}  # rows whose calls cannot be read are left out: how many, only loading tells
POSITIVE_FIELDS = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
    "num_iterations",
    "num_generations",
    "num_generations_eval",
)


class BatchSizes(NamedTuple):
    """How completions are batched.

    Args:
        devices, per_device, accumulation (`int`):
            Devices, completions of a micro-batch on each, micro-batches of an optimizer step.
        steps_per_generation, num_iterations, num_generations (`int`):
            Micro-batches that one sampling serves, times that it is used, completions of a prompt.
        epoch_prompts (`int` or `None`):
            Prompts of an epoch; None if they must be loaded to be counted.
    """

    devices: int
    per_device: int
    accumulation: int
    steps_per_generation: int
    num_iterations: int
    num_generations: int
    epoch_prompts: int | None

    @property
    def completions(self) -> int:
        """Completions of a generation, on all devices."""
        return self.devices * self.per_device * self.steps_per_generation

    @property
    def prompts(self) -> int:
        """Prompts of a generation."""
        return self.completions // self.num_generations

    @property
    def step_completions(self) -> int:
        """Completions of an optimizer step, on all devices."""
        return self.devices * self.per_device * self.accumulation

    @property
    def steps(self) -> float:
        """Optimizer steps that one generation serves."""
        return self.steps_per_generation * self.num_iterations / self.accumulation

    @property
    def whole_groups(self) -> bool:
        """Whether no group of completions lies on two devices."""
        return self.per_device * self.steps_per_generation % self.num_generations == 0


def batch_sizes_of(args: "GRPOConfig", devices: int, epoch_prompts: int | None) -> BatchSizes:
    """Batch sizes of a config that TRL has completed.

    Raises:
        ValueError: an epoch has too few prompts for a generation.
    """
    sizes = BatchSizes(
        devices=devices,
        per_device=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        steps_per_generation=args.steps_per_generation,
        num_iterations=args.num_iterations,
        num_generations=args.num_generations,
        epoch_prompts=epoch_prompts,
    )
    if epoch_prompts is not None and epoch_prompts < sizes.prompts:
        raise ValueError(
            f"a generation takes {sizes.prompts:,} prompts, but the training data have only {epoch_prompts:,}. Lower "
            "`steps_per_generation` or `per_device_train_batch_size`."
        )
    return sizes


def known_prompts(script_args: "TrainArguments") -> int | None:
    """Number of training prompts, if it is known without loading the data; None otherwise."""
    if script_args.task in BUILT_IN:
        return import_module(BUILT_IN[script_args.task].rpartition(".")[0]).TRAIN_PROBLEMS
    whole = script_args.train_file is None and script_args.dataset_train_split == "train"
    return TRAIN_PROMPTS.get(script_args.task) if whole and not script_args.drop_leaked_rows else None


def equation(sizes: BatchSizes) -> str:
    """The equation that prompts, devices and batch sizes satisfy, as a sentence."""
    return (
        f"The batch sizes work: {sizes.prompts:,} prompts x {sizes.num_generations} generations = "
        f"{_counted(sizes.devices, 'device')} x {sizes.per_device} completions x "
        f"{sizes.steps_per_generation} steps_per_generation."
    )


def batch_size_rows(sizes: BatchSizes, plan: LaunchPlan, args: "GRPOConfig") -> list[tuple[str, str]]:
    """Rows of a table that explains the batch sizes."""
    devices, worth = _counted(sizes.devices, "device"), sizes.step_completions / sizes.num_generations
    step = f"{_counted(sizes.accumulation, 'micro-batch', 'es')} x {devices} x {sizes.per_device}"
    step = f"{step} = {sizes.step_completions:,} completions, the equivalent of {_number(worth)} prompts"
    serves = f"{_counted(sizes.steps, 'optimizer step')} (num_iterations {sizes.num_iterations})"
    return [
        ("launch", f"{devices} on {_counted(plan.num_machines, 'machine')}, {plan.engine.name}"),
        *_engine_rows(plan.engine),
        ("micro-batch", f"{sizes.per_device} completions per device"),
        ("generation", f"{sizes.completions:,} completions of {sizes.prompts:,} prompts, for {serves}"),
        ("optimizer step", step),
        ("groups", "each on one device" if sizes.whole_groups else _SPLIT),
        *_tree_rows(args),
        *_length_rows(sizes, args),
        ("evaluation", _evaluation(args, sizes.devices)),
    ]


def _engine_rows(engine: Engine) -> list[tuple[str, str]]:
    split = bool(engine.sharded) and engine.shards > 1
    rows = [("sharded", f"{', '.join(engine.sharded)}: over {engine.shards}" if split else "nothing")]
    return [*rows, ("in main memory", ", ".join(engine.offloaded))] if engine.offloaded else rows


_SPLIT = "some are split over two devices, which does not change their credit"


def tree_kind(args: "GRPOConfig") -> str | None:
    """`"fixed"` or `"entropy"`: how the trees of this config split. None if completions are sampled independently."""
    kinds = {"fixed": FixedTreeFields, "entropy": EntropyTreeFields}
    rollout = getattr(args, "rollout", None)  # TEMPO's, which has the fields of both
    return next((kind for kind, fields in kinds.items() if isinstance(args, fields) and rollout in (None, kind)), None)


def _tree_rows(args: "GRPOConfig") -> list[tuple[str, str]]:
    kind, limit = tree_kind(args), args.max_completion_length
    if kind is None:
        return []
    if kind == "fixed":
        step, depth = args.tree_step_tokens or -(-limit // args.tree_depth), args.tree_depth
        longest = min(limit or depth * step, depth * step)
        shape = f"{args.tree_children} ** {depth} = {args.num_generations} completions, segments of at most {step:,}"
        return [("trees", f"{shape} tokens, completions of at most {longest:,}")]
    shortest = f"only segments of at least {args.tree_min_segment_tokens:,} tokens split"
    return [("trees", f"at most {args.num_generations} leaves, {args.tree_max_depth} segments deep, {shortest}")]


def _length_rows(sizes: BatchSizes, args: "GRPOConfig") -> list[tuple[str, str]]:
    rows, generations = [], None
    if sizes.epoch_prompts is not None:
        generations = sizes.epoch_prompts // sizes.prompts
        left = sizes.epoch_prompts % sizes.prompts
        rest = f"; {left:,} random prompts are left out" if left else ""
        rows.append(("epoch", f"{sizes.epoch_prompts:,} prompts: {_counted(generations, 'generation')}{rest}"))
    if args.max_steps > 0:
        total, steps, why = args.max_steps / sizes.steps, args.max_steps, f"max_steps {args.max_steps}"
    elif generations is not None:
        # As Trainer counts: an epoch ends with an optimizer step, if need be of fewer micro-batches.
        of_epoch = -(-generations * sizes.steps_per_generation * sizes.num_iterations // sizes.accumulation)
        total, steps = generations * args.num_train_epochs, ceil(args.num_train_epochs * of_epoch)
        why = f"{_counted(args.num_train_epochs, 'epoch')}"
    else:
        return rows
    return [*rows, ("run", f"{why}: {_counted(total, 'generation')}, {_counted(steps, 'optimizer step')}")]


def _evaluation(args: "GRPOConfig", devices: int) -> str:
    if not args.do_eval:
        return "none"
    group, rows = args.num_generations_eval or args.num_generations, devices * args.per_device_eval_batch_size
    batch = f"{_counted(devices, 'device')} x {args.per_device_eval_batch_size}"
    return f"batches of {batch} = {rows:,} completions of {rows // group:,} prompts ({group} each)"


def _counted(count: float, name: str, plural: str = "s") -> str:
    return f"{_number(count)} {name}{'' if count == 1 else plural}"


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def expect_positive(asked: "Namespace") -> None:
    """Raise ValueError for a batch size below 1: TRL divides by them."""
    for name in POSITIVE_FIELDS:
        value = getattr(asked, name)
        if value is not None and value < 1:
            raise ValueError(f"`{name}` is {value}, expected at least 1. Raise it.")


def advice_on_training(asked: "Namespace", devices: int) -> list[str]:
    """What to change if TRL rejects the batch sizes; an empty list if every generation holds whole groups."""
    rows, group = devices * asked.per_device_train_batch_size, asked.num_generations
    batch, steps = asked.generation_batch_size, asked.steps_per_generation
    if batch and steps:
        return [f"Got {batch} and {steps}. `--generation_batch_size None` unsets the first."]
    if batch:
        change = f"generation_batch_size {_round_up(batch, lcm(rows, group))}"
    else:
        batch = rows * (steps or asked.gradient_accumulation_steps)
        change = (
            f"steps_per_generation {_steps_of_whole_groups(rows, group, steps, asked.gradient_accumulation_steps)}"
        )
    if batch % lcm(rows, group) == 0:
        return []
    return [
        f"Expected whole groups: {_counted(devices, 'device')} x {asked.per_device_train_batch_size} completions x "
        f"steps_per_generation must be a multiple of {group} generations. `--{change}` works."
    ]


def advice_on_trees(args: "GRPOConfig") -> list[str]:
    """What to change if a device would get part of a tree; an empty list if each device gets whole trees."""
    group, rows = args.num_generations, args.per_device_train_batch_size
    if rows * args.steps_per_generation % group == 0:
        return []
    works = _steps_of_whole_groups(rows, group, args.steps_per_generation, args.gradient_accumulation_steps)
    return [f"A `steps_per_generation` of {works} works."]


def _steps_of_whole_groups(rows: int, group: int, steps: int | None, accumulation: int) -> int:
    """The next number of micro-batches of `rows` completions that holds whole groups. Whole updates stay whole."""
    steps, multiple = steps or accumulation, group // gcd(rows, group)
    return _round_up(steps, multiple if steps % accumulation else lcm(multiple, accumulation))


def advice_on_evaluation(asked: "Namespace | GRPOConfig", devices: int) -> list[str]:
    """Like [`advice_on_training`], for the groups of an evaluation."""
    group, rows = asked.num_generations_eval or asked.num_generations, asked.per_device_eval_batch_size
    if not asked.do_eval and str(getattr(asked.eval_strategy, "value", asked.eval_strategy)) == "no":
        return []
    if devices * rows % group == 0:
        return []
    works = _round_up(rows, group // gcd(devices, group))
    return [
        f"Expected whole groups in evaluation: {_counted(devices, 'device')} x {rows} per_device_eval_batch_size must "
        f"be a multiple of {group} generations. `--per_device_eval_batch_size {works}` works, or "
        "`--num_generations_eval 1`."
    ]


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
