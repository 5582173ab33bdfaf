"""A scripted agent in a world of two rooms, for tests: the model's turns are written, the world's answers are real."""

import json

from tempo_trl import TokenCreditTrainer

# Per row of a group of four: the doors it opens. All come to room 2, 1 and 3 by another door each; 3 ends at once.
DOORS = [(1, 2, 3), (3, 4, 3), (5, 2), (1,)]


class Rooms:
    """Door n leads to room n % 2. The answer names the room and, where asked, the number of answers so far."""

    counted = False

    def reset(self, **columns):
        self.room, self.answers = 0, 0

    def open(self, door: int) -> str:
        """
        Opens a door.

        Args:
            door: Its number.
        """
        self.door, self.room, self.answers = door, door % 2, self.answers + 1
        return f"room {self.room}" + (f" at {id(self)}.{self.answers}" if self.counted else "")


class CountingRooms(Rooms):
    counted = True


class KeyedRooms(CountingRooms):
    def _state_key(self) -> int:
        return self.room


class AskedRooms(KeyedRooms):
    """Notes before which of its turns it is asked for its key."""

    def reset(self, **columns):
        super().reset(**columns)
        self.asked = []

    def _state_key(self) -> int:
        self.asked.append(self.answers)
        return self.room


class Scripted:
    """Mixin: turns from `doors` by row, then an answer. Row i of all ranks' batch plays script i % 4."""

    doors = DOORS

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        encode = self.processing_class.encode
        answer = encode("<tool_response>")[0]
        if not any(answer in ids for ids in prompt_ids):
            before = self.accelerator.process_index * len(prompt_ids)
            self._playing = [(before + i) % 4 for i in range(len(prompt_ids))]
            self._open = [0] * len(prompt_ids)
            self._in_play = list(range(len(prompt_ids)))
        texts, left = [], []
        for row, _ in zip(self._in_play, prompt_ids, strict=True):
            doors, n = self.doors[self._playing[row]], self._open[row]
            self._open[row] += 1
            if n < len(doors):
                left.append(row)
                call = json.dumps({"name": "open", "arguments": {"door": doors[n]}})
                texts.append(f"<tool_call>\n{call}\n</tool_call><|im_end|>")
            else:
                texts.append(f"done {row}<|im_end|>")
        self._in_play = left
        return [encode(text) for text in texts], None


def scripted(cls=TokenCreditTrainer, doors=DOORS):
    """A trainer class whose turns are scripted."""
    return type(f"Scripted{cls.__name__}", (Scripted, cls), {"doors": doors})


def rooms_of(script: int) -> list[int]:
    """Rooms that a script sees before its turns, None for the prompt."""
    return [None, *(door % 2 for door in DOORS[script])]


def visited_reward(completions, environments, **columns) -> list[float]:
    """The room at the end, and a little for each answer."""
    return [environment.room + environment.answers / 4 for environment in environments]
