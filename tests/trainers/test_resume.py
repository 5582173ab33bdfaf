"""A run that stops at a generation boundary and resumes is the run that never stopped."""

import pytest
import torch

from .recording import RecordingTrainer, config, parity, questions, weights

SCHEDULE = {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 8, "save_strategy": "steps", "save_steps": 4}


@pytest.mark.parametrize("prompts", [8, 6, 2], ids=["first epoch", "next epoch", "fourth epoch"])
def test_resuming_at_a_generation_boundary_gives_the_same_weights(prompts, tiny_model, tmp_path):
    """A generation is two prompts and four steps: 8, 6 and 2 prompts are epochs of 16, 12 and 4 steps."""
    schedule = SCHEDULE | {"max_steps": 16, "save_steps": 12} if prompts < 8 else SCHEDULE
    args = config(tmp_path, per_device_train_batch_size=4, **schedule)
    whole = RecordingTrainer(tiny_model, parity, args, questions(prompts))
    whole.train()

    resumed = RecordingTrainer(tiny_model, parity, args, questions(prompts))
    checkpoint = tmp_path / f"checkpoint-{schedule['save_steps']}"
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == schedule["max_steps"]
    assert len(resumed.batches) == 1
    assert resumed.batches[0].prompts == whole.batches[-1].prompts
    assert resumed.batches[0].completion_ids == whole.batches[-1].completion_ids
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name


def test_a_finished_run_that_is_resumed_does_not_train_on(tiny_model, tmp_path):
    """A scheduler may start the command of a job again that has ended. The last step is in the middle of an epoch."""
    args = config(tmp_path, per_device_train_batch_size=4, **SCHEDULE)
    finished = RecordingTrainer(tiny_model, parity, args, questions(8))
    finished.train()

    resumed = RecordingTrainer(tiny_model, parity, args, questions(8))
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{SCHEDULE['max_steps']}"))
    assert resumed.state.global_step == SCHEDULE["max_steps"]
    assert not resumed.batches
    for name, value in weights(finished).items():
        assert torch.equal(value, weights(resumed)[name]), name
