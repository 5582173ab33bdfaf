"""Carry out a study of agents, as `benchmarks.learning` carries out its own."""

from dataclasses import dataclass

from benchmarks.agents.runs import AgentRun, AgentStart
from benchmarks.agents.studies import study
from benchmarks.agents.warm_start import FIRST_STEPS
from benchmarks.learning import experiment


@dataclass(frozen=True)
class Experiment(experiment.Experiment):
    """The experiment of `benchmarks.learning` with the starts, runs and studies of agents."""

    start_steps: int = FIRST_STEPS

    start_of, run_of, study_of = AgentStart, AgentRun, staticmethod(study)
