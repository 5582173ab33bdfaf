"""The task `directory`: an agent looks people up, one after the other, until it can answer.

    question    What is the phone of the manager of the deputy of Emma Clark?
    call        lookup: Emma Clark
    answer      manager Ben Adams; deputy Ann Cole; room 214; phone 4821
    call        lookup: Ann Cole
    answer      manager John Smith; deputy Emma Clark; room 552; phone 1967
    call        lookup: John Smith
    answer      manager Ann Cole; deputy Ben Adams; room 107; phone 3340
    reply       3340

A question takes two or three lookups. Held-out questions are about other people. A call is a turn of five tokens,
which TRL parses by the tokenizer's response template ([`tokenizer`]). The policy has to be fine-tuned on dialogues
first ([`examples`]): without it, it calls nobody.
"""

import random
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tempo_trl.rewards.span_reward import SpanReward

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

FIRST_NAMES = (
    *("Emma", "Ben", "Ann", "James", "Mary", "John", "Linda", "David", "Susan", "Mark", "Laura", "Paul", "Karen"),
    *("Peter", "Sarah", "George", "Anna", "Tom", "Lisa", "Kevin", "Helen", "Brian", "Nancy", "Simon", "Julia"),
    *("Frank", "Alice", "Henry", "Grace", "Oscar", "Clara", "Ralph", "Diana", "Victor", "Irene", "Walter", "Ruth"),
    *("Edgar", "Olivia", "Hugo", "Nina", "Felix", "Martha", "Leon", "Sophie", "Oliver", "Rachel", "Daniel", "Amy"),
)
LAST_NAMES = {
    "train": (
        *("Clark", "Adams", "Cole", "Smith", "Jones", "Brown", "Taylor", "Wilson", "Davis", "Evans", "Thomas"),
        *("Johnson", "Roberts", "Walker", "Wright", "Robinson", "Thompson", "White", "Hughes", "Edwards", "Green"),
        *("Hall", "Wood", "Harris", "Lewis", "Martin", "Jackson", "Clarke", "Turner", "Hill", "Scott", "Cooper"),
        *("Morris", "Ward", "Moore", "King", "Watson", "Baker", "Harrison", "Morgan", "Patel", "Young", "Allen"),
    ),
    "test": (
        *("Mitchell", "Anderson", "Phillips", "Lee", "Bell", "Parker", "Davies", "Bennett", "Gray", "Cook", "Cox"),
        *("Shaw", "Murphy", "Miller", "Price", "Kelly", "Ross", "Foster", "Stone", "Reed", "Fox", "Hunt", "Perry"),
    ),
}
RELATIONS, FIELDS, LOOKUPS = ("manager", "deputy"), ("room", "phone"), (2, 3)
ROWS = {"train": 3600, "test": 256}
SYSTEM_PROMPT = "lookup(name) tells a person's manager, deputy, room and phone."
END, NEXT_TURN = "<|im_end|>", "<|im_start|>assistant\n"  # of a turn in the text of a dialogue


class Question(NamedTuple):
    """A question, the people to look up in their order, and the right answer."""

    text: str
    path: list[str]
    answer: str


def _directory(split: str) -> dict[str, dict[str, str]]:
    rng = random.Random(f"directory {split}")
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES[split]]
    return {
        name: {relation: rng.choice(names) for relation in RELATIONS}
        | {"room": str(rng.randint(100, 999)), "phone": str(rng.randint(1000, 9999))}
        for name in names
    }


PEOPLE = {split: _directory(split) for split in LAST_NAMES}


def lookup(name: str) -> str:
    """
    Tells what the directory has on a person.

    Args:
        name: First and last name.
    """
    found = PEOPLE["train"].get(name) or PEOPLE["test"].get(name)
    return "; ".join(f"{field} {value}" for field, value in found.items()) if found else "nobody"


def questions(split: str, count: int, seed: object) -> list[Question]:
    """Questions about the people of a split."""
    rng, people, found = random.Random(f"questions {split} {seed}"), PEOPLE[split], []
    names = [*people]
    while len(found) < count:
        field, relations, path = rng.choice(FIELDS), [], [rng.choice(names)]
        for _ in range(rng.choice(LOOKUPS) - 1):
            relations.append(rng.choice(RELATIONS))
            path.append(people[path[-1]][relations[-1]])
        if len(set(path)) == len(path):
            steps = "".join(f"the {relation} of " for relation in reversed(relations))
            found.append(Question(f"What is the {field} of {steps}{path[0]}?", path, people[path[-1]][field]))
    return found


def _prompt(question: Question) -> list[dict]:
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": question.text}]


def load(split: str, seed: int = 0) -> "Dataset":
    """Questions for TRL, with what the checks need: columns `path` and `answer`."""
    from datasets import Dataset

    asked = questions(split, ROWS[split], seed)
    return Dataset.from_list([{"prompt": _prompt(own), "path": own.path, "answer": own.answer} for own in asked])


def examples(count: int) -> "Dataset":
    """Right dialogues for TRL's SFTTrainer, in a column `messages`."""
    from datasets import Dataset

    asked = questions("train", count, "examples")
    return Dataset.from_list([{"messages": [*_prompt(own), *dialogue(own)]} for own in asked])


def dialogue(question: Question) -> list[dict]:
    """The messages of the right dialogue after its question."""
    messages = []
    for name in question.path:
        call = {"type": "function", "function": {"name": "lookup", "arguments": {"name": name}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": "lookup", "content": lookup(name)})
    return [*messages, {"role": "assistant", "content": question.answer}]


# TRL asks that a template writes out the name of an argument, which `lookup: Emma Clark` does not: calls with another
# argument are written as JSON. `generation` marks what the loss of SFTTrainer is of.
CHAT_TEMPLATE = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{% generation %}
{%- if message.tool_calls %}{% set call = message.tool_calls[0].function %}
{{- call.name + ': ' + (call.arguments.name if call.arguments.name is defined else call.arguments | tojson) }}
{%- else %}{{ message.content }}{% endif %}
{{- '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
{%- else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
CALL = {"type": "function", "function": {"name": "lookup", "arguments": {"name": "{content}"}}}
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": NEXT_TURN,
    "fields": {
        "tool_calls": {"open": "lookup: ", "close": END, "repeats": True, "content": "text", "transform": CALL},
        "content": {"close": END, "content": "text"},
    },
}


def tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """A tokenizer with the templates of this task, which are saved with it."""
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(path)
    own.chat_template, own.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    return own


class Turn(NamedTuple):
    """What the policy wrote in a turn, and where it stands in the dialogue, with the token that ends it."""

    text: str
    start: int
    end: int


def turns(text: str) -> list[Turn]:
    """The policy's own turns in the text of a dialogue."""
    starts = [0, *(found.end() for found in re.finditer(re.escape(NEXT_TURN), text))]
    return [_turn(text, start, following) for start, following in pairwise([*starts, len(text)])]


def _turn(text: str, start: int, following: int) -> Turn:
    stop = text.find(END, start, following)
    return (
        Turn(text[start:following], start, following) if stop < 0 else Turn(text[start:stop], start, stop + len(END))
    )


def directory(texts: list[str], path: list[list[str]], answer: list[str], **columns: Any) -> list[list[SpanReward]]:
    """
    Span reward function: each lookup (`call 1`, ...), whether there were as many as needed (`stop`), the `answer`.

    The place of a call is its turn. That of `stop` and of `answer` is the turn in which the answer was due, or the
    last one, where the policy stopped before.
    """
    return [_judged(turns(text), *asked) for text, *asked in zip(texts, path, answer, strict=True)]


def _judged(said: list[Turn], path: list[str], answer: str) -> list[SpanReward]:
    def at(k: int) -> Turn:
        return said[min(k, len(said) - 1)]

    def right(k: int) -> bool:
        return k < len(said) and said[k].text == f"lookup: {path[k]}"

    calls = sum(turn.text.startswith("lookup: ") for turn in said)
    due = at(len(path))
    checked = [(f"call {k + 1}", right(k), at(k)) for k in range(len(path))]
    checked += [("stop", calls == len(path), due), ("answer", said[-1].text.strip() == answer, due)]
    return [SpanReward(name, float(passed), turn.start, turn.end) for name, passed, turn in checked]
