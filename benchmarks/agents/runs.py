"""Starts and runs in a world: those of `benchmarks.learning` with tools, an environment and smaller generations."""

from dataclasses import dataclass

from benchmarks.agents.worlds import World
from benchmarks.learning.runs import Run
from benchmarks.learning.starts import SEED, Start
from benchmarks.tasks import fields_of, recipe_of
from benchmarks.tasks.rooms import START

ROWS = 64  # completions of a generation: a turn costs a call of the generation, however many rows it has
ROOM_PER_TURN = 8  # tokens of an answer, with its marks


@dataclass(frozen=True)
class AgentStart(Start):
    """The start of all runs in a world."""

    task: World

    least = 0.5  # imitation errs a little at each turn: the shipped start solves 0.31, its lessons 0.45

    @property
    def max_completion_length(self) -> int:
        return self.task.tokens + ROOM_PER_TURN * (self.task.make.turns + 1)

    def _tokenizer(self):
        from benchmarks.agents.policy import word_tokenizer

        return word_tokenizer(self.task.make.words)

    def _policy(self):
        from benchmarks.agents.warm_start import LATER_STEPS, taught_policy
        from benchmarks.learning.policy import load_policy

        world, steps = self.task, (self.train_steps, LATER_STEPS)
        if world.shipped:
            return load_policy(START)[0]
        return taught_policy(self._tokenizer(), world.make, world.draw_tasks, SEED, world.skill, steps)

    def _measured(self, *written) -> float:
        """Share of held-out tasks that the written policy solves, by the trainer's own evaluation."""
        from tempo_trl.launch.arguments import parse
        from tempo_trl.launch.train import build_trainer

        run = AgentRun(self, "grpo", 0.0, SEED, self.folder / "measured")
        return build_trainer(parse(["--config", str(run.prepare())])).evaluate()["eval_reward"]


@dataclass(frozen=True)
class AgentRun(Run):
    """A run in a world, with the recipe of the agents' demonstration for every method."""

    full_rows = ROWS
    safety = 32  # an agent that gives up at once writes two tokens per completion

    @property
    def base(self) -> dict:
        world = {
            "method": self.method,
            "environment_factory": self.start.task.environment,
            "max_tool_calling_iterations": self.start.task.make.turns,
        }
        return fields_of(recipe_of("rooms", "grpo")) | world
