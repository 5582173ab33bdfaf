"""Find training problems that are also test problems."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


def leaked_rows(train_dataset: "Dataset", test_dataset: "Dataset") -> list[int]:
    """Indices of the rows of `train_dataset` whose question also occurs in `test_dataset`.

    Questions are equal if the last messages of their prompts differ only in white space and case, so both datasets
    must be built with the same instruction and style. Options in another order make a different question.
    """
    asked = {_question(prompt) for prompt in test_dataset["prompt"]}
    return [index for index, prompt in enumerate(train_dataset["prompt"]) if _question(prompt) in asked]


def check_leaks(train_dataset: "Dataset", test_dataset: "Dataset", drop: bool = False) -> "Dataset":
    """Warn of the rows that [`leaked_rows`] finds, and return `train_dataset`, without them if `drop`.

    They are kept by default: the published figures come from training on whole splits, and two problems of MATH's
    7,500 have little effect.
    """
    leaked = leaked_rows(train_dataset, test_dataset)
    if not leaked:
        return train_dataset
    what = "dropped" if drop else "kept (set drop_leaked_rows to drop them)"
    rows = train_dataset.select(leaked)["row_id"][:]
    logger.warning("%d training rows are also evaluation rows. They are %s: %s", len(leaked), what, rows)
    return train_dataset.select(sorted(set(range(len(train_dataset))) - set(leaked))) if drop else train_dataset


def _question(prompt: list[dict[str, str]]) -> str:
    return " ".join(prompt[-1]["content"].split()).casefold()
