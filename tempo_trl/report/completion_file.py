"""The lines of a JSONL file of completions: checked, and encoded as token ids."""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tempo_trl.report.conversations import Encoder
from tempo_trl.rewards.mean_reward import mean_of
from tempo_trl.rewards.span_reward import LARGEST_REWARD, SpanReward, by_criterion, check_spans
from tempo_trl.runs.messages import prompt_text, turns_of, valid_text
from tempo_trl.runs.token_places import TokenTexts
from tempo_trl.runs.token_text import token_pieces

MAX_ID = 2**31  # no vocabulary is as large


class CompletionFile:
    """
    The completions of a file, as `tempo-trl credit` takes them ([`~tempo_trl.report.credit_file`]).

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
        The completions with `prompt` as text, `ids`, `reward`, and what else a line has. Those that are messages have
        `turns` (turn of each token, -1 in between), `calls` and `observed` (one per turn), too. Where a line has
        `spans`, `criteria` has the reward and the places in tokens of each. Without any reward in the file each
        `reward` is the mean of the criteria, and `has_outcome` is False.

        Raises:
            ValueError: a line has another format, or a text comes without a tokenizer.
        """
        lines = self._lines()
        spans, rewards = any("spans" in line for line, _ in lines), any("reward" in line for line, _ in lines)
        found = []
        for line, where in lines:
            if "reward" not in line and (rewards or not spans):
                raise ValueError(f"{where} has no `reward`, expected prompt, completion and reward. Add it.")
            encoded = self._encoded(line, where)
            found.append(encoded | (self._criteria(encoded, rewards, where) if spans else {}))
        return found

    def _criteria(self, line: dict, has_outcome: bool, where: str) -> dict:
        """What `spans` adds to an encoded line."""
        criteria = by_criterion(*self._spans(line, where))
        mean = {} if has_outcome else {"reward": mean_of({name: reward for name, (reward, _) in criteria.items()})}
        return {"criteria": criteria, "has_outcome": has_outcome} | mean

    def _spans(self, line: dict, where: str) -> tuple[list[SpanReward], Callable[[int, int], tuple[int, int]]]:
        """The criteria of a line, and the function from their places to tokens."""
        spans, completion = [_span_reward(span, where) for span in _list_of_spans(line, where)], line["completion"]
        if not isinstance(completion, str):
            if spans and is_conversation(completion):
                raise ValueError(f"{where}: `spans` need a `completion` of text or token ids, got messages.")
            check_spans(spans, len(line["ids"]), where, "the number of token ids of `completion`")
            return spans, lambda start, end: (start, end)
        check_spans(spans, len(completion), where, "the number of characters of `completion`")
        places = TokenTexts(self.tokenizer)(line["ids"])
        if spans and not places.text.startswith(completion):
            raise ValueError(
                f"{where}: the tokenizer decodes `completion` {completion!r:.60} as {places.text!r:.60}, so that its "
                "characters have no tokens. Give token ids, with `spans` in tokens."
            )
        return spans, places.tokens

    def _lines(self) -> list[tuple[dict, str]]:
        lines = []
        # Not `splitlines`: JSON may contain other line separators (U+2028).
        for number, text in enumerate(_text_of(self.path).split("\n"), start=1):
            if text.strip():
                where = f"{self.path}, line {number}"
                lines.append((_checked(text, where), where))
        if not lines:
            raise ValueError(
                f"{self.path} is empty, expected one JSON object per line. Write prompt, completion and reward."
            )
        return lines

    def _encoded(self, line: dict, where: str) -> dict:
        completion, prompt = line["completion"], line["prompt"]
        if is_ids(prompt):
            _check_ids("prompt", prompt, where)
        found = line | {"prompt": "".join(self.pieces(prompt)) if is_ids(prompt) else prompt_text(prompt)}
        if is_ids(completion):
            _check_ids("completion", completion, where)
            return found | {"ids": completion}
        self._check(line, where)
        try:
            of_text = isinstance(completion, str)
            return found | ({"ids": self._of_text(line)} if of_text else self._of_messages(prompt, completion))
        except Exception as error:  # tokenizers and templates raise no other
            raise ValueError(
                f"{where}: the tokenizer cannot encode `completion` {completion!r:.60}: {error}. Use its own "
                "tokenizer."
            ) from error

    def pieces(self, ids: list[int]) -> list[str]:
        """Texts of tokens; their ids without a tokenizer."""
        return [f"<{i}>" for i in ids] if self.tokenizer is None else token_pieces(self.tokenizer, ids)

    def _check(self, line: dict, where: str) -> None:
        """Raise ValueError unless a completion is text or messages, and there is what it needs."""
        completion, prompt = line["completion"], line["prompt"]
        if not isinstance(completion, str) and not is_conversation(completion):
            raise ValueError(
                f"{where}: `completion` must be text, a list of token ids or a list of messages, got "
                f"{completion!r:.60}."
            )
        if not isinstance(completion, str) and not is_conversation(prompt):
            raise ValueError(f"{where}: `prompt` must be a list of messages, as `completion` is, got {prompt!r:.60}.")
        if self.tokenizer is None:
            kind = "text" if isinstance(completion, str) else "messages"
            raise ValueError(
                f"{where}: `completion` is {kind}, which needs a tokenizer. Pass --tokenizer, or give token ids."
            )

    def _of_messages(self, prompt: list[dict], completion: list[dict]) -> dict:
        ids, turns = self._encoder(prompt, completion)
        calls, observed = turns_of(completion, max(turns, default=-1) + 1)
        return {"ids": ids, "turns": turns, "calls": calls, "observed": observed}

    def _of_text(self, line: dict) -> list[int]:
        ids = self.tokenizer(line["completion"], add_special_tokens=False)["input_ids"]
        eos = self.tokenizer.eos_token_id
        ends = eos is not None and not line.get("truncated")
        return [*ids, eos] if ends and ids[-1:] != [eos] else ids


def is_ids(value) -> bool:
    """Whether a prompt or a completion is a list of token ids."""
    return isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)


def _check_ids(name: str, ids: list[int], where: str) -> None:
    unknown = [i for i in ids if not 0 <= i < MAX_ID]  # a model's vocabulary may be larger than the tokenizer's
    if unknown:
        raise ValueError(
            f"{where}: `{name}` has the token id {unknown[0]}, expected ids of at least 0. Leave out masked tokens, "
            "whose label is -100."
        )


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


def _checked(text: str, where: str) -> dict:
    try:
        line = valid_text(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not valid JSON ({error}). Write one object per line.") from error
    missing = [name for name in ("prompt", "completion") if not isinstance(line, dict) or name not in line]
    if missing:
        raise ValueError(f"{where} has no `{missing[0]}`, expected prompt, completion and reward. Add it.")
    reward = line.get("reward")
    if reward is not None and (
        isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) <= LARGEST_REWARD
    ):
        raise ValueError(
            f"{where}: `reward` must be a number of at most {LARGEST_REWARD:g} in size or null, got {reward!r}."
        )
    prompt = line["prompt"]
    if not (isinstance(prompt, str) or is_ids(prompt) or is_conversation(prompt)):
        raise ValueError(
            f"{where}: `prompt` must be text, a list of token ids or a list of messages with role and content, got "
            f"{prompt!r:.60}."
        )
    return line


def _list_of_spans(line: dict, where: str) -> list:
    spans = line.get("spans", [])
    if not isinstance(spans, list):
        raise ValueError(
            f"{where}: `spans` must be a list of objects with name, reward, start and end, got {spans!r}."
        )
    return spans


def _span_reward(span, where: str) -> SpanReward:
    """A criterion of a line. Places and rewards are not checked."""
    if not isinstance(span, dict) or not {"name", "reward"} <= set(span) <= set(SpanReward._fields):
        raise ValueError(
            f"{where}: each of `spans` must be an object with name, reward and, if it has a place, start and end, got "
            f"{span!r:.100}."
        )
    if isinstance(span["reward"], bool):
        raise ValueError(
            f"{where}: the reward of {span['name']!r} must be a finite number or null, got true or false."
        )
    return SpanReward(**span)


def _tokenizer(name: str | None):
    if name is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"could not load a tokenizer from {name!r}: {error}. Give another --tokenizer.") from error
