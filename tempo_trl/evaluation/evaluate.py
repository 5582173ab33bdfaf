"""Evaluate a model on the paper's benchmarks: the verb `tempo-trl evaluate`."""

import json
import logging
import math
import sys
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from tempo_trl.data import BENCHMARKS
from tempo_trl.evaluation import models
from tempo_trl.evaluation.generation import answered, chunks
from tempo_trl.evaluation.grading import grade
from tempo_trl.evaluation.questions import Question, questions
from tempo_trl.evaluation.records import Record, records_of
from tempo_trl.evaluation.results import table, write_results
from tempo_trl.evaluation.settings import Decoding, Settings
from tempo_trl.runs.redaction import hide, known_secrets
from tempo_trl.version import __version__

if TYPE_CHECKING:
    from lm_eval.api.model import TemplateLM


def evaluate(model: str, **settings) -> list[dict]:
    """
    Generate a model's answers to the questions of benchmarks, grade them, and save both.

    Saved answers are not generated again: the same call resumes an interrupted evaluation at the chunk where it
    stopped, with the same result.

    Args:
        model (`str`):
            Folder of a model or of a PEFT adapter, or its name on the Hub.
        **settings:
            The other fields of [`~tempo_trl.evaluation.settings.Settings`]. Words of the prompts, arguments of
            the chat template and `max_tokens` are by default those of the run whose model it is.

    Returns:
        `list[dict]`: the results of these tasks, in the format of [`~tempo_trl.evaluation.results`].

    Raises:
        ValueError: a setting is invalid, or the output folder has answers for other settings.
        OSError: the model or the local rows do not exist.
        ImportError: lm-eval, the backend or math-verify is not installed.
    """
    settings = Settings.of(model, **settings)
    lm, jobs = prepare(settings)
    return run(lm, jobs, settings)


class Job(NamedTuple):
    """A task and decoding: its record, and its questions in chunks."""

    record: Record
    decoding: Decoding
    chunks: list[list[Question]]


def prepare(settings: Settings) -> "tuple[TemplateLM, list[Job]]":
    """Load the model and its questions. Raises all errors of the settings before anything is generated."""
    source = models.find(settings.model)
    lm = models.load(settings, source)
    facts = {"model": source.name, "weights": models.fingerprint(source, settings.model_arguments.get("revision"))}
    jobs = []
    for name in settings.task_names:
        asked = questions(name, lm, settings)
        grade(asked[0].row, [r"\boxed{x}"])  # or a grader that does not start would be noticed after hours
        for decoding in settings.decodings:
            # At least one question per chunk, and as many as have their answers in one batch.
            chunked = chunks(lm, asked, max(1, settings.batch // decoding.n), settings.tokens)
            jobs.append(Job(begin(name, decoding, asked, facts, settings), decoding, chunked))
    return lm, jobs


def begin(task: str, decoding: Decoding, asked: list[Question], facts: dict[str, str], settings: Settings) -> Record:
    """The record of a task and decoding: a new one, or an existing one of the same evaluation."""
    is_whole = settings.limit is settings.data_dir is settings.split is None
    rows = json.dumps([question.row for question in asked])  # with what is right about them
    common = facts | {
        "hub_id": (BENCHMARKS[task].hub_id or None) if is_whole else None,
        "split": settings.split or BENCHMARKS[task].eval_split,
        "questions": sha256(rows.encode()).hexdigest(),
        **{name: getattr(settings, name) for name in ("limit", "chat_template_kwargs", "thinking", "backend")},
        "model_args": hide(settings.model_args, known_secrets(settings.model_arguments)),
        "max_tokens": settings.tokens,
        "batch_size": settings.batch,
        "tempo_trl": __version__,
        "lm_eval": version("lm_eval"),
    }
    for other in records_of(settings.folder, task):
        other.require(common)  # a file has results of one model only
    record = Record(settings.folder, task, decoding.name)
    record.begin(common | {name: getattr(decoding, name) for name in ("temperature", "top_p", "top_k", "seed")})
    return record


def run(lm: "TemplateLM", jobs: list[Job], settings: Settings) -> list[dict]:
    """Answer the remaining questions. Results are written after each job."""
    results = {}
    for job in jobs:
        if not job.record.is_finished:
            answer(lm, job, settings)
        results[job.record.task] = write_results(settings.folder, job.record.task)
    return [result for of_task in results.values() for result in of_task]


def answer(lm: "TemplateLM", job: Job, settings: Settings) -> None:
    """Answer the questions of a job chunk by chunk, starting where it stopped, and finish its record."""
    record, total, per_chunk = job.record, sum(map(len, job.chunks)), len(job.chunks[0])
    done = record.resume(per_chunk, total)
    with tqdm(total=total, initial=done, desc=f"{record.task} {job.decoding.name}", unit="question") as bar:
        for chunk in job.chunks[math.ceil(done / per_chunk) :]:
            record.append(answered(lm, chunk, job.decoding, settings))
            bar.update(len(chunk))
    record.finish(datetime.now(UTC).isoformat(timespec="seconds"))


def main(**flags) -> int:
    """The verb. Returns 0, or 130 if it was interrupted. Raises as [`evaluate`]."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # its warnings are about flags of its own command
    try:
        results = evaluate(**flags)
    except KeyboardInterrupt:
        print("\ntempo-trl evaluate: interrupted. Repeat the command to resume.", file=sys.stderr)
        return 130
    print(f"{table(results)}\nAnswers (one line per question) and results: {Settings.of(**flags).folder}")
    return 0
