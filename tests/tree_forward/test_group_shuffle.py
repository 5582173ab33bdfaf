"""Groups are shuffled whole into micro-batches."""

from itertools import pairwise

import torch
from trl import GRPOTrainer
from trl.trainer.utils import shuffle_sequence_dict

from tempo_trl import PlainGRPOTrainer
from tempo_trl.tree_forward.group_shuffle import shuffled_groups

from .running import ACCUMULATED, run


def rows_of(count: int) -> dict:
    rows = torch.arange(count)
    names = list(map(str, rows.tolist()))
    return {"completion_ids": rows[:, None] * 10, "row": rows, "names": names, "n": torch.tensor(7), "no": None}


def test_groups_are_shuffled_whole_and_rows_keep_what_is_theirs():
    firsts = set()
    for seed in range(20):
        torch.manual_seed(seed)
        batch = shuffled_groups(rows_of(24), begin=0, num_generations=4)
        rows = batch["row"]
        assert sorted(rows.tolist()) == list(range(24))
        assert torch.equal(rows.view(-1, 4), rows.view(-1, 4)[:, :1] + torch.arange(4))
        assert torch.equal(batch["completion_ids"][:, 0], rows * 10)
        assert batch["names"] == [str(row) for row in rows.tolist()]
        assert (batch["n"], batch["no"]) == (7, None)
        firsts.add(rows[0].item())
    assert len(firsts) > 3


def test_the_shuffle_takes_as_many_random_numbers_as_trls():
    states = []
    for shuffle in (shuffle_sequence_dict, lambda batch: shuffled_groups(batch, 0, 4)):
        torch.manual_seed(0)
        shuffle(rows_of(24))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_a_group_that_lies_on_two_ranks_is_cut_where_they_cut_it():
    """Rows 6 to 17 of groups of 8: two of the first, a whole one, two of the third."""
    for seed in range(20):
        torch.manual_seed(seed)
        rows = shuffled_groups(rows_of(12), begin=6, num_generations=8)["row"] + 6
        groups = [row // 8 for row in rows.tolist()]
        assert sorted(rows.tolist()) == list(range(6, 18))
        assert sum(a != b for a, b in pairwise(groups)) == 2


def test_micro_batches_of_a_run_hold_whole_groups_and_nothing_else_of_the_run_changes(tiny_model, tmp_path):
    stock = run(GRPOTrainer, tiny_model, tmp_path / "stock", **ACCUMULATED)
    ours = run(PlainGRPOTrainer, tiny_model, tmp_path / "tree", tree_forward="on", **ACCUMULATED)
    for batch in ours._buffered_inputs:
        assert len(batch["prompt_ids"].unique(dim=0)) == 2  # 16 rows, groups of 8
    assert max(len(batch["prompt_ids"].unique(dim=0)) for batch in stock._buffered_inputs) > 2

    def rows(trainer):
        ids = torch.cat([torch.cat([b["prompt_ids"], b["completion_ids"]], dim=1) for b in trainer._buffered_inputs])
        return sorted(map(tuple, ids.tolist()))

    assert rows(ours) == rows(stock)
