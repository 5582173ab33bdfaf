"""A study: a task, the policy that it starts from, its arms, rates and seeds, and in which order its cells run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.language_model.arms import (
    ARMS,
    BASELINE,
    Arm,
    Cell,
    Start,
    arms_after_examples,
    arms_with_criteria,
    fine_tuning,
    more_and_again,
    on_entropy_trees,
    on_success,
)
from benchmarks.language_model.criteria import CRITERIA
from tempo_trl.data import BENCHMARKS


@dataclass(frozen=True)
class Study:
    """
    Args:
        task (`str`): The task.
        arms (`dict[str, Arm]`): What is compared, the most important first. The first one is GRPO.
        rates (`tuple[float, ...]`): Learning rates, in order.
        first_rates (`tuple[float, ...]`): Those that an arm is tried at first; then the neighbours of the best, so
            that it does not lie at an end of what was tried.
        stem (`str`): Name of the files of its numbers and of its figure, in docs/evidence.
        steps (`int`): Optimizer steps of a run.
        held_out (`int`): Held-out prompts: the first ones of a benchmark's, all that another task has.
        answers (`int`): Answers to each of them. All are one batch, or batches of equal sizes, so that TRL's mean over
            batches is that of all.
        save_steps (`int`): Steps between two checkpoints.
        start ([`Start`], *optional*): The policy that it starts from. Defaults to the model as it was published.
        alone (`tuple` of [`Start`]): Fine-tuning that is measured without reinforcement learning.
        sweep_steps (`int`, *optional*): Optimizer steps of a run of the sweep. Defaults to `steps`.
        sweep_seeds (`tuple[int, ...]`): Seeds that choose the rates, and never count.
        seeds (`tuple[int, ...]`): Seeds that count.
    """

    task: str
    arms: dict[str, Arm]
    rates: tuple[float, ...]
    first_rates: tuple[float, ...]
    stem: str
    held_out: int
    steps: int
    answers: int = 1
    save_steps: int = 10
    start: Start | None = None
    alone: tuple[Start, ...] = ()
    sweep_steps: int | None = None
    sweep_seeds: tuple[int, ...] = (100, 101)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    @property
    def numbers(self) -> Path:
        """The file of its cells."""
        return Path(f"docs/evidence/{self.stem}.json")

    @property
    def command(self) -> str:
        """The command that shows it."""
        return "python -m benchmarks.language_model show" + (f" --task {self.name}" if self.has_criteria else "")

    @property
    def name(self) -> str:
        """What the command calls it."""
        return self.stem if self.start else self.task

    @property
    def is_swept(self) -> bool:
        """Whether each arm has a rate of its own. A single rate is that of all arms."""
        return len(self.rates) > 1

    @property
    def has_criteria(self) -> bool:
        """Whether answers are judged by several criteria."""
        return self.task != "instructions"

    @property
    def metrics(self) -> str:
        """How the names of the metrics of its kinds or criteria begin."""
        return "fields/" if self.has_criteria else "instructions/"

    @property
    def fine_tuning(self) -> dict[str, Arm]:
        """The arms of fine-tuning alone."""
        return fine_tuning(self.arms[BASELINE], self.alone)

    def arm(self, name: str) -> Arm:
        """An arm, or fine-tuning alone."""
        return (self.arms | self.fine_tuning)[name]

    def start_of(self, arm: str) -> Start | None:
        """The fine-tuned policy that an arm starts from."""
        return self.arm(arm).start or self.start

    def cell(self, arm: str, rate: float, seed: int) -> Cell:
        """A run of the usual length for its seed; of fine-tuning alone one step that changes nothing."""
        steps = self.sweep_steps if self.sweep_steps and seed in self.sweep_seeds else self.steps
        return Cell(arm, rate, seed, steps if arm in self.arms else 1)

    def is_final(self, cell: Cell) -> bool:
        """Whether a cell counts: no sweep seed, and of the usual length."""
        return cell.seed not in self.sweep_seeds and cell == self.cell(cell.arm, cell.learning_rate, cell.seed)

    def sweep(
        self, to_try: Callable[[str], Iterable[float]], best_two: Callable[[str], Iterable[float]]
    ) -> Iterator[Cell]:
        """
        Every arm that has a rate of its own on the first of the sweep's seeds, and at its best two on the others.

        Args:
            to_try (`Callable`): The rates that an arm is tried at on the first seed, as far as they are known.
            best_two (`Callable`): The best two of them; none before all have been run.
        """
        first, *others = self.sweep_seeds
        rated = [name for name, arm in self.arms.items() if not arm.rated_as] if self.is_swept else []
        for arm in rated:
            yield from (self.cell(arm, rate, first) for rate in to_try(arm))
            yield from (self.cell(arm, rate, seed) for seed in others for rate in best_two(arm))

    def final(self, rates: dict[str, float]) -> Iterator[Cell]:
        """Every arm at its own rate. A pair of a seed runs one after the other, so a cut study has whole pairs."""
        yield from (self.cell(arm, 0.0, self.seeds[0]) for arm in self.fine_tuning)
        for seed in self.seeds:
            arms = (arm for arm in self.arms if arm in rates and seed in self.seeds_of(arm))
            yield from (self.cell(arm, rates[arm], seed) for arm in arms)

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds that count of an arm."""
        return self.seeds[: self.arms[arm].seeds or None]


def _with_criteria(task: str) -> Study:
    arms, rates = arms_with_criteria(task, CRITERIA[task]), (5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4)
    return Study(task, arms, rates, first_rates=(2e-5, 4e-5), stem=task, held_out=128, steps=12)


INSTRUCTIONS = Study(
    "instructions",
    ARMS,
    rates=(1.25e-5, 2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4),
    first_rates=(5e-5, 1e-4),
    stem="language_model",
    held_out=240,
    steps=20,
    save_steps=5,
)
ORDERS = _with_criteria("orders")


def _after_examples(task: str, stem: str, steps: int, start: Start, **arms: Arm) -> Study:
    rates, compared = (2.5e-6, 5e-6, 1e-5, 2e-5, 4e-5, 8e-5), arms_after_examples(task, CRITERIA[task]) | arms
    held_out, alone = 128 if task in BENCHMARKS else 256, more_and_again(start)
    return Study(
        task, compared, rates, (1e-5, 2e-5), stem, held_out, steps, answers=8, start=start, alone=alone, sweep_steps=12
    )


def _main_arms(study: Study, named: str, *arms: str, **changes: object) -> Study:
    """Some arms of a study at GRPO's rate there, without a sweep, with something changed."""
    of_them, rates = {name: study.arms[name] for name in arms}, (2e-5,)
    return replace(study, arms=of_them, rates=rates, first_rates=rates, stem=f"{study.stem}_{named}", **changes)


def _after_more_epochs(study: Study, epochs: int) -> Study:
    """The main arms from a start of more epochs, beside fine-tuning alone in as many epochs and in twice as many."""
    start = replace(study.start, epochs=epochs)
    alone = start, replace(start, epochs=2 * epochs)
    return _main_arms(study, f"{epochs}_epochs", "grpo", "span_credit", "tempo", start=start, alone=alone)


def _for_more_steps(study: Study, steps: int, seeds: int) -> Study:
    """GRPO and span credit for more steps, with the first seeds: whether one of them catches up."""
    of_them = study.seeds[:seeds]
    return _main_arms(study, f"{steps}_steps", "grpo", "span_credit", steps=steps, seeds=of_them, alone=())


def _on_all_seeds(study: Study, *arms: str) -> Study:
    """Arms that led in a first look, on all seeds of the study."""
    return replace(study, arms=study.arms | {name: replace(study.arms[name], seeds=0) for name in arms})


TUNED_ORDERS = _after_examples("orders", "tuned_orders", 12, Start(32, 4e-5))
TUNED_ORDERS = _on_all_seeds(TUNED_ORDERS, "gdpo", "prefix_baseline", "lambda_grpo")
# Thirty seconds a step on one core, so that a run takes a quarter of an hour; longer ones are for a GPU.
IN_PRODUCTS = on_success("products", agent=False) | on_entropy_trees("products")
PRODUCTS = _after_examples("products", "products", 30, Start(64, 1e-4), **IN_PRODUCTS)
PRODUCTS = _on_all_seeds(PRODUCTS, "prefix_baseline", "lambda_grpo", "tempo on trees")
DIRECTORY = _after_examples("directory", "directory", 24, Start(300, 1e-4), **on_success("directory", agent=True))
MORE_EPOCHS = _after_more_epochs(TUNED_ORDERS, 4), _after_more_epochs(PRODUCTS, 4), _after_more_epochs(DIRECTORY, 2)
MORE_STEPS = _for_more_steps(PRODUCTS, 60, seeds=5), _for_more_steps(DIRECTORY, 40, seeds=1)
OTHERS = INSTRUCTIONS, ORDERS, *map(_with_criteria, ("calls", "word_sums"))
STUDIES = {study.name: study for study in (TUNED_ORDERS, PRODUCTS, DIRECTORY, *MORE_EPOCHS, *MORE_STEPS, *OTHERS)}
