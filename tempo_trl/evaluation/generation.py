"""Generate answers in chunks of questions. An interrupted evaluation resumes after the last saved chunk.

The questions of a chunk depend only on all questions and the batch size, and each chunk (with vLLM each answer) has
its own seed. So the answers of a chunk do not depend on whether earlier chunks ran in the same process.
"""

import hashlib
from typing import TYPE_CHECKING

from tempo_trl.evaluation.grading import answer_of, gold_of, grade
from tempo_trl.evaluation.questions import Question

if TYPE_CHECKING:
    from lm_eval.api.model import TemplateLM

    from tempo_trl.evaluation.settings import Decoding, Settings


def chunks(lm: "TemplateLM", asked: list[Question], per_chunk: int, max_tokens: int) -> list[list[Question]]:
    """Questions in chunks of `per_chunk`, the longest first, so that a lack of memory shows at the start.

    Raises:
        ValueError: a prompt leaves no room for an answer; lm-eval would truncate its beginning.
    """
    lengths = {question.prompt: len(lm.tok_encode(question.prompt)) for question in asked}
    longest = max(lengths.values())
    if longest + max_tokens > lm.max_length:
        raise ValueError(
            f"max_tokens is {max_tokens}, but the longest prompt of {asked[0].row['source']} has {longest} of the "
            f"{lm.max_length} tokens of the model's context. Lower it, or use a model with a longer context."
        )
    ordered = sorted(asked, key=lambda question: (-lengths[question.prompt], question.row["row_id"]))
    return [ordered[start : start + per_chunk] for start in range(0, len(ordered), per_chunk)]


def answered(lm: "TemplateLM", chunk: list[Question], decoding: "Decoding", settings: "Settings") -> list[dict]:
    """A record for each question of a chunk: completions, final answers and grades."""
    texts = iter(_generate(lm, chunk, decoding, settings))
    return [_record(question, [_said(question, next(texts)) for _ in range(decoding.n)]) for question in chunk]


def _record(question: Question, completions: list[str]) -> dict:
    row = question.row
    return {
        "task": row["source"],
        "row_id": row["row_id"],
        "source": row["source"],
        "prompt_sha256": question.sha256,
        "gold": gold_of(row),
        "completions": completions,
        "answers": [answer_of(row, text) for text in completions],
        "correct": grade(row, completions),
    }


def _generate(lm: "TemplateLM", chunk: list[Question], decoding: "Decoding", settings: "Settings") -> list[str]:
    """The texts of a chunk, `decoding.n` for each question in turn."""
    import torch
    from lm_eval.api.instance import Instance

    def request(question: Question, sample: int) -> Instance:
        arguments = generation_arguments(decoding, settings)
        if settings.backend == "vllm":
            arguments["seed"] = _seed(question, decoding, sample)
        return Instance("generate_until", question.row, (question.prompt, arguments), sample)

    torch.manual_seed(_seed(chunk[0], decoding))
    requests = [request(question, sample) for question in chunk for sample in range(decoding.n)]
    return lm.generate_until(requests, disable_tqdm=True)


def generation_arguments(decoding: "Decoding", settings: "Settings") -> dict:
    """lm-eval's `gen_kwargs`, complete, because hf would take missing ones from the model's generation config."""
    arguments = {"until": [], "max_gen_toks": settings.tokens, "repetition_penalty": 1.0}
    if settings.backend == "vllm":
        arguments["skip_special_tokens"] = True  # as hf does
    if not decoding.temperature:
        return arguments | {"do_sample": False, "temperature": 0.0}
    sampling = {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": decoding.top_k}
    return arguments | {"do_sample": True, **sampling}


def _seed(question: Question, decoding: "Decoding", sample: int = 0) -> int:
    """A seed of 32 bits, different for all tasks, questions and samples, except by chance."""
    place = (decoding.seed, question.row["source"], decoding.name, question.row["row_id"], sample)
    return int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:4])


def _said(question: Question, text: str) -> str:
    """A completion with the `<think>` that some templates open in the prompt, because graders need it."""
    opened = question.prompt.rstrip().endswith("<think>")
    return f"<think>\n{text}" if opened else text
