"""Every method, two steps each, with the policy, its optimizer and the credit on the device."""

from pathlib import Path

import torch

from benchmarks.gpu.section import QWEN3_TINY, Row, demo_run, main, saved_policy
from tempo_trl import Batch, SpanReward
from tempo_trl.launch.arguments import METHODS, parse
from tempo_trl.launch.train import build_trainer

OWN = {
    "token_credit": ["--credit_func", f"{__package__}.methods.outcome_over_length"],
    "treerpo": ["--tree_depth", "3"],
    "treerpo_entropy": ["--tree_min_segment_tokens", "3"],  # so that completions of eight tokens can have eight leaves
    "span_credit": ["--span_reward_funcs", f"{__package__}.methods.digits"],
}


def outcome_over_length(batch: Batch) -> torch.Tensor:
    """A credit function as a user writes one: advantages, `(B, T)`."""
    return (batch.advantages / batch.lengths.clamp(min=1))[:, None].expand(batch.completion_ids.shape)


def digits(texts: list[str], **columns) -> list[list[SpanReward]]:
    """A span reward: whether each of the first characters is a digit, with its place."""
    return [
        [SpanReward(f"{at}", float(text[at].isdigit()), at, at + 1) for at in range(len(text[:4]))] for text in texts
    ]


def trained(method: str, model: str, folder: Path, device: torch.device) -> str:
    """How a run of two steps ended."""
    flags = demo_run(model, folder, True, "--use_cpu", str(device.type == "cpu"), *OWN.get(method, []))
    flags[flags.index("--method") + 1] = method
    flags[flags.index("--max_steps") + 1] = "2"
    trainer = build_trainer(parse(flags))
    trainer.train()
    weights = list(trainer.model.parameters())
    finite = all(weight.isfinite().all().item() for weight in weights)
    there = all(weight.device.type == device.type for weight in weights)
    return "ran" if finite and there else f"finite weights: {finite}, on the device: {there}"


def rows(device: torch.device, tiny: bool) -> list[Row]:
    with saved_policy(QWEN3_TINY, tiny) as (model, folder):
        return [(method, trained(method, model, folder / method, device)) for method in METHODS]


if __name__ == "__main__":
    main(rows)
