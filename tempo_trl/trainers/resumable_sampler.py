"""The order of the prompts after a resume: that of the run that never stopped, in later epochs too."""

from collections.abc import Callable, Iterator

from torch.utils.data import Sampler


class ResumableSampler(Sampler):
    """
    A sampler that draws an epoch's order from a generator of its own, such as TRL's `RepeatSampler`, made resumable.

    That generator is in no checkpoint: a resumed run would walk its second epoch in the order of the first. The orders
    of the epochs that were trained before the resume are drawn and dropped instead.

    Args:
        sampler (`Sampler`):
            The sampler, which draws its order when its iteration begins.
        epochs_trained (`Callable[[], int]`):
            Whole epochs trained before the first iteration; asked when that begins.
    """

    def __init__(self, sampler: Sampler, epochs_trained: Callable[[], int]):
        self.sampler = sampler
        self.epochs_trained = epochs_trained
        self.begun = False

    def __iter__(self) -> Iterator[int]:
        if not self.begun:
            for _ in range(self.epochs_trained()):
                next(iter(self.sampler), None)
            self.begun = True
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)
