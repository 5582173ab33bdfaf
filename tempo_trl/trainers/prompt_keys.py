"""Which completions of a group continue the same prompt: all, unless an environment adds different observations."""

import hashlib
from collections.abc import Iterator, Sequence

import torch


def prompt_keys(prompt_ids: torch.Tensor, prompt_mask: torch.Tensor, images: Sequence = ()) -> torch.Tensor:
    """
    A number for each prompt: equal prompts have equal numbers, on every rank.

    Args:
        prompt_ids, prompt_mask (`torch.Tensor` of shape `(B, P)`):
            Token ids, and a mask that is 0 on padding.
        images (`Sequence` of `B` sequences, *optional*):
            Images of each prompt. They are compared, too, because different images have the same tokens.

    Returns:
        `torch.Tensor` of shape `(B,)`, int64, on the CPU: 64 bits of a hash.
    """
    ids, inside = prompt_ids.cpu().numpy(), prompt_mask.cpu().numpy().astype(bool)
    keys = []
    for i, (row, kept) in enumerate(zip(ids, inside, strict=True)):
        digest = hashlib.blake2b(row[kept].tobytes(), digest_size=8)
        for image in images[i] if images else ():
            digest.update(image_bytes(image))
        keys.append(int.from_bytes(digest.digest(), "little", signed=True))
    return torch.tensor(keys, dtype=torch.int64)


def images_in(prompt: str | list[dict]) -> Iterator:
    """The images of a prompt's messages, in order."""
    for message in () if isinstance(prompt, str) else prompt:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "image":
                yield part.get("image")


def image_bytes(image) -> bytes:
    if hasattr(image, "tobytes"):  # PIL's, or an array
        return repr((getattr(image, "mode", None), getattr(image, "size", None))).encode() + image.tobytes()
    return repr(image).encode()  # a path or a URL
