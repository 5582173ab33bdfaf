"""The help of `tempo-trl train`. It is a fixed text, because importing TRL to read its fields takes seconds."""

import textwrap

from tempo_trl.methods import METHODS

WIDTH, INDENT = 120, " " * 31
TRAIN_HELP = """\
usage: tempo-trl train --config RECIPE [--accelerate_config NAME] [--FIELD VALUE ...]

Train a model from a recipe: a YAML file of fields. Any field is also a flag, and flags override the recipe. Flags of
`accelerate launch` (--num_processes 2) are passed on to it.

  --config RECIPE              a YAML file, or the name of a recipe in this package (qwen3-1.7b/math/tempo)
  --accelerate_config NAME     a file, or single_gpu, ddp, zero2, zero3, zero3_offload, fsdp2, multi_node, or TRL's
{methods}
  --model_name_or_path MODEL   a model on the Hub or a folder
  --task NAME                  built-in prompts: math, medqa, medmcqa, instructions, orders, sums or rooms
  --dataset_name DATASET       instead of --task, as in TRL: a dataset on the Hub with a `prompt` column
  --reward_funcs NAME ...      math_reward, choice_reward, ... or the dotted path of a function
  --credit_func PATH           dotted path of your credit function, for method token_credit
  --tools PATH ..., --environment_factory PATH, --step_reward_funcs PATH ..., --observation_key_func PATH
                               functions of an agent's run, by their dotted paths
  --output_dir FOLDER          where checkpoints, metrics and the model card go
  --learning_rate, --num_generations, --max_completion_length, --max_steps, --use_vllm, --use_peft, ...
  --check                      validate the run and print batch sizes, memory and sharding, without starting it
  --resume_from_checkpoint     last: resume from the last checkpoint in the output folder, if there is one
  --help-fields                print every field with its meaning and default

examples:
  tempo-trl train --config sums/tempo
  tempo-trl train --config qwen3-1.7b/math/tempo --resume_from_checkpoint last
  tempo-trl train --config qwen3-4b/math/two_gpus/tempo --accelerate_config zero2 --num_processes 2 --check
  tempo-trl train --config qwen3-4b/math/two_gpus/tempo --accelerate_config zero2 --num_processes 2

The same run without this launcher:
  accelerate launch --config_file recipes/accelerate/single_gpu.yaml -m tempo_trl.train --config qwen3-1.7b/math/tempo
"""


def train_help() -> str:
    """The help text, with the names of all methods."""
    names = f"{', '.join(METHODS)} (default: tempo)"
    flag = "  --method NAME".ljust(len(INDENT))
    methods = textwrap.fill(names, WIDTH, initial_indent=flag, subsequent_indent=INDENT)
    return TRAIN_HELP.format(methods=methods)
