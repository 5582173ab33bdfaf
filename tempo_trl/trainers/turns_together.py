"""The turns of an agent on several ranks that sample together."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from accelerate.utils import gather_object
from trl import GRPOTrainer


@contextmanager
def every_rank_in_every_turn(trainer: GRPOTrainer, prompt_ids: list[int], images: list | None) -> Iterator[None]:
    """
    Lets every rank take part in each turn that is sampled in the block, if ranks sample together.

    TRL plays the conversations of each rank on its own: some ranks have fewer of them left, and are done earlier. But
    a vLLM server answers all ranks in one call, which TRL cuts into equal parts, and sharded weights are gathered by
    all ranks. So with vLLM a rank asks for as many answers as the others, for one prompt again and again, and a rank
    that is done goes on asking until all are. It drops the answers that it had no conversation for.

    Args:
        trainer ([`~trl.GRPOTrainer`]):
            The trainer.
        prompt_ids (`list[int]`):
            The prompt to ask again.
        images (`list`, *optional*):
            Its images.
    """
    if not _samples_together(trainer):
        yield
        return
    own_turn, with_vllm = trainer._generate_single_turn, trainer.use_vllm

    def turn(own: list[list[int]], own_images: list | None, *args, **kwargs) -> tuple:
        most = _most(len(own))
        more = most - len(own) if with_vllm else 0  # transformers samples each rank's own number
        if more:
            own_images = [*(own_images or [None] * len(own)), *[images] * more]
        completion_ids, logprobs = own_turn([*own, *[prompt_ids] * more], own_images, *args, **kwargs)
        return completion_ids[: len(own)], logprobs and logprobs[: len(own)]

    with patch.object(trainer, "_generate_single_turn", turn):
        yield
    while most := _most(0):
        again = [prompt_ids] * most if with_vllm else [prompt_ids[:1] if trainer._is_vlm else prompt_ids]
        # The class's own, because what reads states before a turn has no turn to read.
        type(trainer)._generate_single_turn(trainer, again, images and [images] * most, {}, num_generations=1)


def _most(conversations: int) -> int:
    """The largest number of conversations in play on a rank; 0 once all are done. A collective."""
    return max(gather_object([conversations]))


def _samples_together(trainer: GRPOTrainer) -> bool:
    """Whether a rank that samples has to wait for the others."""
    if trainer.accelerator.num_processes == 1:
        return False
    if trainer.use_vllm:
        return trainer.vllm_mode == "server" or trainer.vllm_tensor_parallel_size > 1
    plugin = trainer.accelerator.state.deepspeed_plugin
    return trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3)
