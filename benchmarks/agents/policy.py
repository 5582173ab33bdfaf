"""Tiny policies that call tools: one token per word, and the shortest chat template that TRL can parse.

    <user> key room2 exit room6 room4 <agent> /go direction= east <end> <tool> room5 ; lamp dust <agent> done <end>

A turn is a call, of two to four tokens, or plain text, which ends the completion.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen3Config

from benchmarks.learning.warm_start import tiny_policy_config

WIDTH, LAYERS, MAX_LENGTH = 64, 2, 256
PAD, UNKNOWN, USER, TOOL, AGENT, END = SPECIAL = ("<pad>", "<unk>", "<user>", "<tool>", "<agent>", "<end>")
DONE = "done"
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
<agent> {% generation %}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
/{{ call.function.name }} {% for name, value in call.function.arguments.items() %}{{ name }}= {{ value }} {% endfor -%}
{%- endfor -%}
{%- else -%}
{{ message.content }} {% endif -%}
<end>{% endgeneration %} {% else -%}
{{ '<tool>' if message.role == 'tool' else '<user>' }} {{ message.content }} {% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<agent>{% endif -%}
"""
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": AGENT,
    "fields": {
        "tool_calls": {
            "open_pattern": r"\s*/(?P<name>\w+)",
            "close_pattern": r"\s*<end>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"(?P<key>\w+)= (?P<value>\w+)"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"\s*<end>", "content": "text"},
    },
}


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word, words being separated by spaces, and the chat template of this file.

    Other words are `<unk>`. It pads on the left, and its end of sequence, `<end>`, ends each turn.
    """
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*SPECIAL, DONE, *words]))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens=[USER, TOOL, AGENT],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        chat_template=CHAT_TEMPLATE,
    )
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def agent_policy_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """A Qwen3 of about 0.1 million parameters: the demonstration's, smaller and with these words."""
    config = tiny_policy_config(WIDTH, LAYERS, tokenizer.model_max_length)
    heads = {"num_key_value_heads": config.num_attention_heads, "intermediate_size": 2 * WIDTH}
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config.update({"vocab_size": len(tokenizer), **heads, **ends})
    return config
