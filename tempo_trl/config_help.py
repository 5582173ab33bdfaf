"""The `help` of a configuration's fields, taken from its docstring, so that a field is described once."""

import inspect
import re
from dataclasses import fields

ENTRY = re.compile(r"^    (\w+(?:, \w+)*) \(.*\):\n((?:        .*\n)+)", re.MULTILINE)
LINK = re.compile(r"\[([^\]`]+)\]\([^)]+\)")  # [text](address)
REFERENCE = re.compile(r"\[?`[~\"]?([^`\"]+)\"?`\]?")  # [`~package.name`], and `"value"`


def with_help(config: type) -> type:
    """Class decorator of a dataclass: fields without a `help` get what the docstring says of them, as plain text."""
    documented = ENTRY.findall(f"{inspect.getdoc(config)}\n")
    texts = {name: " ".join(text.split()) for names, text in documented for name in names.split(", ")}
    for each in fields(config):
        if each.name in texts and "help" not in each.metadata:
            each.metadata = {"help": REFERENCE.sub(r"`\1`", LINK.sub(r"\1", texts[each.name]))}
    return config
