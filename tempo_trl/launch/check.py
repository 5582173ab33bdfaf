"""`tempo-trl train --check`: describes a run from its arguments alone. Loads nothing and starts nothing."""

import sys
import warnings
from argparse import Namespace
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table
from transformers import PretrainedConfig
from trl import GRPOConfig, get_peft_config

from tempo_trl.launch.arguments import RunArguments, class_of, parse, recipe_parser
from tempo_trl.launch.batch_sizes import (
    BatchSizes,
    advice_on_evaluation,
    advice_on_training,
    advice_on_trees,
    batch_size_rows,
    batch_sizes_of,
    equation,
    expect_positive,
    known_prompts,
    tree_kind,
)
from tempo_trl.launch.functions import load_functions, load_rewards
from tempo_trl.launch.known_models import KNOWN, model_config
from tempo_trl.launch.memory import Row, critic_of, estimate, needs, policy_of, prompt_tokens, readable
from tempo_trl.launch.model_shape import model_shape
from tempo_trl.launch.plan import WEIGHTS, Engine, LaunchPlan, launch_arguments, launch_plan
from tempo_trl.launch.train import model_path
from tempo_trl.methods.ppo import PPOConfig
from tempo_trl.trainers.run import refuse_missing_extras
from tempo_trl.trainers.settings import clamp_of_cispo
from tempo_trl.trainers.token_credit import TokenCreditTrainer

COLUMNS = 100  # of output that does not go to a terminal


def check(argv: list[str]) -> None:
    """Print the batch sizes, the memory estimate and the vLLM server's command of the run that `argv` would start.

    Raises:
        ValueError: the run would fail. The message says what was got, what was expected, and what to change.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the run prints them
        launched = launch_arguments(argv)
        parser, flags, _ = recipe_parser(argv)
        asked = parser.parse_known_args(flags)[0]
        plan = launch_plan(launched, use_cpu=bool(asked.use_cpu))
        arguments = parse_as_launched(launched.training_script_args, asked, plan.num_processes)
        _refuse_functions(arguments)
        refuse(arguments.training, plan, use_cpu=bool(asked.use_cpu or launched.cpu))
        sizes = batch_sizes_of(arguments.training, plan.num_processes, known_prompts(arguments.script))
        notes = note_on_this_machine(launched.training_script_args, plan.num_processes)
        _print(sizes, plan._replace(notes=plan.notes + notes), arguments)


def parse_as_launched(argv: list[str], asked: Namespace, devices: int) -> RunArguments:
    """[`~tempo_trl.launch.arguments.parse`] on each of `devices` devices, with TRL's own validation.

    The config counts the processes of the launch instead of the current one, and is built for the CPU, because the
    machine that checks may have other devices than the machine that trains. `asked` holds the fields as the user set
    them.

    Raises:
        ValueError: as `parse`; the message also says what to change if a generation would not hold whole groups.
    """
    expect_positive(asked)
    on_any_machine = patch("transformers.training_args.is_torch_tf32_available", lambda: True)
    with _counting(devices), on_any_machine:
        try:
            return parse([*argv, "--use_cpu", "true"])
        except ValueError as error:
            change = [*advice_on_training(asked, devices), *advice_on_evaluation(asked, devices)]
            if not change:
                raise
            raise ValueError(" ".join([f"{str(error).rstrip('.')}.", *change])) from error


def _counting(devices: int) -> AbstractContextManager:
    """The config counts so many processes inside the block."""
    return patch.object(GRPOConfig, "world_size", devices)


def note_on_this_machine(argv: list[str], devices: int) -> tuple[str, ...]:
    """Why a run that passes every other check would stop at once on the machine that checks; empty if it would not."""
    try:
        with _counting(devices):
            parse(argv)
    except ValueError as error:
        problem = " ".join(str(error).split()).rstrip(".")
        return (f"on this machine the run would stop at once: {problem}. To train here, pass `--use_cpu true`.",)
    return ()


def refuse(args: GRPOConfig, plan: LaunchPlan, use_cpu: bool) -> None:
    """Raise ValueError for a problem that a run would otherwise meet after its launch, or at its end."""
    if args.max_completion_length is None:
        raise ValueError(
            "`max_completion_length` is None, expected a number: the check needs the length of completions. Set it."
        )
    for message in advice_on_evaluation(args, plan.num_processes):  # TRL looks only if `eval_strategy` is set
        raise ValueError(message)
    if tree_kind(args):
        _refuse_trees(args)
    if args.use_vllm:
        _refuse_sampling(args, plan.num_processes, use_cpu)
    if isinstance(args, PPOConfig):
        _refuse_critic(plan.engine)
    if plan.engine.activation_checkpointing and args.gradient_checkpointing:
        raise ValueError(
            "`gradient_checkpointing` and accelerate's `fsdp_activation_checkpointing` are both on, expected at most "
            "one of them. Pass `--gradient_checkpointing false`, or set the other to false in the accelerate "
            "configuration."
        )


def _refuse_functions(arguments: RunArguments) -> None:
    """Raise ValueError for functions that cannot be imported, lack a package, or do not have a weight each."""
    script, args = arguments.script, arguments.training
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, which launches the run
    rewards = load_rewards(script)
    functions = {"reward_funcs": rewards, **load_functions(script)}
    try:
        refuse_missing_extras(rewards)
    except ImportError as error:
        raise ValueError(str(error)) from error
    trainer = class_of(script.method, "Trainer")
    if issubclass(trainer, TokenCreditTrainer):
        trainer.check_functions(functions.get("step_reward_funcs"), functions.get("span_reward_funcs"))
    if not rewards and script.span_reward_funcs:
        functions["reward_funcs"] = ["the mean of the criteria"]
    for name in ("reward_funcs", "step_reward_funcs", "span_reward_funcs"):
        field = f"{name.removesuffix('_funcs')}_weights"
        weights, expected = getattr(args, field, None), len(functions.get(name, []))
        if weights is not None and len(weights) != expected:
            raise ValueError(
                f"`{field}` has {len(weights)} numbers, expected {expected}: one per function of `{name}`"
                f"{', the reward model first' * bool(script.reward_model_name_or_path)}. Change one of them."
            )


def _refuse_trees(args: GRPOConfig) -> None:
    from tempo_trl.rollout.tree_requirements import check_trees_can_grow

    try:
        check_trees_can_grow(args)
    except ValueError as error:
        raise ValueError(" ".join([str(error), *advice_on_trees(args)])) from error


def _refuse_critic(engine: Engine) -> None:
    if engine.kind == "FSDP" or (engine.kind == "DeepSpeed" and WEIGHTS in engine.sharded):
        raise ValueError(
            f"PPO does not support {engine.name}: it splits the policy's weights, but every rank needs the whole "
            "critic. Expected ZeRO-2, DDP or one process. Pass `--accelerate_config zero2`."
        )


def _refuse_sampling(args: GRPOConfig, devices: int, use_cpu: bool) -> None:
    if args.vllm_mode not in ("colocate", "server"):
        raise ValueError(f"`vllm_mode` is {args.vllm_mode!r}, expected colocate or server. Set it to one of them.")
    room, split = args.vllm_max_model_length, args.vllm_tensor_parallel_size
    if room is not None and room <= args.max_completion_length:
        raise ValueError(
            f"`vllm_max_model_length` is {room}, expected more than `max_completion_length` = "
            f"{args.max_completion_length}: it must hold prompt and completion. Raise it, or unset it."
        )
    if args.vllm_mode == "server":
        return
    if use_cpu:
        raise ValueError(
            "`vllm_mode` is colocate on a CPU, expected GPUs. Pass `--use_vllm false` or `--vllm_mode server`."
        )
    if split < 1 or devices % split:
        raise ValueError(
            f"`vllm_tensor_parallel_size` is {split}, expected a divisor of the {devices} processes: engines share "
            f"them evenly. Set it to one of {', '.join(str(n) for n in range(1, devices + 1) if devices % n == 0)}."
        )
    if not 0.0 < args.vllm_gpu_memory_utilization < 1.0:
        raise ValueError(
            f"`vllm_gpu_memory_utilization` is {args.vllm_gpu_memory_utilization}, expected a number between 0 and 1: "
            "vLLM's share of each device's memory. Training uses the rest."
        )


def _print(sizes: BatchSizes, plan: LaunchPlan, arguments: RunArguments) -> None:
    console = Console(width=None if sys.stdout.isatty() else COLUMNS, markup=False, highlight=False)
    console.print(equation(sizes) + "\n", soft_wrap=True)
    console.print(_table(batch_size_rows(sizes, plan, arguments.training)))
    _print_memory(console, plan, arguments)
    for note in [*plan.notes, *_notes(arguments)]:
        console.print(f"\nNote: {note}")
    _print_server(console, arguments)


def _print_memory(console: Console, plan: LaunchPlan, arguments: RunArguments) -> None:
    try:
        prompt, rows = memory_rows(plan, arguments)
        is_read = config_of(arguments)[1]
    except (OSError, ValueError, KeyError, AttributeError, ImportError) as error:  # whatever a model's code raises
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        console.print(
            f"\nMemory: no estimate, because the model's config.json could not be read from its folder or the Hub: "
            f"{reason}"
        )
        return
    source = "" if is_read else ", from the sizes that this package knows, because config.json could not be read"
    updating, sampling = needs(rows, arguments.training)
    console.print(
        f"\nMemory per device, estimated for prompts of {prompt} tokens: at least "
        f"{readable(max(updating, sampling))} ({readable(updating)} for updates, {readable(sampling)} for "
        f"sampling){source}\n"
    )
    console.print(_table([(row.name, readable(row.size), row.where, row.formula) for row in rows]))


def memory_rows(plan: LaunchPlan, arguments: RunArguments) -> tuple[int, list[Row]]:
    """The assumed number of tokens in a prompt, and the rows of the estimate.

    Reads the config.json of the model, and of the model that a critic starts from, from their folders or the Hub; the
    shapes of the models of our recipes are known. It reads no weights. The critic does not use the policy's adapters.
    """
    _, args, model_args, _ = arguments
    trust, critic = args.trust_remote_code, None
    config, _ = config_of(arguments)
    policy = policy_of(model_shape(config, get_peft_config(model_args), trust), plan, args, model_args, config)
    if isinstance(args, PPOConfig) and not args.shared_trunk:  # whose value head on the policy is next to nothing
        named = args.critic_model_name_or_path
        start = config if named is None else model_config(named, trust_remote_code=trust)[0]
        critic = critic_of(model_shape(start, trust_remote_code=trust), args)
    prompt = prompt_tokens(args, config)
    return prompt, estimate(policy, critic, prompt, args)


def config_of(arguments: RunArguments) -> tuple[PretrainedConfig, bool]:
    """[`~tempo_trl.launch.known_models.model_config`] of the run's model."""
    name = arguments.model.model_name_or_path
    path = name if name in KNOWN else model_path(arguments)
    trust = arguments.training.trust_remote_code
    return model_config(path, revision=arguments.model.model_revision, trust_remote_code=trust)


def _table(rows: list[tuple]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


def _notes(arguments: RunArguments) -> list[str]:
    script_args, args, *_ = arguments
    read_late = [name for name in ("deepspeed", "fsdp") if getattr(args, name, None)]
    notes = [f"`{name}` of the recipe is not read here: what it shards is counted in full." for name in read_late]
    if args.steps_per_generation * args.num_iterations % args.gradient_accumulation_steps:
        notes.append("some optimizer steps train on completions of two generations.")
    if script_args.reward_model_name_or_path:
        notes.append("the reward model's memory is not counted.")
    if (message := clamp_of_cispo(args)) is not None:
        notes.append(message)
    return [*notes, *_notes_on_sampling(args)]


def _notes_on_sampling(args: GRPOConfig) -> list[str]:
    """Warns that truncated sampling drives a sequence-level importance ratio to 0.

    Truncated sampling (top_p and the like) gives the tokens that it keeps a higher probability than the policy does,
    so the product of the ratios over a completion vanishes.
    """
    cut = args.top_p < 1.0 or args.top_k > 0 or bool(args.min_p) or args.repetition_penalty != 1.0
    weighed = args.use_vllm and args.vllm_importance_sampling_correction
    if not (cut and weighed and args.vllm_importance_sampling_mode.startswith("sequence")):
        return []
    return [
        "vLLM samples with top_p, top_k, min_p or repetition_penalty, which the loss does not take into account, and "
        "TRL multiplies the loss of a completion by the ratio of the policy's probability to vLLM's. Over hundreds of "
        "tokens that ratio is nearly 0. `--vllm_importance_sampling_correction false` turns it off."
    ]


def _print_server(console: Console, arguments: RunArguments) -> None:
    args = arguments.training
    if not args.use_vllm or args.vllm_mode != "server":
        return
    from tempo_trl.rollout.vllm_server import server_command, server_url

    console.print(f"\nBefore the run, start a vLLM server that answers at {server_url(args)}, on GPUs of its own:\n")
    print(f"    {server_command(model_path(arguments), args.vllm_max_model_length)}")  # unbroken, to be copied
