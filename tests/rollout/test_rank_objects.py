"""Objects reach the ranks that need them, in order, and no others."""

import pytest

from tempo_trl.rollout.ranks import gather_on_main, scatter_from_main, send_to_main

from ..trainers.launching import run_ranks, torchrun


@pytest.mark.matrix
def test_three_ranks_give_to_the_main_one_and_get_their_own(tmp_path):
    main, second, third = run_ranks(torchrun(3), 3, "tests.rollout.objects_rank", "_", tmp_path)
    assert main["gathered"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert second["gathered"] is third["gathered"] is None
    assert [rank["scattered"] for rank in (main, second, third)] == ["for 0", "for 1", "for 2"]
    assert main["sent"] == [bytes(0), bytes(10)]
    assert second["sent"] is None


def test_one_process_gives_to_itself():
    assert gather_on_main("a") == ["a"] == send_to_main("a", senders=1)
    assert scatter_from_main(["a"]) == "a"
