"""Problems to train on that are problems to test on, too."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


def leaked_rows(train_dataset: "Dataset", test_dataset: "Dataset") -> list[int]:
    """Indices of the rows of `train_dataset` that ask what a row of `test_dataset` asks.

    Two prompts ask the same if their last messages differ in white space and case at most; so both have to be built
    with the same instruction and style. A choice with its options in another order is not found.
    """
    asked = {_question(prompt) for prompt in test_dataset["prompt"]}
    return [index for index, prompt in enumerate(train_dataset["prompt"]) if _question(prompt) in asked]


def check_leaks(train_dataset: "Dataset", test_dataset: "Dataset", drop: bool = False) -> "Dataset":
    """`train_dataset`, with a warning that names the row ids that [`leaked_rows`] finds; without them if `drop`.

    Kept by default: the published figures were trained on whole splits, and two problems of MATH's 7,500 weigh little.
    """
    leaked = leaked_rows(train_dataset, test_dataset)
    if not leaked:
        return train_dataset
    logger.warning(
        "%d rows to train on are rows to test on, too, and are %s: %s",
        len(leaked),
        "dropped" if drop else "kept (drop_leaked_rows drops them)",
        train_dataset.select(leaked)["row_id"][:],
    )
    return train_dataset.select(sorted(set(range(len(train_dataset))) - set(leaked))) if drop else train_dataset


def _question(prompt: list[dict[str, str]]) -> str:
    return " ".join(prompt[-1]["content"].split()).casefold()
