"""Text of prompts and conversations, and the turns of a conversation: tools called, and what was observed."""

from collections.abc import Sequence
from typing import Any


def valid_text(value: Any) -> Any:
    """
    A value whose texts, also those in lists and mappings, have no surrogates.

    JSON and tools can produce half of a pair (`"\\ud83d"`), which no tokenizer and no file accepts. Two halves of a
    pair become their character, and others U+FFFD.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [valid_text(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): valid_text(item) for key, item in value.items()}
    return value


def prompt_text(prompt: str | list[dict]) -> str:
    """A prompt as one text, with a line `role: content` per message."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {content_text(message.get('content'))}" for message in prompt)


def content_text(content: str | list[dict] | None) -> str:
    """Text of a message's content; parts that are not text are named."""
    if content is None or isinstance(content, str):
        return content or ""
    return " ".join(part.get("text") or f"[{part.get('type', '?')}]" for part in content_parts(content))


def content_parts(content: list) -> list[dict]:
    """The parts of a message's content. Anything else in it, as a tool may return it, becomes a part with its text."""
    return [part if _is_part(part) else {"type": "text", "text": str(part)} for part in content]


def _is_part(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(value.get("text"), str) if kind == "text" else isinstance(kind, str)


def calls_and_observations(completion: str | Sequence[dict], count: int) -> tuple[list[str], list[str]]:
    """
    Names of the tools that each turn of a completion calls, and the text that was observed before the turn.

    Args:
        completion (`str` or `Sequence[dict]`):
            Text, or messages: assistant messages with `tool_calls`, and the messages that answer them.
        count (`int`):
            Turns of the completion.

    Returns:
        `tuple[list[str], list[str]]`, each of length `count`, filled up with empty texts. The names of several tools
        are separated by commas.
    """
    messages = () if isinstance(completion, str) else completion
    calls = [", ".join(map(_tool_name, m.get("tool_calls") or ())) for m in messages if m["role"] == "assistant"]
    observed = [*map(answer_text, answers_before_turns(messages))]
    empty = [""] * count
    return [*calls, *empty][:count], [*observed, *empty][:count]


def answers_before_turns(completion: str | Sequence[dict]) -> list[list[dict]]:
    """The messages of tools and environments between each turn of a conversation and the turn before."""
    answers, last = [], []
    for message in () if isinstance(completion, str) else completion:
        if message["role"] == "assistant":
            answers.append(last)
            last = []
        else:
            last.append(message)
    return answers


def answer_text(messages: Sequence[dict]) -> str:
    """Text of the answers to a turn, each on a line of its own."""
    return "\n".join(content_text(message.get("content")) for message in messages)


def _tool_name(call: dict) -> str:
    return str(call.get("function", call).get("name", "?"))
