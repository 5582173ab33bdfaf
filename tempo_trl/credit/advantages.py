"""Prefix values, TD errors and TEMPO's token advantages (TEMPO, https://huggingface.co/papers/2509.18314).

Indices: values are (B, T + 1) and column t is the state after t tokens; TD errors and advantages are (B, T) and column
t is the token that leads from state t to state t + 1. The rows of a group are adjacent.
"""

import numpy as np
import torch

from tempo_trl.credit.checks import check_choice, check_lengths, check_number, check_rewards
from tempo_trl.credit.prefix_tree import PrefixTree, prefix_tree

SCALES = ("group", "batch", "none")
EPSILON = 1e-4  # added to every standard deviation, as TRL does
ROUNDING = 4 * torch.finfo(torch.float32).eps  # relative size of a difference that is none: see `are_equal`


def prefix_values(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    rewards: torch.Tensor,
    num_generations: int,
    *,
    weights: torch.Tensor | None = None,
    prompts: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Value of every prefix of every completion: the mean reward of the group's completions that begin with it.

    $$V(s) = \frac{1}{|D(s)|} \sum_{j \in D(s)} r_j$$

    (section 4.1), where D(s) holds the completions of the group that pass through state s or end there. Duplicates
    share their last state; so does a completion that is a proper prefix of another. Column 0 is the group's mean.
    Unscorable completions (reward NaN) are left out. A state that only they reach has the value of the previous state,
    and a group without any scorable completion has the value 0.

    Args:
        completion_ids (`torch.Tensor` of shape `(B, T)`, integer):
            Sampled token ids, right-padded with any id, which may be EOS: padding is never read.
        completion_lengths (`torch.Tensor` of shape `(B,)`, integer):
            True lengths in tokens, 0 to T.
        rewards (`torch.Tensor` of shape `(B,)`):
            Rewards, in any unit; NaN marks an unscorable completion.
        num_generations (`int`):
            Completions in a group.
        weights (`torch.Tensor` of shape `(B,)`, *optional*):
            Positive weights of the completions, for completions that were not sampled independently
            ([`~tempo_trl.credit.grown_tree.GrownTree.leaf_weights`]). Defaults to equal weights.
        prompts (`torch.Tensor` of shape `(B,)`, integer, *optional*):
            Numbers that are equal for completions of a group with the same prompt. Needed if prompts differ within a
            group (an environment that adds an observation). A state is the prompt and the tokens after it, so
            completions of different prompts share no state, and column 0 is the mean over those with the same prompt.

    Returns:
        `torch.Tensor` of shape `(B, T + 1)`, float32, on the device of `completion_ids`: column t is the value of the
        state after t tokens; columns after a row's length repeat its last value.

    Raises:
        ValueError: if a rank, length, dtype or the number of rows does not fit.
    """
    tree = prefix_tree(completion_ids, completion_lengths, num_generations, prompts)
    check_rewards(rewards, len(completion_ids))
    return tree_values(tree, rewards, completion_ids.shape[1], weights).to(completion_ids.device)


def td_errors(values: torch.Tensor, completion_lengths: torch.Tensor) -> torch.Tensor:
    r"""
    TD error of every token, $\delta_{i,t} = V(s_{i,t+1}) - V(s_{i,t})$ (section 4.2).

    It is 0 unless another completion of the group branches off, or ends, at state t. This follows from the values; no
    explicit gate is applied.

    Args:
        values (`torch.Tensor` of shape `(B, T + 1)`):
            Prefix values; column t is the state after t tokens.
        completion_lengths (`torch.Tensor` of shape `(B,)`, integer):
            True lengths in tokens.

    Returns:
        `torch.Tensor` of shape `(B, T)`, dtype and device of `values`, 0 past each row's length.
    """
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(f"`values` must be (B, T + 1), got shape {tuple(values.shape)}.")
    check_lengths(completion_lengths, values.shape[0], values.shape[1] - 1)
    inside = _inside(completion_lengths.to(values.device), values.shape[1] - 1)
    return values.diff(dim=1).masked_fill_(~inside, 0.0)


def tempo_advantages(
    completion_ids: torch.Tensor,
    completion_lengths: torch.Tensor,
    rewards: torch.Tensor,
    num_generations: int,
    *,
    scale_rewards: str = "group",
    td_coef: float = 1.0,
    prompts: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    TEMPO's advantage of every token: the group-relative outcome plus the branch-gated TD error.

    $$A_{i,t} = \frac{r_i - \mathrm{mean}(r) + c \, \delta_{i,t}}{\mathrm{scale}}$$

    (section 4.2; the coefficient c is ours, the paper has c = 1). The scale is std + 1e-4 (ddof 1, as TRL's) over the
    group or over the batch, or 1. A group whose completions never branch gets GRPO's advantage; a flat group (equal
    rewards), a group of one and an unscorable completion (reward NaN) get exactly 0.

    Args:
        completion_ids, completion_lengths, rewards, num_generations, prompts:
            As in [`prefix_values`].
        scale_rewards (`str`, *optional*, defaults to `"group"`):
            `"group"`, `"batch"` or `"none"`, with the meaning of TRL's `GRPOConfig.scale_rewards`.
        td_coef (`float`, *optional*, defaults to `1.0`):
            Coefficient c of the TD error, at least 0; 0 is GRPO.

    Returns:
        `torch.Tensor` of shape `(B, T)`, float32, on the device of `completion_ids`, 0 past each row's length.

    Raises:
        ValueError: as [`prefix_values`]; also for an unknown scale and a negative or non-finite coefficient.
    """
    check_number("td_coef", td_coef)
    tree = prefix_tree(completion_ids, completion_lengths, num_generations, prompts)
    check_rewards(rewards, len(completion_ids))
    outcome = outcome_advantages(rewards, num_generations, scale_rewards)
    outcome, td = outcome_and_td_errors(tree, outcome, completion_ids.shape[1])
    return (outcome + td_coef * td).to(completion_ids.device)


def outcome_advantages(
    rewards: torch.Tensor,
    num_generations: int,
    scale_rewards: str = "group",
    all_rewards: torch.Tensor | None = None,
    size: torch.Tensor | None = None,
) -> torch.Tensor:
    """
    GRPO's advantage of every completion, (r - mean) / scale: `(B,)`, float64, on the CPU, NaN for NaN rewards.

    `size` is that of [`flat_groups`].
    """
    rewards = rewards.detach().cpu().double()
    groups = rewards.view(-1, num_generations)
    centred = groups - groups.nanmean(dim=1, keepdim=True)
    centred = centred / outcome_scale(rewards, num_generations, scale_rewards, all_rewards).view(-1, num_generations)
    return without_rounding(centred.view(-1), flat_groups(rewards, num_generations, size))


def outcome_scale(
    rewards: torch.Tensor, num_generations: int, scale_rewards: str, all_rewards: torch.Tensor | None = None
) -> torch.Tensor:
    """
    What GRPO divides the rewards of every completion by: `(B,)`, float64. `rewards` are float64, on the CPU.

    `all_rewards` are the rewards of the rows of all ranks, for `"batch"`; by default those of `rewards`.
    """
    check_choice("scale_rewards", scale_rewards, SCALES)
    if scale_rewards == "none":
        return torch.ones_like(rewards)
    if scale_rewards == "group":
        together = rewards.view(-1, num_generations)
    else:
        together = (rewards if all_rewards is None else all_rewards)[None]
    return (nanstd(together) + EPSILON).expand(-1, len(rewards) // len(together)).reshape(-1)


def leave_one_out(outcome: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Each outcome minus the mean of the group's other scorable ones (RLOO): `(R,)`, float64. NaN stays; alone, 0."""
    groups = outcome.double().view(-1, num_generations)
    count = (~groups.isnan()).sum(dim=1, keepdim=True)
    mean = groups.nanmean(dim=1, keepdim=True)
    return ((groups - mean) * count / (count - 1).clamp(min=1)).flatten()


def outcome_and_td_errors(
    tree: PrefixTree, outcome: torch.Tensor, width: int, weights: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Outcome advantages g on each token, and the TD errors $V_g(s_{t+1}) - V_g(s_t)$ of their prefix values.

    V is a mean, so the values of the scaled outcomes g are the scaled values of the rewards. The function therefore
    works for any affine map g of a group's rewards, without knowing its mean or standard deviation.

    Args:
        tree ([`PrefixTree`]):
            Trees of the groups.
        outcome (`torch.Tensor` of shape `(R,)`):
            Outcome advantages g, equal within a group exactly where its rewards are equal; NaN where unscorable.
        width (`int`):
            Columns T of the result.
        weights (`torch.Tensor` of shape `(R,)`, *optional*):
            Weights w of the completions, with sum 1 in each group, for groups that were not sampled independently
            ([`~tempo_trl.credit.grown_tree.GrownTree.leaf_weights`]): values are weighted means, and the outcome is
            relative to the weighted mean of the group. Defaults to 1 / G.

    Returns:
        Both `(R, T)`, float32, on the CPU; 0 past each row's length, for unscorable completions and in groups whose
        outcomes are all equal.
    """
    outcome = outcome.detach().cpu().float()
    silent = flat_groups(outcome, tree.num_generations).repeat_interleave(tree.num_generations) | outcome.isnan()
    trained = _inside(torch.from_numpy(tree.lengths), width) & ~silent[:, None]
    values = tree_values(tree, outcome, width, weights)
    if weights is not None:
        outcome = outcome - values[:, 0]
    return torch.where(trained, outcome[:, None], 0.0), values.diff(dim=1).masked_fill_(~trained, 0.0)


def credit_sums(outcome: torch.Tensor, added: torch.Tensor, loss_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """
    Numerator and denominator, `(B, 2)`, of each completion's share of added credit and share of branch tokens.

    `added_share`: sum |added| / sum (|outcome| + |added|). `branch_tokens`: tokens to which something is added /
    tokens. Both are over the tokens of the loss, with what is added in the units of the outcome, without `td_coef`.
    """
    mask = loss_mask.to(added.dtype)
    added_mass, tokens = (added.abs() * mask).sum(dim=1), mask.sum(dim=1)
    branch_tokens = ((added != 0) * mask).sum(dim=1)
    return {
        "added_share": torch.stack([added_mass, added_mass + outcome.abs() * tokens], dim=1),
        "branch_tokens": torch.stack([branch_tokens, tokens], dim=1),
    }


def are_equal(low, high, size=None):
    r"""
    Whether numbers between `low` and `high` are equal up to rounding: $high - low \le 4 \epsilon \, size$, $\epsilon =
    2^{-23}$. Arrays or tensors.

    A float32 sum of F weighted rewards is off by at most $(F + 1) \epsilon / 2 \, \sum_k |w_k r_k|$: each reward, each
    product and each sum is rounded by $\epsilon / 2$ of itself. So two sums that should be equal differ by at most
    $(F + 1) \epsilon$ of their size: the bound here for three rewards, which the errors of more rarely add up to.
    Divided by a standard deviation that consists of such errors, an advantage would be about 1.

    Args:
        low, high:
            Smallest and largest of numbers that are compared.
        size (*optional*):
            $\sum_k |w_k r_k|$ of sums whose terms may cancel. Defaults to that of the numbers themselves.
    """
    return high - low <= ROUNDING * ((abs(low) + abs(high)) / 2 if size is None else size)


def flat_groups(rewards: torch.Tensor, num_generations: int, size: torch.Tensor | None = None) -> torch.Tensor:
    """
    Groups without two different scorable rewards, up to rounding: `(groups,)`, or `(groups, K)` for `(R, K)` rewards,
    bool. A group of one is flat.

    Every method asks this function, or [`are_equal`] where those that are compared are not a group: visits of a state,
    siblings of a tree. A flat group, state or family has advantages of exactly 0.

    Args:
        rewards (`torch.Tensor` of shape `(R,)` or `(R, K)`): NaN where unscorable.
        num_generations (`int`): Completions in a group.
        size (`torch.Tensor` of shape `(R,)` or `(R, K)`, *optional*): As in [`are_equal`].
    """
    groups = rewards.unflatten(0, (-1, num_generations))
    low, high = groups.nan_to_num(nan=torch.inf).amin(dim=1), groups.nan_to_num(nan=-torch.inf).amax(dim=1)
    if size is not None:
        size = size.nan_to_num(0.0).unflatten(0, (-1, num_generations)).amax(dim=1)
    return are_equal(low, high, size)


def without_rounding(advantages: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Advantages `(R,)`, exactly 0 in the `flat` groups, where they are a rounding error over 1e-4. NaN stays."""
    silent = flat.repeat_interleave(len(advantages) // max(len(flat), 1)) & ~advantages.isnan()
    return advantages.masked_fill(silent, 0.0)


def tree_values(
    tree: PrefixTree, rewards: torch.Tensor, width: int, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Prefix values of a tree's rows, `(R, width + 1)`, float32, on the CPU: see [`prefix_values`]."""
    rewards, shared = rewards.detach().cpu().double().numpy()[tree.order], tree.longest_shared_prefix
    weights = np.ones(len(rewards)) if weights is None else weights.cpu().double().numpy()[tree.order]
    weights, rewards = np.where(np.isnan(rewards), 0.0, weights), np.nan_to_num(rewards)
    alone = np.flatnonzero((tree.lengths[tree.order] > shared) | (shared < 0))
    nodes = np.stack([tree.start, tree.stop, tree.top])[:, ::-1]  # parents before their children
    values = np.zeros((len(rewards), width + 1), dtype=np.float32)
    # From the root down: what is known of a node replaces its parent's value up to the end of the rows.
    for start, stop, top in np.append(nodes, [alone, alone + 1, shared[alone]], axis=1).T.tolist():
        if total := weights[start:stop].sum():
            values[tree.order[start:stop], top + 1 :] = weights[start:stop] @ rewards[start:stop] / total
    return torch.from_numpy(values)


def _inside(lengths: torch.Tensor, width: int) -> torch.Tensor:
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def nanstd(rows: torch.Tensor) -> torch.Tensor:
    """Standard deviation of each row (ddof 1) without NaNs, 0 for fewer than two numbers. Shape `(R, 1)`."""
    squares = (rows - rows.nanmean(dim=1, keepdim=True)).square().nansum(dim=1, keepdim=True)
    count = (~rows.isnan()).sum(dim=1, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()
