"""A JSONL file of completions, as `tempo-trl credit` takes it: checked, and encoded as token ids."""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tempo_trl.report.conversations import Encoder
from tempo_trl.rewards.span_reward import LARGEST_REWARD, SpanReward, by_criterion, check_spans
from tempo_trl.runs.messages import calls_and_observations, prompt_text, valid_text
from tempo_trl.runs.token_places import TokenTexts
from tempo_trl.runs.token_text import token_pieces

MAX_ID = 2**31  # no vocabulary is as large
FIELDS = ("prompt", "completion", "reward", "spans", "group", "truncated")  # anything else in a line is the user's


class CompletionFile:
    """
    The completions of a file ([`~tempo_trl.launch.credit`] says what a line has).

    Args:
        path (`Path`): The file, with one JSON object per line.
        tokenizer (`str`, *optional*): Name on the Hub or folder; needed for text and messages.
    """

    def __init__(self, path: Path, tokenizer: str | None = None):
        self.path, self.tokenizer = path, None
        if tokenizer is not None:
            from transformers import AutoTokenizer

            self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.tokenizer)

    def read(self) -> list[dict]:
        """
        The completions with `prompt` as text, `asked` (its prompt and group as the line has them, equal in all lines
        of a group), `ids`, and what else a line has. Those of messages have `turns` (turn of each token, -1 in
        between), `calls` and `observed` (one per turn), too. If a line of the file has `spans`, all have `criteria`:
        the reward and the places in tokens of each.

        Raises:
            OSError: the file cannot be read.
            ValueError: a line has another format, or a text comes without a tokenizer.
        """
        # Not `splitlines`: JSON may contain other line separators (U+2028).
        texts = enumerate(self.path.read_text(encoding="utf-8-sig").split("\n"), start=1)
        lines = {number: self._of_line(number, _checked, text) for number, text in texts if text.strip()}
        if not lines:
            raise ValueError(f"{self.path} is empty, expected one JSON object per line. Write prompt and completion.")
        spans = any("spans" in line for line in lines.values())
        rewards = not spans or any("reward" in line for line in lines.values())
        return [self._of_line(number, self._encoded, line, spans, rewards) for number, line in lines.items()]

    def pieces(self, ids: list[int]) -> list[str]:
        """Texts of tokens; their ids without a tokenizer."""
        return [f"<{i}>" for i in ids] if self.tokenizer is None else token_pieces(self.tokenizer, ids)

    def _of_line(self, number: int, read: Callable[..., dict], *given) -> dict:
        """What `read` makes of a line, which is named in its errors."""
        try:
            return read(*given)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path}, line {number}: {error}") from error

    def _encoded(self, line: dict, has_spans: bool, has_rewards: bool) -> dict:
        if has_rewards and "reward" not in line:
            raise ValueError("`reward` is missing. Add it; null is a completion without a score.")
        prompt, completion = line["prompt"], line["completion"]
        line = line | ({"ids": completion} if is_ids(completion) else self._tokenized(line))
        line |= {"asked": json.dumps([prompt, line.get("group")], sort_keys=True)}
        line |= {"prompt": "".join(self.pieces(prompt)) if is_ids(prompt) else prompt_text(prompt)}
        return line | ({"criteria": by_criterion(*self._spans(line))} if has_spans else {})

    def _tokenized(self, line: dict) -> dict:
        """Token ids of a completion of text, or of messages with its turns."""
        completion, of_text = line["completion"], isinstance(line["completion"], str)
        if not of_text and not is_conversation(line["prompt"]):
            raise ValueError(f"`prompt` must be a list of messages, as `completion` is, got {line['prompt']!r:.60}.")
        if self.tokenizer is None:
            raise ValueError("`completion` is no list of token ids, and needs a tokenizer. Pass --tokenizer.")
        try:
            return self._of_text(line) if of_text else self._of_messages(line["prompt"], completion)
        except Exception as error:  # tokenizers and templates raise no other
            raise ValueError(
                f"the tokenizer cannot encode `completion` {completion!r:.60}: {error}. Use its own tokenizer."
            ) from error

    def _of_messages(self, prompt: list[dict], completion: list[dict]) -> dict:
        ids, turns = self._encoder(prompt, completion)
        calls, observed = calls_and_observations(completion, max(turns, default=-1) + 1)
        return {"ids": ids, "turns": turns, "calls": calls, "observed": observed}

    def _of_text(self, line: dict) -> dict:
        ids = self.tokenizer(line["completion"], add_special_tokens=False)["input_ids"]
        eos = self.tokenizer.eos_token_id
        ends = eos is not None and not line.get("truncated") and ids[-1:] != [eos]
        return {"ids": [*ids, eos] if ends else ids}

    def _spans(self, line: dict) -> tuple[list[SpanReward], Callable[[int, int], tuple[int, int]]]:
        """The criteria of a line, and the function from their places to tokens."""
        spans, completion = [SpanReward(**span) for span in line.get("spans", ())], line["completion"]
        if not isinstance(completion, str):
            if spans and not is_ids(completion):
                raise ValueError("`spans` need a `completion` of text or token ids, got messages.")
            check_spans(spans, len(line["ids"]), "`spans`", "the number of token ids of `completion`")
            return spans, lambda start, end: (start, end)
        check_spans(spans, len(completion), "`spans`", "the number of characters of `completion`")
        places = TokenTexts(self.tokenizer)(line["ids"])
        if spans and not places.text.startswith(completion):
            raise ValueError(
                f"the tokenizer decodes `completion` {completion!r:.60} as {places.text!r:.60}: characters have no "
                "tokens. Give token ids, with `spans` in tokens."
            )
        return spans, places.tokens


def is_ids(value) -> bool:
    """Whether a prompt or a completion is a list of token ids."""
    return isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)


def is_conversation(value) -> bool:
    """Whether a prompt or a completion is a list of messages."""
    return bool(value) and isinstance(value, list) and all(isinstance(m, dict) and "role" in m for m in value)


def _checked(text: str) -> dict:
    """The fields of a line, checked as far as this needs no tokenizer."""
    line = valid_text(json.loads(text))
    for name in ("prompt", "completion"):
        value = line.get(name) if isinstance(line, dict) else None
        if not (isinstance(value, str) or is_ids(value) or is_conversation(value)):
            raise ValueError(
                f"`{name}` must be text, a list of token ids or a list of messages with role and content, got "
                f"{value!r:.60}."
            )
        if is_ids(value) and not all(0 <= i < MAX_ID for i in value):
            raise ValueError(f"`{name}` must have token ids of at least 0, got {value!r:.60}. Leave out masked ones.")
    reward = line.get("reward")
    if reward is not None and (type(reward) not in (int, float) or not abs(reward) <= LARGEST_REWARD):
        raise ValueError(
            f"`reward` must be a number of at most {LARGEST_REWARD:g} in size or null, got {reward!r:.60}."
        )
    spans, least, most = line.get("spans", []), {"name", "reward"}, {*SpanReward._fields}
    if not isinstance(spans, list) or not all(
        isinstance(span, dict) and least <= span.keys() <= most for span in spans
    ):
        raise ValueError(f"`spans` must be a list of objects with name, reward, start and end, got {spans!r:.60}.")
    return {name: value for name, value in line.items() if name in FIELDS}
