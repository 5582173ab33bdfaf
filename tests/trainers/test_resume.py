"""A run that stops at a generation boundary and resumes is the run that never stopped."""

import torch

from .recording import RecordingTrainer, config, parity, questions, weights

SCHEDULE = {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 8, "save_strategy": "steps", "save_steps": 4}


def test_resuming_at_a_generation_boundary_gives_the_same_weights(tiny_model, tmp_path):
    args = config(tmp_path, per_device_train_batch_size=4, **SCHEDULE)
    whole = RecordingTrainer(tiny_model, parity, args, questions())
    whole.train()

    resumed = RecordingTrainer(tiny_model, parity, args, questions())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert resumed.state.global_step == 8
    assert len(resumed.batches) == 1
    assert resumed.batches[0].completion_ids == whole.batches[1].completion_ids
    for name, value in weights(whole).items():
        assert torch.equal(value, weights(resumed)[name]), name
