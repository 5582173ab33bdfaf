r"""The wording of prompts: question and instruction as messages. Training and evaluation both build prompts here.

There are two styles, each for math and multiple choice. Tasks whose rows bring a system message of their own
(`orders`, `function_calls`) are asked as they are.

| style | domain | system prompt | user's message |
|---|---|---|---|
| `boxed` (the default) | math | none | question, line break, instruction |
| | choice | none | question, a line `A. text` for each option, instruction |
| `authors-code` | math | none | question, space, instruction |
| | choice | reason in `<think>`, answer in `<answer>` | question and `A: text, B: text` in one run, no instruction |

The TEMPO paper (https://huggingface.co/papers/2509.18314) prints no prompt. `boxed` asks for a box in both domains: in
math with Qwen2.5-Math's and Qwen3's own wording, in choice with the same wording around a letter. `authors-code` has
the words of the code that the authors published (https://github.com/fatebreaker/tempo, `examples/data_preprocess`):
verl's for MATH, DeepSeek-R1's (https://huggingface.co/papers/2501.12948, Table 1) for MedQA, whose options follow the
question without a space. We use their words for the whole domain. Of that code's other settings

- the five options of MedQA, its first 1,000 rows to train on and its first 100 to test on are
  `task: medqa_5options`, `dataset_train_split: train[:1000]`, `dataset_test_split: test[:100]`;
- 7 completions, 8,192 tokens, 15 epochs and thinking, which its scripts leave on, are set in a recipe;
- prompts of more than 1,024 tokens are dropped there, and kept here;
- its 1,000 rows of MATH are drawn without a seed, so they cannot be reproduced: here all 7,500 are used;
- its choice reward pays for the option that is most similar to the answer, and for "A" without an answer; ours does
  not.

Thinking is set by the chat template, not by these words. The recipes switch Qwen3's thinking off, because a limit of
1,024 tokens truncates most thoughts before the answer, and an unclosed `<think>` earns no reward:

    chat_template_kwargs: {enable_thinking: false}
    max_completion_length: 1024

The thinking variant lets it think, and gives it room (8,192 tokens as the authors' code, 32,768 as Qwen3's card):

    chat_template_kwargs: {enable_thinking: true}
    max_completion_length: 8192
"""

from collections.abc import Callable
from typing import NamedTuple

LETTERS = "ABCDEFGHIJ"


def option_lines(options: list[str]) -> list[str]:
    """`["yes", "no"]` as `["A. yes", "B. no"]`."""
    return [f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False)]


def _lines(row: dict, instruction: str) -> str:
    return "\n".join([row["question"], *([instruction] if instruction else [])])


def _one_line(row: dict, instruction: str) -> str:
    return f"{row['question']} {instruction}".rstrip(" ")


def _one_run(row: dict, instruction: str) -> str:
    options = ", ".join(f"{letter}: {text}" for letter, text in zip(LETTERS, row["options"], strict=False))
    return "\n".join([row["stem"] + options, *([instruction] if instruction else [])])


class Style(NamedTuple):
    """The words around a question of one domain: `user_text(row, instruction)` is the user's message."""

    system_prompt: str
    instruction: str
    user_text: Callable[[dict, str], str]


# Their rows say what to do.
_AS_IT_IS = dict.fromkeys(("json", "calls"), Style("", "", _lines))
STYLES = {
    "boxed": {
        **_AS_IT_IS,
        "math": Style("", r"Please reason step by step, and put your final answer within \boxed{}.", _lines),
        "choice": Style("", r"Please reason step by step, and put the letter of your answer within \boxed{}.", _lines),
    },
    "authors-code": {
        **_AS_IT_IS,
        "math": Style("", r"Let's think step by step and output the final answer within \boxed{}.", _one_line),
        "choice": Style(
            "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
            "assistant first thinks about the reasoning process in the mind and then provides the user with the "
            "answer. The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> "
            "tags, respectively, i.e., <think> reasoning process here </think><answer> answer here </answer>",
            "",
            _one_run,
        ),
    },
}


def messages(
    row: dict, domain: str, system_prompt: str | None = None, instruction: str | None = None, style: str = "boxed"
) -> list[dict[str, str]]:
    """The conversation that asks the question of a row.

    Args:
        row: The result of `to_row` of a [`~tempo_trl.data.benchmarks.Benchmark`]. Its own `system_prompt` replaces the
            style's. The question and the answer of its `example` come before the question, as two messages.
        domain: That of the benchmark.
        system_prompt: System message instead of the row's or the style's; an empty text removes it.
        instruction: Last part of the user's messages instead of the style's; an empty text removes it. It must ask for
            the format that the reward reads.
        style: A key of [`STYLES`].

    Raises:
        ValueError: an unknown style.
    """
    if style not in STYLES:
        raise ValueError(f"prompt style {style!r} is unknown, expected one of: {', '.join(STYLES)}.")
    words = STYLES[style][domain]
    if system_prompt is None:
        system_prompt = row.get("system_prompt", words.system_prompt)
    instruction = words.instruction if instruction is None else instruction
    asked = [{"role": "system", "content": system_prompt}] if system_prompt else []
    if "example" in row:
        question, answer = row["example"]
        asked.append({"role": "user", "content": words.user_text({"question": question}, instruction)})
        asked.append({"role": "assistant", "content": answer})
    return [*asked, {"role": "user", "content": words.user_text(row, instruction)}]
