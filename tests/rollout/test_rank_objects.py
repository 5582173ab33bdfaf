"""Objects reach the ranks that need them, in order, and cost no other rank a byte."""

import pickle

import pytest
import torch

from tempo_trl.rollout.growth import Continuation
from tempo_trl.rollout.ranks import gather_on_main, scatter_from_main, send_to_main
from tempo_trl.rollout.vllm_sampler import _top

from ..trainers.launching import run_ranks, torchrun


@pytest.mark.matrix
def test_three_ranks_give_to_the_main_one_and_get_their_own(tmp_path):
    main, second, third = run_ranks(torchrun(3), 3, "tests.rollout.objects_rank", "_", tmp_path)
    assert main["gathered"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert second["gathered"] is third["gathered"] is None
    assert [rank["scattered"] for rank in (main, second, third)] == ["for 0", "for 1", "for 2"]
    assert main["sent"] == [bytes(100_000), bytes(10)]
    assert second["sent"] is third["sent"] is None
    # What the main process has itself, the largest part, is not sent, and nobody pads to it.
    assert third["bytes"] == []
    for rank, name in ((main, "recv"), (second, "send")):
        assert {call for call, _ in rank["bytes"]} == {name}
        assert sum(size for _, size in rank["bytes"]) < 1000


def test_one_process_gives_to_itself():
    assert gather_on_main("a") == ["a"] == send_to_main("a", senders=1)
    assert scatter_from_main(["a"]) == "a"


def test_an_answer_of_the_server_takes_at_most_nine_bytes_a_candidate():
    tokens, top_k = 2000, 20
    candidates = [list(range(100_000 + t, 100_000 + t + top_k)) for t in range(tokens)]
    logprobs = [[-0.1 * k for k in range(top_k)] for _ in range(tokens)]
    top = _top(candidates, logprobs, top_k)
    sampled = [ids[0] for ids in candidates]
    answer = Continuation(sampled, [row[0] for row in logprobs], stopped=True, top=top)
    assert len(pickle.dumps(answer)) / tokens < 9 * top_k
    assert top.token_ids.dtype == torch.int32
