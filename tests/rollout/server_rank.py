"""One rank that grows trees on a vLLM server, after a step of training, MODEL FOLDER URL [key=value ...].

Saves the model to FOLDER, and writes the trees of its prompts: greedy, sampled, and sampled again.
Options `key=value` go to the configuration. Started by tests/vllm_server/test_grown_trees.py.
"""

from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.tree_rollout import TreeRollout

from ..trainers.one_rank import finish, parsed
from ..trainers.recording import config, parity, questions
from ..vllm_server.gloo_transfer import replace_transport
from .rank import GROWERS

SAMPLING = {
    "greedy": {"temperature": 0},
    "sampled": {"seed": 7},
    "again": {"seed": 7},
    "without a seed": {},
}


def build(model: str, folder: str, url: str, options: tuple[str, ...]) -> GRPOTrainer:
    replace_transport()
    server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url, "vllm_server_timeout": 300.0}
    training = {"max_steps": 1, "top_k": 0, "optim": "sgd", "learning_rate": 0.1}
    args = config(folder, GRPOConfig, **(server | training | parsed(options)))
    return GRPOTrainer(model, parity, args, questions(8), rollout_func=TreeRollout(GROWERS["fixed"]))


def grow_on_the_server(trainer: GRPOTrainer, grower: str, sampling: str, prompts: list[str]) -> dict:
    """Trees of the weights of now, and what TRL makes of them."""
    options = SAMPLING[sampling] | (trainer.options_of_the_run or {})
    trainer.args.generation_kwargs = trainer.vllm_generation.generation_kwargs = options
    trainer.rollout_func = TreeRollout(GROWERS[grower])
    prompt_ids, completion_ids, _, _, logprobs, *_ = trainer._generate(prompts)
    trees = trainer.rollout_func.trees
    return {"trees": trees, "prompt_ids": prompt_ids[::4], "completion_ids": completion_ids, "logprobs": logprobs}


def main(model: str, folder: str, url: str, *options: str) -> None:
    trainer = build(model, folder, url, options)
    trainer.options_of_the_run = trainer.args.generation_kwargs
    trainer.train()
    trainer.save_model(folder)
    trainer.model.train()
    rank = trainer.accelerator.process_index
    prompts = [prompt for prompt in questions(8)["prompt"][2 * rank : 2 * rank + 2] for _ in range(4)]
    grown = {(g, s): grow_on_the_server(trainer, g, s, prompts) for g in GROWERS for s in SAMPLING}
    finish(trainer, folder, {"grown": grown, "eos_token_ids": trainer.eos_token_ids})
