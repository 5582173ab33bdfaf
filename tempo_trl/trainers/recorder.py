"""The trees that a trainer leaves behind while it trains: what to record of a batch, and when."""

import json
import warnings
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from accelerate.utils import gather_object
from pyarrow import ArrowException

from tempo_trl.credit.advantages import prefix_tree, tree_values
from tempo_trl.report.callback import TRACKERS, TreeCallback
from tempo_trl.report.token_text import prompt_text, token_pieces
from tempo_trl.runs.trees import trees_path, write_trees
from tempo_trl.trainers.token_credit import loss_mask


class LoggedTrees:
    """
    Mixin of a trainer with `(B, T)` advantages: every `log_trees_steps` it records the first groups of a batch.

    The entropies of a record are those of the forward pass in which TRL computes the log-probabilities of the sampling
    policy, where it needs them (several updates a generation, or vLLM): nothing is computed for the record alone.
    Groups whose completions go on from different prompts are left out: there is no one tree to show.
    """

    _scoring = False  # while TRL scores a batch that is to be recorded
    _entropies = None
    _told_of_the_trees = _told_of_prompts = False

    def __init__(self, *args, **kwargs):
        self._records: dict[str, _Record] = {}  # the latest in training and in evaluation
        super().__init__(*args, **kwargs)
        if self.args.log_trees_steps and set(TRACKERS) & set(self.args.report_to):
            self.add_callback(TreeCallback())

    def _checked_config(self, args, model_name):
        args = super()._checked_config(args, model_name)
        args.check_logged_trees()
        return args

    def _generate_and_score_completions(self, inputs):
        self._scoring, self._entropies = self._trees_due(), None
        try:
            return super()._generate_and_score_completions(inputs)
        finally:
            self._scoring, self._entropies = False, None

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        wanted = self._scoring and model is self.model and self._entropies is None
        if wanted:
            kwargs["compute_entropy"] = True
        logps, entropies, aux_loss = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        if wanted:
            self._entropies = entropies
        return logps, entropies, aux_loss

    def _trees_due(self) -> bool:
        every, last = self.args.log_trees_steps, self._records.get(self._mode)
        if not every or self._group_size == 1:  # a completion without a group is no tree
            return False
        if self._mode == "eval" or last is None or last.step == self.state.global_step:
            return True
        return self.state.global_step // every > last.step // every

    def _log_trees(
        self, output: dict, td: torch.Tensor, prompts: torch.Tensor, weights: torch.Tensor | None = None
    ) -> None:
        """
        Record the batch if it is its turn. Every rank calls this.

        Args:
            output: The scored batch, with what trains in `advantages`.
            td (`torch.Tensor` of shape `(B, T)`): TD errors, without `td_coef`.
            prompts (`torch.Tensor` of shape `(B,)`): Numbers of the prompts.
            weights (`torch.Tensor` of shape `(B,)`, *optional*): Weights of the completions in the prefix values.
        """
        if not self._scoring:
            return
        record = self._record_at_hand()
        room = (self.args.log_trees_prompts - record.groups) * self._group_size
        if room <= 0:  # on every rank: all count the same groups
            return
        rows = gather_object(self._own_rows(output, td, prompts, weights, room))
        if self.is_world_process_zero():
            record.rows += self._of_one_prompt(self._finished(rows, record.groups))
            self._write_trees(record)
        record.groups += len(rows) // self._group_size

    def _record_at_hand(self) -> "_Record":
        """That of this step, to which later batches of an evaluation or of a long accumulation are added."""
        last = self._records.get(self._mode)
        if last is None or last.step != self.state.global_step:
            self._records[self._mode] = last = _Record(self.state.global_step)
        return last

    def _own_rows(
        self, output: dict, td: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor | None, room: int
    ) -> list[dict]:
        """What this rank knows of those of its completions that are among the first `room` of the batch."""
        prompts, completion_ids, _ = self._scored
        outcome = output.get("outcome_advantages", output["advantages"])
        tokens = {
            "td_errors": td,
            "advantages": output["advantages"].view(len(td), -1).expand(-1, td.shape[1]),
            "loss_mask": loss_mask(output).bool(),
        }
        if "old_per_token_logps" in output:  # else the one pass was the reference's, which is the same model with LoRA
            tokens["entropies"] = self._entropies
        tokens = {name: values.detach().float().cpu() for name, values in tokens.items()}
        begin = self.accelerator.process_index * len(completion_ids)
        return [
            {name: values[i, : len(completion_ids[i])].tolist() for name, values in tokens.items()}
            | {"completion_ids": list(completion_ids[i]), "outcome": outcome[i].item()}
            | {"prompt": prompt_text(prompts[i]), "prompt_key": keys[i].item()}
            | {"weight": None if weights is None else weights[i].item()}
            for i in range(min(len(completion_ids), max(room - begin, 0)))
        ]

    def _finished(self, rows: list[dict], groups_before: int) -> list[dict]:
        """Rows of the file: with rewards, values, and the text of the tokens."""
        rewards_per_func, size = self._scored.rewards_per_func[: len(rows)], self._group_size
        rewards = self._weighted(rewards_per_func).cpu()
        values = _values(rows, rewards, size)
        tokenizer = getattr(self.processing_class, "tokenizer", self.processing_class)
        pieces = iter(token_pieces(tokenizer, [i for row in rows for i in row["completion_ids"]]))
        for i, row in enumerate(rows):
            named = zip(self.reward_func_names, rewards_per_func[i].tolist(), strict=True)
            row |= {
                "step": self.state.global_step,
                "group": groups_before + i // size,
                "row": groups_before * size + i,
                "tokens": [next(pieces) for _ in row["completion_ids"]],
                "values": values[i, : len(row["completion_ids"]) + 1].tolist(),
                "loss_mask": [counts > 0 for counts in row["loss_mask"]],
                "reward": rewards[i].item(),
                "rewards": json.dumps({name: None if reward != reward else reward for name, reward in named}),
            }
        return rows

    def _of_one_prompt(self, rows: list[dict]) -> list[dict]:
        """The rows of the groups that have a tree to show."""
        keys: dict[int, set[int]] = defaultdict(set)
        for row in rows:
            keys[row["group"]].add(row.pop("prompt_key"))
        kept = [row for row in rows if len(keys[row["group"]]) == 1]
        if len(kept) < len(rows) and not self._told_of_prompts:
            warnings.warn(
                "The completions of a group go on from different prompts (an environment's observation, or a "
                "`rollout_func`): they share no state, and there is no tree to record. Those groups are left out of "
                "the recorded trees, and only completions with the same prompt share credit. Let `reset()` show all "
                "completions of a prompt the same if TEMPO is to compare them. This is said once.",
                UserWarning,
                stacklevel=2,
            )
            self._told_of_prompts = True
        return kept

    def _write_trees(self, record: "_Record") -> None:
        path = trees_path(self.args.output_dir, self._mode, record.step)
        metadata = {"num_generations": str(self._group_size), "td_coef": str(self.args.td_coef)}
        try:
            write_trees(path, record.rows, metadata)
        except (OSError, ArrowException) as error:
            if not self._told_of_the_trees:
                warnings.warn(
                    f"The prefix trees could not be written to {path}: {error}. Training goes on without those that "
                    "the disk refuses. This is said once: make room, or set `log_trees_steps=0`.",
                    UserWarning,
                    stacklevel=2,
                )
            self._told_of_the_trees = True


@dataclass
class _Record:
    """What is recorded of a step: how many groups, and on the main process the rows of its file."""

    step: int
    groups: int = 0
    rows: list[dict] = field(default_factory=list)


def _values(rows: list[dict], rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Prefix values of whole groups of rows, `(R, T + 1)`."""
    lengths = torch.tensor([len(row["completion_ids"]) for row in rows])
    completion_ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for ids, row in zip(completion_ids, rows, strict=True):
        ids[: len(row["completion_ids"])] = torch.tensor(row["completion_ids"])
    given = [row["weight"] for row in rows]  # None on a rank whose completions all weigh the same
    alike = all(weight is None for weight in given)
    weights = None if alike else torch.tensor([1 / num_generations if w is None else w for w in given])
    tree = prefix_tree(completion_ids, lengths, num_generations)
    return tree_values(tree, rewards, completion_ids.shape[1], weights)
