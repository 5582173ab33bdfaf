"""Recording of prefix trees during training: which batches are recorded, and which of their data."""

import json
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from pyarrow import ArrowException
from transformers.utils import logging
from trl import GRPOTrainer

from tempo_trl.credit.advantages import tree_values
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.methods import method_label
from tempo_trl.report.callback import TRACKERS, TreeCallback
from tempo_trl.rollout.ranks import send_to_main
from tempo_trl.rollout.tree_rollout import TreeRollout
from tempo_trl.runs.criteria import spans_of
from tempo_trl.runs.messages import calls_and_observations, prompt_text
from tempo_trl.runs.token_text import token_pieces
from tempo_trl.runs.trees import trees_path, write_trees
from tempo_trl.trainers.scored_rows import ScoredRows, loss_mask
from tempo_trl.trainers.whole_groups import weighted_rewards

logger = logging.get_logger(__name__)


@dataclass
class _Record:
    """The record of a step: its number of groups and, on the main process, the rows of its file."""

    step: int
    groups: int = 0
    rows: list[dict] = field(default_factory=list)


class Recorder:
    """
    Records the first groups of a batch every `log_trees_steps` optimizer steps, for `tempo-trl report`.

    Entropies are recorded if TRL itself runs a forward pass for the log-probabilities of the sampling policy (with
    several updates per generation, or vLLM); nothing is computed only for the record. Groups whose completions
    continue different prompts are left out, because they are not one tree.

    Args:
        trainer ([`~tempo_trl.trainers.token_credit.TokenCreditTrainer`]):
            The trainer whose batches are recorded.
    """

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer
        self._records: dict[str, _Record] = {}  # the latest by mode
        self._evaluation = "eval"  # what the metrics of the evaluation at hand begin with
        if trainer.args.log_trees_steps and set(TRACKERS) & set(trainer.args.report_to):
            trainer.add_callback(TreeCallback())

    @property
    def _mode(self) -> str:
        return "train" if self.trainer.model.training else self._evaluation

    @property
    def _group_size(self) -> int:
        trainer = self.trainer
        return trainer.num_generations if trainer.model.training else trainer.num_generations_eval

    def begin_evaluation(self, prefix: str) -> None:
        """Give an evaluation a record of its own: each of several datasets has one, and the last of a step counts."""
        self._evaluation = prefix
        self._records.pop(prefix, None)

    def is_due(self) -> bool:
        """Whether the next batch is recorded. The same on every rank."""
        every, last = self.trainer.args.log_trees_steps, self._records.get(self._mode)
        step = self.trainer.state.global_step
        if not every or self._group_size == 1:  # a group of 1 has no tree
            return False
        if self._mode != "train" or last is None or last.step == step:
            return True
        return step < last.step or step // every > last.step // every  # back at an earlier step: another `train()`

    def record(self, batch: Batch, rows: ScoredRows, credit: Credit) -> None:
        """
        Record the first groups of a batch. Every rank must call this.

        Args:
            batch ([`Batch`]): The scored batch.
            rows ([`ScoredRows`]): The rows of this rank, with TRL's batch as used for training.
            credit ([`Credit`]): The credit of these rows.
        """
        record = self._record_at_hand()
        room = (self.trainer.args.log_trees_prompts - record.groups) * self._group_size
        if room <= 0:  # the same on every rank
            return
        per_rank, of_all_ranks = len(credit.added), len(rows.rewards_per_func)
        own_rows = self._own_rows(batch, rows, credit, room)
        parts = send_to_main(own_rows, senders=-(-min(room, of_all_ranks) // per_rank))
        if parts is not None:
            sent = [row for part in parts for row in part]
            finished = self._finished(sent, record.groups, rows.rewards_per_func[: len(sent)])
            record.rows += _of_one_prompt(finished)
            self._write(record)
        record.groups += min(room, of_all_ranks) // self._group_size

    def _record_at_hand(self) -> _Record:
        """The record of this step. Later batches of an evaluation or of a long accumulation are added to it."""
        last, step = self._records.get(self._mode), self.trainer.state.global_step
        if last is None or last.step != step:
            self._records[self._mode] = last = _Record(step)
        return last

    def _own_rows(self, batch: Batch, rows: ScoredRows, credit: Credit, room: int) -> list[dict]:
        """Rows of this rank's completions that are among the first `room` completions of the batch."""
        own, width = rows.place.own, credit.added.shape[1]
        tokens = {
            "td_errors": credit.added,
            "advantages": rows.output["advantages"].view(len(credit.added), -1).expand(-1, width),
        }
        if batch.entropies is not None:
            tokens["entropies"] = batch.entropies[own, :width]
        tokens = {name: values.detach().float().cpu() for name, values in tokens.items()}
        tokens["loss_mask"] = loss_mask(rows.output).bool().cpu()
        tokens["completion_ids"] = batch.completion_ids[own].int()
        tokens["seen_ids"] = tokens["completion_ids"] if batch.seen_ids is None else batch.seen_ids[own].int()
        tokens["turns"] = batch.turns[own].short()
        lengths = batch.lengths[own].tolist()
        of_prefixes = tree_values(batch.tree, batch.rewards, batch.completion_ids.shape[1], credit.weights)[own]
        begin = self.trainer.accelerator.process_index * len(lengths)
        keys = batch.seen_before_turns[own]
        spans = spans_of(rows.criteria, credit.criteria) if rows.criteria else None
        return [
            {
                "outcome": credit.reference[i].item(),
                "prompt": prompt_text(rows.prompts[i]),
                "prompt_key": batch.prompts[own][i].item(),
                "values": of_prefixes[i, : lengths[i] + 1].numpy(),
                "spans": None if spans is None else [span._asdict() for span in spans[i]],
            }
            | {name: values[i, : lengths[i]].numpy() for name, values in tokens.items()}  # compact to send
            | _per_turn(keys[i], rows.completions[i])
            for i in range(min(len(lengths), max(room - begin, 0)))
        ]

    def _finished(self, rows: list[dict], groups_before: int, rewards_per_func: torch.Tensor) -> list[dict]:
        """Rows of the file, completed with rewards and the text of the tokens."""
        trainer, size = self.trainer, self._group_size
        rows = [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows]
        rewards = weighted_rewards(trainer, rewards_per_func).cpu()
        of_funcs = rewards_per_func.tolist()
        pieces = iter(token_pieces(trainer._tokenizer, [i for row in rows for i in row["completion_ids"]]))
        rows = [row | {"completion_ids": row.pop("seen_ids")} for row in rows]  # the file's trees are those of credit
        for i, row in enumerate(rows):
            named = zip(trainer.reward_func_names, of_funcs[i], strict=True)
            row |= {
                "step": trainer.state.global_step,
                "group": groups_before + i // size,
                "row": groups_before * size + i,
                "tokens": [next(pieces) for _ in row["completion_ids"]],
                "reward": rewards[i].item(),
                "rewards": json.dumps({name: None if reward != reward else reward for name, reward in named}),
            }
        return rows

    def _write(self, record: _Record) -> None:
        args, method = self.trainer.args, self.trainer.method_name
        path = trees_path(args.output_dir, self._mode, record.step)
        label = method_label(method) if method != "token_credit" else self.trainer.credit_name
        metadata = {
            "num_generations": str(self._group_size),
            "td_coef": str(getattr(args, "td_coef", 1.0)),
            "trace_lambda": str(getattr(args, "trace_lambda", 0.0)),
            "method": method,
            "credit": label,
            "grown": str(self._mode == "train" and isinstance(self.trainer.rollout_func, TreeRollout)),
        }
        try:
            write_trees(path, record.rows, metadata)
        except (OSError, ArrowException) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            logger.warning_once(
                f"Could not write the prefix trees to {path.parent}: {reason}. Training continues; trees that cannot "
                "be written are lost. Free disk space, or set `log_trees_steps=0`. This warning is given once."
            )


def _per_turn(keys: torch.Tensor, completion: str | list[dict]) -> dict[str, list]:
    states = keys[keys != 0].tolist()
    calls, observed = calls_and_observations(completion, len(states))
    return {"states": states, "calls": calls, "observed": observed}


def _of_one_prompt(rows: list[dict]) -> list[dict]:
    """The rows of groups whose completions all continue the same prompt."""
    keys: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        keys[row["group"]].add(row.pop("prompt_key"))
    kept = [row for row in rows if len(keys[row["group"]]) == 1]
    if len(kept) < len(rows):
        logger.warning_once(
            "The completions of a group continue different prompts (an environment's observation, or a "
            "`rollout_func`). Only completions with the same prompt share credit, and such groups are left out of the "
            "recorded trees. If their prefixes should be compared, let `reset()` return the same observation for all "
            "completions of a prompt. This warning is given once."
        )
    return kept
