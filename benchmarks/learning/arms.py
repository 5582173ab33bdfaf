"""What a study is made of: arms that are compared, and how their learning rates are chosen."""

from dataclasses import dataclass, field

from benchmarks.learning.runs import Budget
from benchmarks.learning.tasks import Task

LEARNING_RATES = (1e-4, 2e-4, 4e-4, 8e-4)
SWEEP_SEEDS = (100,)  # never those of the final runs: what chose a rate does not report it
BASELINE = "grpo"
ORACLES = ("oracle_td", "oracle_baseline")  # labels of arms with perfect credit


@dataclass(frozen=True)
class Arm:
    """
    Args:
        label (`str`): What the figure calls it. An arm called `grpo` is its panel's baseline.
        task (`Task`): What it learns.
        method (`str`): A method of `tempo_trl.launch.train`.
        changes (`tuple` of pairs): Fields that differ from the method's recipe.
        panel (`str`): Which panel of the figure it is in.
        tuned_as (`str`): Name of the sweep that chose its learning rate: the label of an arm of study chain or plan,
            or another of its own study's.
        learning_rate (`float`, *optional*): Instead of what that sweep chose.
        rates (`tuple[float, ...]`, *optional*): Learning rates of its own sweep, instead of its study's.
    """

    label: str
    task: Task
    method: str
    changes: tuple[tuple[str, object], ...] = ()
    panel: str = ""
    tuned_as: str = ""
    learning_rate: float | None = None
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Study:
    """
    Args:
        name, title (`str`): What it is called, and what its figure is headed with.
        arms (`tuple` of `Arm`): What is compared.
        figure (`str`): `"curves"`, `"levels"` (a number a panel), `"dots"` or
            `"ceiling"` (a map of all studies of this kind; a panel names row and column, with a comma between).
        swept (`bool`): Whether it chooses learning rates, for itself and for the studies that are `tuned_as` it.
        rates (`tuple[float, ...]`): Learning rates of the sweep.
        budget (`Budget`): How long a run is.
        sweep_seeds (`tuple[int, ...]`): Of the sweep.
        quick_methods (`tuple[str, ...]`): Methods that --quick keeps.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    figure: str = "curves"
    swept: bool = False
    rates: tuple[float, ...] = LEARNING_RATES
    budget: Budget = field(default_factory=Budget)
    sweep_seeds: tuple[int, ...] = SWEEP_SEEDS
    quick_methods: tuple[str, ...] = ("grpo", "tempo")
