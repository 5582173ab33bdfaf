"""Every metric that our trainers log beside TRL's, and its formula: the one source of the reference and its tests.

Plain data. Loss tokens are those whose loss is not masked. "Added" is what the method adds to GRPO's advantage, the
outcome, in its units: TEMPO's TD errors, without `td_coef`. A metric whose denominator is 0 is left out of that step.
"""

METRICS = {
    "tempo/added_share": r"sum \|added\| / sum (\|outcome\| + \|added\|) over loss tokens",
    "tempo/prefix_r2": "share of the variance of rewards that the longest shared prefix explains, learned over "
    "the run; training only",
    "tempo/branch_tokens": "loss tokens to which something is added / loss tokens",
    "tempo/branch_nodes": "states with at least two different next tokens, per group",
    "tempo/branch_depth": "mean depth of those states, in tokens from the start of the completion",
    "tempo/shared_prefix": "tokens that a completion shares with the closest other one of its group, mean",
    "tempo/unique_tokens": "nodes of the prefix trees / tokens",
    "tempo/duplicates": "completions that repeat an earlier one of their group / completions",
    "tempo/frac_zero_std": "groups without two different rewards, of completions, steps or criteria / groups",
    "tempo/packing_ratio": "tokens without padding / packed tokens; with `tree_forward`",
    "tempo/prefix_covariance_L": "covariance of the rewards of two completions that share L tokens (1, 4, 16, 64, "
    "256), in the units of the outcome; prefix baseline",
    "tempo/value_error": "squared error of the baseline / squared error of the mean of the other completions, mean "
    "over loss tokens and then over completions; prefix baseline, independent completions",
    "tempo/turns": "turns of a completion, mean; with tools, environments or a `rollout_func`",
    "tempo/shared_states": "states after an observation that at least two completions of a group visit, per group; "
    "where `tempo/turns` is logged",
    "tempo/state_visits": "other completions of the group that visit the state before a turn, mean over turns after "
    "an observation; where `tempo/turns` is logged",
    "step_rewards/NAME/mean": "reward of a turn, or of a step with `step_delimiter`, mean; one for each of the "
    "`step_reward_funcs`",
    "step_rewards/NAME/turn_L": "the same for the turns or steps of index L",
    "spans/NAME/mean": "reward of a criterion of the `span_reward_funcs`, mean over the completions that it judged; "
    "NAME is the first part of its name, `city` for `city.street`",
    "spans/NAME/credit": r"sum \|credit\| of the same criteria over loss tokens / completions that they judged; span "
    "credit",
    "spans/placed": r"sum \|credit\| of criteria with a place / sum \|credit\| over loss tokens; span credit",
    "spans/flat": "criteria without two different rewards in their group / criteria that judged any of its "
    "completions; span credit",
    "rollout/generated_tokens": "tokens generated for a tree, a shared token counted once, mean",
    "rollout/generated_share": "tokens generated / tokens that the completions hold",
    "rollout/leaves": "distinct completions of a tree, mean",
    "rollout/depth": "segments from the prompt to a leaf, mean",
    "rollout/forced_tokens": "tokens of a tree that were forced to differ from a sibling's, mean",
    "rollout/repeated_rows": "completions that repeat another's leaf / completions",
    "treerpo/silent_tokens": "loss tokens with advantage 0 / loss tokens",
    "grpo_lambda/log_ratio": r"mean \|log-ratio\| over loss tokens, before the trace",
    "grpo_lambda/traced_log_ratio": r"mean \|log-ratio\| over loss tokens, after the trace",
    "ppo/value_loss": "the critic's loss, mean over loss tokens",
    "ppo/value_mean": "the critic's values when the batch was sampled, mean over loss tokens",
    "ppo/explained_variance": "1 - variance of (return - value) / variance of returns",
    "ppo/critic_grad_norm": "norm of the critic's gradient before clipping",
}

CRITERIA = "criteria"  # name, reward and advantage of each criterion of a completion
OWN_COLUMNS = ("added_share", "branch_tokens", CRITERIA)  # in TRL's table of completions
