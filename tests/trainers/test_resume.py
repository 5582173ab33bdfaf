"""A run that stops at a generation boundary and resumes is the run that never stopped."""

from collections import deque

import numpy as np
import pytest

from tempo_trl import Credit, TokenCreditConfig, TokenCreditTrainer
from tempo_trl.trainers.run import STATE_FILE

from .recording import assert_same, assert_same_weights, config, parity, questions, train

SCHEDULE = {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 8, "save_strategy": "steps", "save_steps": 4}


@pytest.mark.parametrize("prompts", [8, 6, 2], ids=["first epoch", "next epoch", "fourth epoch"])
def test_resuming_at_a_generation_boundary_gives_the_same_weights(prompts, tiny_model, tmp_path):
    """A generation is two prompts and four steps: 8, 6 and 2 prompts are epochs of 16, 12 and 4 steps."""
    schedule = SCHEDULE | {"max_steps": 16, "save_steps": 12} if prompts < 8 else SCHEDULE
    options = {"dataset": questions(prompts), "per_device_train_batch_size": 4} | schedule
    whole = train(tiny_model, tmp_path, **options)
    checkpoint = tmp_path / f"checkpoint-{schedule['save_steps']}"
    resumed = train(tiny_model, tmp_path, resume=str(checkpoint), **options)
    assert resumed.state.global_step == schedule["max_steps"]
    assert len(resumed.batches) == 1
    assert resumed.batches[0].prompts == whole.batches[-1].prompts
    assert resumed.batches[0].completion_ids == whole.batches[-1].completion_ids
    assert_same_weights(resumed, whole)


def test_a_run_that_resumes_within_a_generation_ends_it_and_keeps_to_the_prompts_of_the_run_that_never_stopped(
    tiny_model, tmp_path
):
    options = (
        {"dataset": questions(6), "per_device_train_batch_size": 4} | SCHEDULE | {"max_steps": 20, "save_steps": 7}
    )
    whole = train(tiny_model, tmp_path, **options)
    resumed = train(tiny_model, tmp_path, resume=str(tmp_path / "checkpoint-7"), **options)
    prompts = [batch.prompts for batch in whole.batches]
    assert len(prompts) == 5
    assert [batch.prompts for batch in resumed.batches] == prompts[1:]


def test_a_second_run_begins_with_completions_of_its_own(tiny_model, tmp_path):
    """The first one ends after three steps, within its second generation of two."""
    trainer = train(tiny_model, tmp_path, num_iterations=2, max_steps=3)
    trainer.train()
    assert len(trainer.batches) == 4


def test_a_finished_run_that_is_resumed_does_not_train_on(tiny_model, tmp_path):
    """A scheduler may start the command of a job again that has ended. The last step is in the middle of an epoch."""
    finished = train(tiny_model, tmp_path, per_device_train_batch_size=4, **SCHEDULE)
    checkpoint = tmp_path / f"checkpoint-{SCHEDULE['max_steps']}"
    resumed = train(tiny_model, tmp_path, resume=str(checkpoint), per_device_train_batch_size=4, **SCHEDULE)
    assert resumed.state.global_step == SCHEDULE["max_steps"]
    assert not resumed.batches
    assert_same_weights(resumed, finished)


def test_the_reference_model_that_follows_the_policy_is_that_of_the_run_that_never_stopped(tiny_model, tmp_path):
    options = {"beta": 0.5, "sync_ref_model": True, "ref_model_sync_steps": 2, "ref_model_mixup_alpha": 0.5}
    options |= SCHEDULE | {"per_device_train_batch_size": 4}
    whole = train(tiny_model, tmp_path, **options)
    resumed = train(tiny_model, tmp_path, resume=str(tmp_path / "checkpoint-4"), **options)
    assert_same_weights(resumed, whole)
    assert_same(dict(resumed.ref_model.state_dict()), dict(whole.ref_model.state_dict()))
    (tmp_path / "checkpoint-4" / "reference_model.pt").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-4 has no reference_model.pt, .* Set sync_ref_model=False, or"):
        train(tiny_model, tmp_path, resume=str(tmp_path / "checkpoint-4"), **options)


class Counting:
    """A credit function that counts its updates, and notes what it had counted at each batch."""

    def __init__(self, number=int):
        self.number, self.updates, self.seen = number, 0, []

    def __call__(self, batch):
        self.seen.append(("training" if batch.training else "evaluation", self.updates))
        return Credit(batch.advantages.nan_to_num(0.0), statistics=1)

    def update(self, statistics):
        self.updates += len(statistics)

    def state_dict(self):
        return {"updates": self.number(self.updates)}

    def load_state_dict(self, state):
        self.updates = state["updates"]


def counting_run(model, folder, counting=None, **options):
    options = {"max_steps": 3, "save_strategy": "steps", "save_steps": 3, "per_device_eval_batch_size": 8} | options
    args = config(folder, TokenCreditConfig, **options)
    counting = counting or Counting()
    return TokenCreditTrainer(model, parity, args, questions(), eval_dataset=questions(2), credit_func=counting)


def test_what_was_learned_is_there_for_evaluations_after_a_finished_run_and_before_a_resumed_one(tiny_model, tmp_path):
    first = counting_run(tiny_model, tmp_path)
    first.train()
    finished = counting_run(tiny_model, tmp_path)
    finished.train(resume_from_checkpoint=True)
    finished.evaluate()
    assert finished.credit_func.seen == [("evaluation", 3)]
    assert finished.learned.state_dict() == first.learned.state_dict()

    options = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 100, "eval_on_start": True}
    resumed = counting_run(tiny_model, tmp_path, **options)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.credit_func.seen[:2] == [("evaluation", 3), ("training", 3)]


def test_a_file_of_a_checkpoint_that_breaks_off_is_named_with_what_to_do(tiny_model, tmp_path):
    trainer = counting_run(tiny_model, tmp_path)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-3"
    read = {"trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", STATE_FILE}
    files = {
        path.name: path for path in checkpoint.iterdir() if path.suffix in (".json", ".safetensors", ".pt", ".pth")
    }
    assert files.keys() >= read
    for name, path in files.items():
        whole = path.read_bytes()
        for size in (0, len(whole) // 2, len(whole) - 3):
            path.write_bytes(whole[:size])
            with pytest.raises(
                ValueError, match=rf"{name} cannot be read to its end: .* Remove {checkpoint}, and resume"
            ):
                trainer.train(resume_from_checkpoint=True)
        path.write_bytes(whole)
    trainer.train(resume_from_checkpoint=True)


@pytest.mark.parametrize("missing", [["state_dict"], ["load_state_dict"], ["state_dict", "load_state_dict"]])
def test_what_learns_without_a_state_to_save_and_load_is_refused(missing, tiny_model, tmp_path):
    parts = {name: part for name, part in vars(Counting).items() if name not in missing}
    learner = type("Learner", (), parts)()
    with pytest.raises(ValueError, match=f"`credit_func` Learner has no {' and no '.join(missing)}, expected both"):
        counting_run(tiny_model, tmp_path, learner)


class Remembering:
    """A credit function that learns within its call, and so has no `update`."""

    def __init__(self, number):
        self.number, self.seen = number, 0

    def __call__(self, batch):
        self.seen += len(batch.rewards)
        return batch.advantages

    state_dict, load_state_dict = (lambda self: {"seen": self.number(self.seen)}), Counting.load_state_dict


@pytest.mark.parametrize("learner", [Counting, Remembering])
@pytest.mark.parametrize("number", [np.float64, lambda n: deque([n])], ids=["numpy", "deque"])
def test_a_state_that_no_resumed_run_could_read_is_refused_in_the_first_step(number, learner, tiny_model, tmp_path):
    trainer = counting_run(tiny_model, tmp_path, learner(number))
    with pytest.raises(ValueError, match=r"`state_dict\(\)` of `credit_func` \w+ must have tensors, numbers and"):
        trainer.train()
    assert trainer.state.global_step == 0
