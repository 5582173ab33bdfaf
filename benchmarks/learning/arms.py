"""What a study is made of: arms that are compared, and how their learning rates are chosen."""

from dataclasses import dataclass, field

from benchmarks.learning.runs import Budget
from benchmarks.learning.tasks import Task

LEARNING_RATES = (1e-4, 2e-4, 4e-4, 8e-4)
SWEEP_SEEDS = (100,)  # never those of the final runs: what chose a rate does not report it
BASELINE = "grpo"


@dataclass(frozen=True)
class Arm:
    """
    Args:
        label (`str`): What the figure calls it. An arm called `grpo` is its panel's baseline.
        task (`Task`): What it learns.
        method (`str`): A method of `tempo_trl.launch.train`.
        changes (`tuple` of pairs): Fields that differ from the method's recipe.
        panel (`str`): Which panel of the figure it is in.
        tuned_as (`str`): Label of the arm whose sweep chose its learning rate: of study chain, or of its own study.
        learning_rate (`float`, *optional*): Instead of what that sweep chose.
    """

    label: str
    task: Task
    method: str
    changes: tuple[tuple[str, object], ...] = ()
    panel: str = ""
    tuned_as: str = ""
    learning_rate: float | None = None


@dataclass(frozen=True)
class Study:
    """
    Args:
        name, title (`str`): What it is called, and what its figure is headed with.
        arms (`tuple` of `Arm`): What is compared.
        figure (`str`): `"curves"`, `"levels"` (a number a panel) or `"dots"`.
        swept (`bool`): Whether it chooses learning rates, for itself and for the studies that are `tuned_as` it.
        rates (`tuple[float, ...]`): Learning rates of the sweep.
        budget (`Budget`): How long a run is.
        sweep_seeds (`tuple[int, ...]`): Of the sweep.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    figure: str = "curves"
    swept: bool = False
    rates: tuple[float, ...] = LEARNING_RATES
    budget: Budget = field(default_factory=Budget)
    sweep_seeds: tuple[int, ...] = SWEEP_SEEDS
