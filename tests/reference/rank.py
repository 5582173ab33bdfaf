"""One rank of the reference, MODEL FOLDER [CASE ...].

Trains case after case and writes what the rank saw to FOLDER/rank{r}.pt.
"""

import os
import time

import torch
from accelerate import PartialState

from .cases import CASES
from .record import record


def main(model: str, folder: str, *cases: str) -> None:
    seen = {case: record(CASES[case], model, f"{folder}/{case}") for case in cases or CASES}
    torch.save(seen, f"{folder}/rank{os.environ.get('RANK', '0')}.pt")
    time.sleep(0.2)  # gloo's threads drop the last tensors: https://github.com/pytorch/pytorch/issues/56297
    PartialState().destroy_process_group()
