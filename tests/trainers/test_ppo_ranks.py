"""PPO on two real ranks, DDP and ZeRO-2: the policy and the critic that one process arrives at.

As a module it is one rank, MODEL FOLDER KIND [CHECKPOINT].
"""

import os

import pytest
import torch
from transformers import TrainerCallback

from tempo_trl.methods.ppo import PPOConfig

from .engines import NEEDS_DEEPSPEED, launcher_of, runs_of
from .launching import fork_to_the_end
from .one_rank import finish
from .rank_matrix import reward_of, scripted
from .recording import assert_same, config, questions, weights
from .test_ppo import KINDS, LINEAR, RecordingPPO, critic_weights

pytestmark = pytest.mark.matrix

ROWS = 16  # of all ranks together in a micro-batch


class Unlike(TrainerCallback):
    """Other ranks than the first load other weights, as if new tokens had been added on each."""

    def on_init_end(self, args, state, control, model, **_):
        for parameter in model.parameters():
            parameter.data += args.process_index


def train_case(model: str, folder: str, kind: str, checkpoint: str | None = None) -> RecordingPPO:
    """Two generations of two epochs, of two micro-batches each, with ragged lengths and rows that nothing scored."""
    args = config(
        folder,
        PPOConfig,
        per_device_train_batch_size=ROWS // int(os.environ.get("WORLD_SIZE", "1")),
        gradient_accumulation_steps=2,
        num_generations=8,
        max_steps=4,
        max_completion_length=48,
        beta=0.1,
        gae_lambda=0.9,
        save_strategy="steps",
        save_steps=2,
        **(LINEAR | {"max_grad_norm": 0.5} | KINDS[kind]),
    )
    given = {"rollout_func": scripted("unscorable"), "callbacks": [Unlike()]}
    trainer = RecordingPPO(model, reward_of("unscorable"), args, questions(8), **given)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


def result_of(trainer) -> dict:
    logged = [{k: v for k, v in e.items() if "ppo/" in k and "time" not in k} for e in trainer.state.log_history]
    return {
        "engine": str(trainer.accelerator.distributed_type),
        "weights": weights(trainer),
        "critic": critic_weights(trainer),
        "advantages": [batch["advantages"] for batch in trainer.batches],
        "logged": [entry for entry in logged if entry],
    }


def main(model: str, folder: str, kind: str, *checkpoint: str) -> None:
    trainer = train_case(model, folder, kind, *checkpoint)
    finish(trainer, folder, result_of(trainer))


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return runs_of("tests.trainers.test_ppo_ranks", tiny_model, tmp_path_factory.mktemp)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["ddp", pytest.param("zero2", marks=NEEDS_DEEPSPEED)])
def test_two_ranks_arrive_at_the_policy_and_the_critic_of_one(engine, kind, run, tiny_model, tmp_path):
    _, ranks = run(engine, kind)
    alone = result_of(train_case(tiny_model, str(tmp_path), kind))
    assert ("DEEPSPEED" in ranks[0]["engine"]) == (engine == "zero2")
    for part in ("weights", "critic"):
        assert_same(ranks[0][part], alone[part], rtol=1e-4, atol=1e-5)
        assert_same(ranks[0][part], ranks[1][part])
    # Whitened over both ranks: together they are those of one, and neither has a mean of its own of 0.
    for batch, halves in zip(alone["advantages"], zip(*[r["advantages"] for r in ranks], strict=True), strict=True):
        for half, rows in zip(halves, batch.split(len(batch) // 2), strict=True):
            torch.testing.assert_close(half, rows[:, : half.shape[1]], rtol=1e-3, atol=1e-4)
            assert half.sum().abs() > 0.1
    assert ranks[0]["logged"] == ranks[1]["logged"]
    for ours, expected in zip(ranks[0]["logged"], alone["logged"], strict=True):
        assert ours == pytest.approx(expected, rel=1e-3, abs=1e-4)


@NEEDS_DEEPSPEED
def test_a_checkpoint_of_two_ranks_resumes_to_the_same_policy_and_critic(run):
    folder, ranks = run("zero2", "separate")
    _, resumed = run("zero2", "separate", str(folder / "checkpoint-2"))
    assert len(resumed[0]["advantages"]) == 1
    for part in ("weights", "critic"):
        assert_same(resumed[0][part], ranks[0][part], rtol=1e-5, atol=1e-6)


@NEEDS_DEEPSPEED
def test_zero3_is_refused_with_what_to_do(tiny_model, tmp_path):
    launcher = launcher_of("zero3", tmp_path)
    module = "tests.trainers.test_ppo_ranks"
    status, printed = fork_to_the_end(launcher, 2, module, tiny_model, tmp_path, "separate")
    assert status != 0
    assert "ValueError: PPO does not support ZeRO-3" in printed
    assert "Use ZeRO-2" in printed
