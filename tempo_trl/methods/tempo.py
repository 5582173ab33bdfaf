"""TEMPO: GRPO's advantage per completion plus a TD error per token, computed on the prefix tree of each group."""

from dataclasses import dataclass

from tempo_trl.config_help import with_help
from tempo_trl.credit.advantages import outcome_and_td_errors
from tempo_trl.credit.batch import Batch, Credit
from tempo_trl.credit.checks import check_number
from tempo_trl.methods.papers import arxiv_paper
from tempo_trl.methods.prefix_tree_method import PrefixTreeConfig, PrefixTreeTrainer, on_grown_trees


def tempo_credit(batch: Batch, td_coef: float = 1.0, forced_tokens: str = "keep") -> Credit:
    r"""
    TEMPO's credit: the outcome plus the TD errors of the prefix values (section 4.2 of
    https://huggingface.co/papers/2509.18314).

    $$A_{i,t} = g_i + c \, (V(s_{t+1}) - V(s_t))$$

    Args:
        batch ([`~tempo_trl.Batch`]):
            Whole groups.
        td_coef (`float`, *optional*, defaults to `1.0`):
            Coefficient c of the TD errors. 0 is GRPO.
        forced_tokens (`str`):
            As in [`TEMPOConfig`], for completions that were grown as trees.

    Returns:
        [`~tempo_trl.Credit`], with the TD errors as `added`.
    """
    outcome, td = outcome_and_td_errors(batch.tree, batch.outcome, batch.completion_ids.shape[1], batch.weights)
    advantages = outcome + td_coef * td
    if batch.tree_rollouts is None:  # without TD errors one advantage per completion, as TRL has it
        return Credit(advantages if td_coef else batch.advantages, td, statistics=batch.pairs)
    credit = Credit(advantages, td, outcome=outcome[:, 0], statistics=batch.pairs)
    return on_grown_trees(credit, batch, forced_tokens)


@with_help
@dataclass
class TEMPOConfig(PrefixTreeConfig):
    r"""
    Configuration class for the [`TEMPOTrainer`]: every field of [`~trl.GRPOConfig`], with its meaning and default,
    those of [`~tempo_trl.methods.prefix_tree_method.PrefixTreeConfig`] (`epsilon_high` 0.28, `rollout`),
    and the one below. beta 0 and the token-mean (DAPO) loss of the paper are TRL's own defaults.

    Args:
        td_coef (`float`, *optional*, defaults to `1.0`):
            Coefficient of the branch-gated TD error in the advantage of a token. The paper
            (https://huggingface.co/papers/2509.18314, section 4.2) uses 1. With 0 the advantages are those of
            [`~trl.GRPOTrainer`].
    """

    td_coef: float = 1.0

    def check(self) -> None:
        """Validate the credit and rollout settings."""
        super().check()
        check_number("td_coef", self.td_coef)


class TEMPOTrainer(PrefixTreeTrainer):
    """
    Trainer for TEMPO (https://huggingface.co/papers/2509.18314). The only change with respect to
    [`~trl.GRPOTrainer`] is the advantage: TRL's scalar per completion plus, on every token, the TD error of the prefix
    values of its group, `(B, T)` instead of `(B,)`. Generation, rewards, loss, logging and saving are TRL's.

    Example:

    ```python
    from datasets import load_dataset
    from tempo_trl import TEMPOConfig, TEMPOTrainer
    from trl.rewards import accuracy_reward

    trainer = TEMPOTrainer(
        model="Qwen/Qwen3-0.6B",
        reward_funcs=accuracy_reward,
        args=TEMPOConfig(output_dir="Qwen3-0.6B-TEMPO"),
        train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    )
    trainer.train()
    ```

    Args:
        model, reward_funcs, args, ...:
            As for [`~trl.GRPOTrainer`], in the same order; `args` is a [`TEMPOConfig`].

    Raises:
        ValueError: if `args` is not a [`TEMPOConfig`].

    Note:
        With sequence-level importance ratios (`importance_sampling_level="sequence"`) the loss uses GSPO-token's
        ratio, so that tokens keep their own advantages, and the off-policy mask uses the sign of the outcome
        ([`TokenCreditTrainer`]). Groups with equal rewards get exactly 0, not the rounding error of their mean. A
        state is the prompt and the tokens after it. If an environment or a `rollout_func` gives the completions of a
        group different prompts, only those with the same prompt share credit, and such groups are not recorded. With
        `td_coef=0` and the same `epsilon_high` training is that of [`~trl.GRPOTrainer`], bit for bit.

        On grown trees (`rollout` other than `"iid"`) the prefix tree is still built from the token ids. Leaves have
        weights w in every mean and sum over completions: all children of a node have equal weight. TEMPO's properties
        for independent completions still hold: the TD errors of a completion sum to r - V(root); and the completions
        through an edge, with total weight W, together give it W (V(after) - V(root)) as outcome and
        W (V(after) - V(before)) as TD. A weighted sum over completions has the expectation of one independent sample
        if all children of a node are sampled from the same distribution (as on fixed trees, even if branches end
        early). The limits: completions that share a sampled token are dependent, so the group is worth fewer than as
        many independent completions; and a forced token is not a sample of the policy (`forced_tokens`).
    """

    _tag_names = ["trl", "tempo"]
    _name = "TEMPO"
    _paper = arxiv_paper(
        "2509.18314",
        "tran2025exploiting",
        "Exploiting Tree Structure for Credit Assignment in RL Training of LLMs",
        "Hieu Tran and Zonghai Yao and Hong Yu",
    )

    _config_cls = TEMPOConfig
    method_name = "tempo"

    def credit(self, batch):
        return tempo_credit(batch, self.args.td_coef, self.args.forced_tokens)
