"""The stage `noise`: how much of a gradient is signal under each credit, for one policy on a task with criteria.

All credits get the same completions, so that they differ by the credit alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from benchmarks.language_model.arms import BASELINE
from benchmarks.language_model.criteria import functions
from benchmarks.language_model.gradients import Moments, Tokens, moments, over_base, sources, tokens_of
from benchmarks.tasks import fields_of, prompts_of, recipe_of
from tempo_trl.credit import tempo_advantages
from tempo_trl.credit.spans import Criteria, criteria_of, span_advantages
from tempo_trl.demo.sampling import sampled
from tempo_trl.report.group import padded
from tempo_trl.rewards.span_reward import by_criterion
from tempo_trl.runs.token_places import TokenTexts

GROUP, GROUPS = 8, 4  # completions of a group, groups of a prompt
STEP = 8  # prompts of an optimizer step


class Judged(NamedTuple):
    """
    Completions of a prompt.

    Args:
        completion_ids (`list[list[int]]`): Their tokens.
        criteria ([`~tempo_trl.credit.spans.Criteria`]): The criteria that they were judged by.
    """

    completion_ids: list[list[int]]
    criteria: Criteria

    @property
    def lengths(self) -> torch.Tensor:
        """True lengths in tokens."""
        return torch.tensor(list(map(len, self.completion_ids)))

    def groups(self) -> list["Judged"]:
        """The groups, one after the other."""
        parts = [slice(first, first + GROUP) for first in range(0, len(self.completion_ids), GROUP)]
        return [Judged(self.completion_ids[part], rows_of(self.criteria, part)) for part in parts]


def rows_of(criteria: Criteria, part: slice) -> Criteria:
    """The criteria of some rows."""
    kept = {name: getattr(criteria, name)[part] for name in ("rewards", "starts", "ends")}
    return criteria._replace(**kept)


def by_place(group: Judged, trace_lambda: float) -> torch.Tensor:
    """Span credit of a group, `(G, T)`."""
    own, lengths = group.criteria, group.lengths
    return span_advantages(
        own.rewards, own.starts, own.ends, lengths, int(lengths.max()), GROUP, trace_lambda=trace_lambda
    )


def on_all_tokens(group: Judged) -> torch.Tensor:
    """Every criterion a GRPO of its own, on all tokens."""
    nowhere = torch.full_like(group.criteria.starts, -1)
    return by_place(group._replace(criteria=group.criteria._replace(starts=nowhere, ends=nowhere)), 0.0)


def of_the_sum(group: Judged, td_coef: float) -> torch.Tensor:
    """TEMPO's credit of the mean of the criteria, GRPO's with a coefficient of 0."""
    lengths, rewards = group.lengths, group.criteria.mean_reward().float()
    return tempo_advantages(padded(group.completion_ids, torch.long), lengths, rewards, GROUP, td_coef=td_coef)


def permuted(spans: Criteria, completion_ids: Sequence[list[int]]) -> Criteria:
    """The criteria, each with the place of another one of its completion, which are its tokens."""
    order = torch.stack(list(map(_permutation, spans.rewards, completion_ids)))
    index = order[:, :, None].expand_as(spans.starts)
    return spans._replace(starts=spans.starts.gather(1, index), ends=spans.ends.gather(1, index))


def _permutation(rewards: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """A permutation of the criteria that a completion was judged by, the same for the same tokens, `(K,)`."""
    generator = torch.Generator().manual_seed(sum(place * token for place, token in enumerate(ids, 1)))
    judged = rewards.isfinite().nonzero().flatten()
    order = torch.arange(len(rewards))
    order[judged] = judged[torch.randperm(len(judged), generator=generator)]
    return order


def in_shuffled_places(group: Judged) -> torch.Tensor:
    """Span credit with the places of each completion permuted among its criteria."""
    return by_place(group._replace(criteria=permuted(group.criteria, group.completion_ids)), 0.0)


CREDITS: dict[str, Callable[[Judged], torch.Tensor]] = {
    BASELINE: lambda group: of_the_sum(group, 0.0),
    "tempo": lambda group: of_the_sum(group, 1.0),
    "each check on all tokens": on_all_tokens,
    "span_credit lambda 1": lambda group: by_place(group, 1.0),
    "span_credit lambda 0.9": lambda group: by_place(group, 0.9),
    "span_credit": lambda group: by_place(group, 0.0),
    "span_credit shuffled": in_shuffled_places,
}


def measure(task: str, policy: str, prompts: int) -> dict:
    """
    All numbers of a policy: for each credit [`~benchmarks.language_model.gradients.over_base`] GRPO's, and its
    [`~benchmarks.language_model.gradients.sources`].

    Args:
        task (`str`): A task whose answers are judged by criteria.
        policy (`str`): Folder or Hub id.
        prompts (`int`): Training prompts of the task, the first ones.
    """
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(policy)
    found: dict[str, list[Moments]] = {name: [] for name in CREDITS}
    means: dict[str, list[torch.Tensor]] = {name: [] for name in CREDITS}
    rewards = []
    recipe = fields_of(recipe_of(task, BASELINE))
    for index, row in enumerate(prompts_of(task, "train").select(range(prompts))):
        set_seed(index)
        prompt_ids = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
        groups = answered(model, tokenizer, task, prompt_ids, row, recipe).groups()
        tokens = [tokens_of(model, prompt_ids, each.completion_ids, recipe["temperature"]) for each in groups]
        by_credit = gradients_of(groups, tokens)
        for name, own in by_credit.items():
            found[name].append(moments(own, by_credit[BASELINE]))
            means[name].append(torch.stack(own).mean(dim=0))
        rewards += [each.criteria.mean_reward().mean().item() for each in groups]
    numbers = {
        name: over_base(own, found[BASELINE]) | sources(own, torch.stack(means[name])) for name, own in found.items()
    }
    return {"prompts": prompts, "groups": GROUPS, "reward": sum(rewards) / len(rewards), "credits": numbers}


def gradients_of(groups: Sequence[Judged], tokens: Sequence[Tokens]) -> dict[str, list[torch.Tensor]]:
    """The gradient of each group under each credit."""
    return {
        name: [own.gradient(credit(group)) for group, own in zip(groups, tokens, strict=True)]
        for name, credit in CREDITS.items()
    }


def answered(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    prompt_ids: list[int],
    row: dict,
    recipe: dict,
) -> Judged:
    """Complete a prompt as the task's recipe does, and judge the completions."""
    n = GROUP * GROUPS
    limit, temperature = recipe["max_completion_length"], recipe["temperature"]
    (completion_ids,) = sampled(model, [prompt_ids], [n], limit, [tokenizer.eos_token_id], temperature)
    places = list(map(TokenTexts(tokenizer), completion_ids))
    columns = {name: [value] * n for name, value in row.items() if name != "prompt"}
    spans = functions(task)[task](texts=[place.text for place in places], **columns)
    judged = [by_criterion(own, place.tokens) for own, place in zip(spans, places, strict=True)]
    names = sorted({name for own in judged for name in own})
    most = max(1, *(len(where) for own in judged for _, where in own.values()))
    return Judged(completion_ids, criteria_of(judged, dict.fromkeys(names, 1.0), most))


def of_a_step(share: float, prompts: int = STEP) -> float:
    """The share of signal in the gradient of a step of several prompts, from that in one group's."""
    return share / (share + (1 - share) / prompts)


def table_of(policy: str, numbers: dict) -> Table:
    """Where the gradient of a policy comes from under each credit."""
    title = f"{policy}: {numbers['prompts']} prompts, mean reward {numbers['reward']:.2f}"
    parts = "completions", "prompts", "signal"
    headings = "credit", *parts, f"signal in a step of {STEP}", "noise to signal over GRPO's", "cosine with GRPO's"
    table = Table(*headings, title=title, box=SIMPLE_HEAD)
    for credit, own in numbers["credits"].items():
        step = [of_a_step(share) for share in own["signal"]]
        values = *(own[part] for part in parts), step, own["noise_to_signal"], own["cosine"]
        table.add_row(credit, *map(_with_ends, values))
    return table


def _with_ends(numbers: Sequence[float | None]) -> str:
    value, low, high = (float("nan") if number is None else number for number in numbers)
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
