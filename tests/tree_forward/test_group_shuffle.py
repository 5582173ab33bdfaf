"""Groups are shuffled whole into micro-batches."""

from itertools import pairwise

import torch
from trl import GRPOTrainer

from tempo_trl import PlainGRPOTrainer
from tempo_trl.tree_forward.group_shuffle import keep_groups_together

from .running import ACCUMULATED, run


def shuffled_rows(rows: int, micro_batches: int, seed: int) -> list[dict]:
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    total = torch.tensor(7)
    return [
        {
            "generation_row": rows,
            "ids": rows[:, None] * 10,
            "names": list(map(str, rows.tolist())),
            "n": total,
            "no": None,
        }
        for rows in order.chunk(micro_batches)
    ]


def test_groups_are_shuffled_whole_and_rows_keep_what_is_theirs():
    for seed in range(20):
        batches = keep_groups_together(shuffled_rows(24, 3, seed), num_generations=4)
        rows = torch.cat([batch["generation_row"] for batch in batches])
        assert sorted(rows.tolist()) == list(range(24))
        assert torch.equal(rows.view(-1, 4), rows.view(-1, 4)[:, :1] + torch.arange(4))
        for batch in batches:
            assert torch.equal(batch["ids"][:, 0], batch["generation_row"] * 10)
            assert batch["names"] == [str(row) for row in batch["generation_row"].tolist()]
            assert (batch["n"], batch["no"]) == (7, None)


def test_a_group_that_lies_on_two_ranks_is_cut_where_they_cut_it():
    """Rows 6 to 17 of groups of 8: two of the first, a whole one, two of the third."""
    batches = shuffled_rows(12, 3, seed=1)
    moved = [batch | {"generation_row": batch["generation_row"] + 6} for batch in batches]
    rows = torch.cat([batch["generation_row"] for batch in keep_groups_together(moved, 8)]).tolist()
    groups = [row // 8 for row in rows]
    assert sorted(rows) == list(range(6, 18))
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
