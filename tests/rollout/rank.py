"""One rank that grows trees after a step of training, MODEL FOLDER fixed|entropy full|lora.

Saves the model to FOLDER, and writes its trees of both, its prompts and the sizes of its rounds.
"""

from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from tempo_trl.rollout.entropy import EntropyTree
from tempo_trl.rollout.fixed import FixedTree
from tempo_trl.rollout.transformers_sampler import TransformersSampler
from tempo_trl.rollout.tree_rollout import TreeRollout

from ..trainers.one_rank import finish
from ..trainers.recording import config, parity, questions

GROWERS = {
    "fixed": FixedTree(2, 2, 6),
    "entropy": EntropyTree(
        4, min_segment_tokens=1, entropy_threshold=0.3, delimiters=[chr(c) for c in range(33, 126)]
    ),
}
FLAT = FixedTree(4, 1, 6)  # grown in one round


class CountingSampler(TransformersSampler):
    sizes = []  # requests of each round

    def sample(self, requests, top_k=0):
        self.sizes.append(len(requests))
        return super().sample(requests, top_k)


def take_the_likeliest(trainer: GRPOTrainer) -> None:
    """Greedy sampling from now on: before, siblings of a fixed tree would be alike and teach nothing."""
    trainer.args.generation_kwargs = {"do_sample": False}
    trainer.generation_config.do_sample = False


def main(model: str, folder: str, grower: str, weights: str) -> None:
    import tempo_trl.rollout.transformers_sampler as module

    module.TransformersSampler = CountingSampler
    rollout = TreeRollout(GROWERS[grower])
    options = {"max_steps": 1, "learning_rate": 0.03, "lr_scheduler_type": "constant"}
    args = config(folder, GRPOConfig, top_k=0, gradient_checkpointing=True, **options)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft_config = lora if weights == "lora" else None
    trainer = GRPOTrainer(model, parity, args, questions(8), rollout_func=rollout, peft_config=peft_config)
    trainer.train()
    trainer.save_model(folder)
    rank = trainer.accelerator.process_index
    prompts = [prompt for prompt in questions(8)["prompt"][rank::2] for _ in range(4)]
    trainer.model.train()
    take_the_likeliest(trainer)
    CountingSampler.sizes.clear()
    rollout.grower = FLAT if rank else GROWERS[grower]
    output = rollout(prompts[: 8 if rank else 16], trainer)
    written = {
        "trees": rollout.trees,
        "prompt_ids": output["prompt_ids"][::4],
        "eos_token_ids": trainer.eos_token_ids,
        "sizes": list(CountingSampler.sizes),
        "resident": sum(p.numel() for p in trainer.accelerator.unwrap_model(trainer.model).parameters()),
    }
    finish(trainer, folder, written)
