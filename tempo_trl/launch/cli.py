"""The command line, `tempo-trl <verb>`. Torch, TRL and accelerate are only imported by the verbs that need them."""

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Callable

from tempo_trl.evaluation.settings import EXAMPLES, add_flags
from tempo_trl.methods import METHODS
from tempo_trl.runs.printing import replace_unprintable
from tempo_trl.version import __version__

TRAINING = """\
Any field of a recipe is also a flag, and flags override the recipe: --learning_rate 1e-5, --use_peft true, ...
Other flags (--num_processes 2) are passed on to `accelerate launch`.

examples:
  tempo-trl train --config sums/tempo --resume_from_checkpoint last
  tempo-trl train --config qwen3-4b/math/two_gpus/tempo --accelerate_config zero2 --num_processes 2 --check
"""
AS_WRITTEN = {"formatter_class": argparse.RawDescriptionHelpFormatter}  # of an epilog


def main(argv: list[str] | None = None) -> int:
    """Run the verb in `argv` (by default the process's arguments) and return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    replace_unprintable()
    try:
        if argv[:1] == ["train"]:
            return train(argv[1:])  # its flags are those of TRL and accelerate, which our parser does not list
        arguments = vars(command_parser().parse_args(argv))
        return arguments.pop("run")(**arguments)
    except (ValueError, OSError, ImportError) as error:
        print(f"tempo-trl {argv[0]}: error: {error}", file=sys.stderr)
        return 2


def command_parser() -> argparse.ArgumentParser:
    """Parser of the verbs and of their flags, except those of `train`."""
    parser = argparse.ArgumentParser("tempo-trl", description="Token-level credit for RL of language models, on TRL.")
    parser.add_argument("--version", action="version", version=f"tempo_trl {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")

    verb = verbs.add_parser("demo", help="train a small language model on the CPU, and show the credit of its tokens")
    verb.add_argument("--quick", action="store_true", help="a few steps: about a minute instead of six")
    verb.add_argument("--compare", action="store_true", help="train GRPO as well, for as long")
    verb.add_argument("--output", default="tempo_demo", metavar="DIR", help="folder to write to (%(default)s)")
    verb.set_defaults(run=main_of("tempo_trl.demo.orders"))

    _add_train(verbs)

    verb = verbs.add_parser("evaluate", help="evaluate a model on benchmarks", epilog=EXAMPLES, **AS_WRITTEN)
    add_flags(verb)
    verb.set_defaults(run=main_of("tempo_trl.evaluation.evaluate"))

    verb = verbs.add_parser("compare", help="compare runs: results with paired differences and 95%% intervals")
    verb.add_argument("runs", nargs="+", metavar="RUN", help="output folders of training, of evaluation, or of both")
    verb.add_argument("-o", "--output", default="tempo_compare", metavar="DIR", help="folder to write (%(default)s)")
    verb.add_argument("--label", nargs="+", metavar="NAME", help="a label for each run, in the order of the runs")
    verb.set_defaults(run=main_of("tempo_trl.compare.command"))

    _add_report_verbs(verbs)

    verb = verbs.add_parser("publish", help="upload a run to the Hub: model, card, recipe, record and curves")
    verb.add_argument("run_dir", metavar="RUN_DIR", help="the run's output folder")
    verb.add_argument("--repo", required=True, metavar="USER/NAME", help="repository, created if it does not exist")
    verb.add_argument("--private", action="store_true", help="create a private repository")
    verb.add_argument("--dry-run", action="store_true", help="print what would be uploaded, and upload nothing")
    verb.set_defaults(run=main_of("tempo_trl.hub.publish"))

    verbs.add_parser("recipes", help="list the training recipes of this package").set_defaults(run=recipes)
    verbs.add_parser("env", help="print the versions to include in a bug report").set_defaults(run=env)
    return parser


def _add_train(verbs) -> None:
    usage = "tempo-trl train --config RECIPE [--accelerate_config NAME] [--FIELD VALUE ...]"
    verb = verbs.add_parser("train", help="train a model from a recipe", usage=usage, epilog=TRAINING, **AS_WRITTEN)
    verb.add_argument("--config", metavar="RECIPE", help="a YAML file, or the name of a recipe in this package")
    verb.add_argument("--method", metavar="NAME", help=f"trainer and configuration: {', '.join(METHODS)}")
    names = "single_gpu, ddp, zero2, zero3, zero3_offload, fsdp2, multi_node"
    verb.add_argument("--accelerate_config", metavar="NAME", help=f"a file, or {names}, or a name of TRL's")
    verb.add_argument("--check", action="store_true", help="build configuration and data as the run would, and stop")
    verb.add_argument("--show", metavar="RECIPE", help="print a recipe with the fields of the recipes that it extends")
    verb.add_argument("--resume_from_checkpoint", metavar="last", help="resume from the last whole checkpoint")
    verb.add_argument("--help-fields", action="store_true", help="print every field with its meaning and default")


def _add_report_verbs(verbs) -> None:
    verb = verbs.add_parser("report", help="write an HTML report of runs: credit per token, trees, curves, pictures")
    verb.add_argument("runs", nargs="+", metavar="RUN_DIR", help="output folders of runs, which may still be training")
    verb.add_argument("-o", "--output", metavar="FILE", help="file to write (report.html in the first RUN_DIR)")
    verb.add_argument("--no-pictures", dest="pictures", action="store_false", help="write no PNG and SVG files")
    verb.set_defaults(run=main_of("tempo_trl.report.command"))

    verb = verbs.add_parser("tree", help="draw the prefix tree of one recorded group in the terminal")
    verb.add_argument("run_dir", metavar="RUN_DIR", help="the run's output folder")
    verb.add_argument("--step", type=int, metavar="N", help="recorded step (default: the last)")
    verb.add_argument("--prompt", type=int, metavar="K", help="group of that step (default: the most informative)")
    verb.add_argument("--mode", default="train", help="train (default), eval, or eval_NAME, one of several datasets")
    verb.set_defaults(run=main_of("tempo_trl.report.terminal_tree"))

    verb = verbs.add_parser("credit", help="compute tree and credit of any completions with rewards, without training")
    verb.add_argument("completions", metavar="FILE.jsonl", help="lines of prompt, completion, and reward or spans")
    verb.add_argument("--tokenizer", metavar="NAME", help="a folder or on the Hub, needed for text and messages")
    given = {"default": argparse.SUPPRESS}  # the defaults are those of the method's configuration
    verb.add_argument("--scale-rewards", choices=("group", "batch", "none"), help="as in GRPOConfig", **given)
    verb.add_argument("--td-coef", type=float, metavar="C", help="coefficient of TEMPO's TD error (1)", **given)
    verb.add_argument("--trace-lambda", type=float, metavar="L", help="decay of credit before spans (0.9)", **given)
    verb.add_argument("--groups", type=int, default=3, metavar="N", help="groups to print (%(default)s)")
    verb.add_argument("-o", "--output", metavar="FILE", help="also write the report to this HTML file")
    verb.set_defaults(run=main_of("tempo_trl.launch.credit"))


def main_of(module: str) -> Callable[..., int]:
    """The `main` of a module that is imported when it is called."""
    return lambda **flags: importlib.import_module(module).main(**flags)


def recipes() -> int:
    """Print the names of the packaged recipes, one per line."""
    print(*importlib.import_module("tempo_trl.runs.recipes").recipe_names(), sep="\n")
    return 0


def env() -> int:
    """Print what `trl env` prints, the versions of the dependencies and the GPUs, and the version of this package."""
    importlib.import_module("trl.scripts.env").print_env()
    print(f"- tempo_trl version: {__version__}")
    return 0


def train(argv: list[str]) -> int:
    """Launch `python -m tempo_trl.train` through accelerate, as `trl grpo` does with its script."""
    if "-h" in argv or "--help" in argv:
        command_parser().parse_args(["train", "--help"])
    if "--help-fields" in argv:
        return importlib.import_module("tempo_trl.launch.train").main(argv)
    if argv[:1] == ["--show"]:
        recipe = importlib.import_module("tempo_trl.runs.recipes")
        print(recipe.recipe_text(recipe.recipe_path(" ".join(argv[1:]))), end="")
        return 0
    if "--check" in argv:
        importlib.import_module("tempo_trl.launch.check").check([flag for flag in argv if flag != "--check"])
        return 0
    module = importlib.import_module("tempo_trl.launch.arguments")
    arguments = module.launch_arguments(argv)
    os.environ[module.LAUNCHED_WITH] = arguments.accelerate_config or ""
    try:
        importlib.import_module("accelerate.commands.launch").launch_command(arguments)
    except subprocess.CalledProcessError as failure:
        return failure.returncode  # the run has printed its own error
    except importlib.import_module("torch.distributed.elastic.multiprocessing.errors").ChildFailedError as failures:
        return failures.get_first_failure()[1].exitcode
    return 0
