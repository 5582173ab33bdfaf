"""The files of an evaluation, without a model."""

from tempo_trl.evaluation.records import Record
from tempo_trl.evaluation.results import write_results


def answered(*ids: int) -> list[dict]:
    return [{"row_id": i, "correct": [float(i == 0)], "answers": ["2"]} for i in ids]


def test_two_processes_with_one_command_answer_each_question_once(tmp_path):
    first, second = (Record(tmp_path, "math", "greedy") for _ in range(2))
    for process in (first, second):
        process.begin({"limit": 4})
    assert first.resume(per_chunk=2, total=4) == 0
    first.append(answered(0, 1))
    assert second.resume(per_chunk=2, total=4) == 2
    for process in (first, second):
        process.append(answered(2, 3))
    for process in (first, second):
        process.finish("2026-01-31")
        [result] = write_results(tmp_path, "math")
        assert (result["n"], result["value"]) == (4, 0.25)
