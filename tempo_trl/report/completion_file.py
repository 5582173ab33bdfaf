"""A JSONL file of completions, as `tempo-trl credit` takes it: checked, and encoded as token ids."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from tempo_trl.report.conversations import Encoder
from tempo_trl.rewards.span_reward import LARGEST_REWARD, SpanReward, by_criterion, check_spans
from tempo_trl.runs.messages import prompt_text, turns_of, valid_text
from tempo_trl.runs.token_places import TokenTexts
from tempo_trl.runs.token_text import token_pieces

MAX_ID = 2**31  # no vocabulary is as large


class CompletionFile:
    """
    The completions of a file ([`~tempo_trl.launch.credit`] says what a line has).

    Args:
        path (`Path`): The file, with one JSON object per line.
        tokenizer (`str`, *optional*): Name on the Hub or folder; needed for text and messages.

    Raises:
        ValueError: a tokenizer cannot be loaded.
    """

    def __init__(self, path: Path, tokenizer: str | None = None):
        self.path, self.tokenizer = path, _tokenizer(tokenizer)

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.tokenizer)

    def read(self) -> list[dict]:
        """
        The completions with `prompt` as text, `ids`, and what else a line has. Those of messages have `turns` (turn of
        each token, -1 in between), `calls` and `observed` (one per turn), too. If a line of the file has `spans`, all
        have `criteria`: the reward and the places in tokens of each.

        Raises:
            ValueError: a line has another format, or a text comes without a tokenizer.
        """
        # Not `splitlines`: JSON may contain other line separators (U+2028).
        texts = [(n, text) for n, text in enumerate(_text_of(self.path).split("\n"), start=1) if text.strip()]
        if not texts:
            raise ValueError(f"{self.path} is empty, expected one JSON object per line. Write prompt and completion.")
        lines = []
        for number, text in texts:
            with self._naming(number):
                lines.append((number, _checked(text)))
        has_spans = any("spans" in line for _, line in lines)
        has_rewards = not has_spans or any("reward" in line for _, line in lines)
        return [self._encoded(line, number, has_spans, has_rewards) for number, line in lines]

    def pieces(self, ids: list[int]) -> list[str]:
        """Texts of tokens; their ids without a tokenizer."""
        return [f"<{i}>" for i in ids] if self.tokenizer is None else token_pieces(self.tokenizer, ids)

    @contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Name the line in a ValueError."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{self.path}, line {number}: {error}") from error

    def _encoded(self, line: dict, number: int, has_spans: bool, has_rewards: bool) -> dict:
        prompt = line["prompt"]
        with self._naming(number):
            if has_rewards and "reward" not in line:
                raise ValueError("`reward` is missing. Add it; null is a completion without a score.")
            line = line | {"prompt": "".join(self.pieces(prompt)) if is_ids(prompt) else prompt_text(prompt)}
            line |= self._tokens(prompt, line)
            return line | ({"criteria": by_criterion(*self._spans(line))} if has_spans else {})

    def _tokens(self, prompt, line: dict) -> dict:
        """Token ids of a completion, and of messages its turns."""
        completion = line["completion"]
        if is_ids(completion):
            return {"ids": completion}
        if not isinstance(completion, str) and not is_conversation(prompt):
            raise ValueError(f"`prompt` must be a list of messages, as `completion` is, got {prompt!r:.60}.")
        if self.tokenizer is None:
            raise ValueError("`completion` is no list of token ids, and needs a tokenizer. Pass --tokenizer.")
        try:
            return self._of_text(line) if isinstance(completion, str) else self._of_messages(prompt, completion)
        except Exception as error:  # tokenizers and templates raise no other
            raise ValueError(
                f"the tokenizer cannot encode `completion` {completion!r:.60}: {error}. Use its own tokenizer."
            ) from error

    def _of_messages(self, prompt: list[dict], completion: list[dict]) -> dict:
        ids, turns = self._encoder(prompt, completion)
        calls, observed = turns_of(completion, max(turns, default=-1) + 1)
        return {"ids": ids, "turns": turns, "calls": calls, "observed": observed}

    def _of_text(self, line: dict) -> dict:
        ids = self.tokenizer(line["completion"], add_special_tokens=False)["input_ids"]
        eos = self.tokenizer.eos_token_id
        ends = eos is not None and not line.get("truncated") and ids[-1:] != [eos]
        return {"ids": [*ids, eos] if ends else ids}

    def _spans(self, line: dict) -> tuple[list[SpanReward], Callable[[int, int], tuple[int, int]]]:
        """The criteria of a line, and the function from their places to tokens."""
        spans, completion = [_span_reward(span) for span in line.get("spans", [])], line["completion"]
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
    return bool(value) and isinstance(value, list) and all(map(_is_message, value))


def _is_message(value) -> bool:
    content = value.get("content") if isinstance(value, dict) and "role" in value else 0
    return isinstance(content, str | None) or (isinstance(content, list) and all(isinstance(p, dict) for p in content))


def _text_of(path: Path) -> str:
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(
            f"{path} {problem}, expected a file with one JSON object per line. Correct the path. For the folder of a "
            "run, use `tempo-trl tree` or `tempo-trl report`."
        )
    try:
        return path.read_text(encoding="utf-8-sig")  # also with a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}). Save it as UTF-8.") from error


def _checked(text: str) -> dict:
    """The fields of a line, checked as far as this needs no tokenizer."""
    try:
        line = valid_text(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error}). Write one object per line.") from error
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
    if not isinstance(line.get("spans", []), list):
        raise ValueError(f"`spans` must be a list of objects, got {line['spans']!r:.60}.")
    return line


def _span_reward(span) -> SpanReward:
    """A criterion of a line. [`check_spans`] checks its place and reward."""
    if not isinstance(span, dict) or not {"name", "reward"} <= set(span) <= set(SpanReward._fields):
        raise ValueError(
            "each of `spans` must be an object with name, reward and, if it has a place, start and end, got "
            f"{span!r:.100}."
        )
    if isinstance(span["reward"], bool):
        raise ValueError(f"the reward of {span['name']!r} must be a number or null, got true or false.")
    return SpanReward(**span)


def _tokenizer(name: str | None):
    if name is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"could not load a tokenizer from {name!r}: {error}. Give another --tokenizer.") from error
