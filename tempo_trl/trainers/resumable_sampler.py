"""A sampler whose order after a resume is that of the uninterrupted run, in later epochs too."""

from collections.abc import Callable, Iterator

from torch.utils.data import Sampler


class ResumableSampler(Sampler):
    """
    Makes a sampler with its own random generator, such as TRL's `RepeatSampler`, resumable.

    Checkpoints do not contain that generator, so a run resumed in its second epoch would repeat the order of the
    first. This class draws and discards the orders of the epochs that were trained before the resume.

    Args:
        sampler (`Sampler`):
            The sampler, which draws its order when its iteration begins.
        epochs_trained (`Callable[[], int]`):
            Returns the number of whole epochs trained before the first iteration. Called when that begins.
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
