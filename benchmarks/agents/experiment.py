"""Carry out a study of agents, as `benchmarks.learning` carries out its own."""

from benchmarks.agents.runs import AgentRun, AgentStart
from benchmarks.agents.studies import STUDIES
from benchmarks.agents.warm_start import FIRST_STEPS
from benchmarks.learning import experiment


class Experiment(experiment.Experiment):
    """The experiment of `benchmarks.learning` with the starts, runs and studies of agents."""

    start_of, run_of, studies, start_steps = AgentStart, AgentRun, STUDIES, FIRST_STEPS
