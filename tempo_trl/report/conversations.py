"""Token ids of conversations, with the turn of each token."""

from collections.abc import Iterator, Sequence


class Encoder:
    """
    Token ids of conversations, as TRL's rollouts have them: each turn follows what was observed, and ends with EOS.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            A tokenizer with a chat template. A known template that changes earlier messages when others follow is
            replaced by TRL's training template, as in training.
    """

    def __init__(self, tokenizer):
        # The command line should start without TRL: token ids need none.
        from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving

        self._tokenizer, self._template = tokenizer, None
        if not is_chat_template_prefix_preserving(tokenizer):
            self._template = get_training_chat_template(tokenizer)

    def __call__(self, prompt: Sequence[dict], completion: Sequence[dict]) -> tuple[list[int], list[int]]:
        """
        Token ids of a completion, and the turn of each, starting at 0; -1 for tokens of the messages in between.

        Raises:
            ValueError: if the template renders earlier messages differently when others follow.
        """
        ids, turns, turn = [], [], -1
        for text, is_turn in self._pieces(list(prompt), list(completion)):
            turn += is_turn
            added = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += added
            turns += [turn if is_turn else -1] * len(added)
        return ids, turns

    def _pieces(self, prompt: list[dict], completion: list[dict]) -> Iterator[tuple[str, bool]]:
        """The text of each turn, and of what was observed before it, in order."""
        done = self._rendered(prompt, turn_follows=True)
        for i, message in enumerate(completion):
            if message["role"] != "assistant":
                continue
            before = self._rendered([*prompt, *completion[:i]], turn_follows=True)
            yield _continued(done, before), False
            text = _continued(before, self._rendered([*prompt, *completion[: i + 1]], turn_follows=False))
            end = text.rfind(eos := self._tokenizer.eos_token or "")
            text = text[: end + len(eos)] if eos and end >= 0 else text  # a template may add a line break after it
            yield text, True
            done = before + text

    def _rendered(self, messages: list[dict], turn_follows: bool) -> str:
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=turn_follows, chat_template=self._template
        )


def _continued(text: str, longer: str) -> str:
    if not longer.startswith(text):
        raise ValueError(
            f"the chat template renders earlier messages differently when others follow: {text[-60:]!r} is not where "
            f"{longer[-120:]!r} begins. Use a template that preserves prefixes, as training with tools requires."
        )
    return longer[len(text) :]
