"""What to do when a connection drops: wait and try again, a bounded number of times.

huggingface_hub repeats most of its requests by itself, except the one that counts: the commit.
"""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

WAITS = (1, 5, 20)  # seconds before the second, third and last attempt
PASSING = (408, 409, 412, 429)  # timeout, somebody else's commit in between, too many requests; and 500 and above

Value = TypeVar("Value")


def persist(action: Callable[[], Value]) -> Value:
    """What `action` returns, tried again where its failure may pass; the last failure rises."""
    for wait in WAITS:
        try:
            return action()
        except Exception as error:
            if not may_pass(error) and type(error) is not RuntimeError:  # as hf_xet says most things
                raise
            print(f"{_in_a_line(error)} Trying again in {wait} s.", file=sys.stderr)
        time.sleep(wait)
    return action()


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed later: no answer, or one that blames the moment."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in PASSING or status >= 500
    if isinstance(error, RuntimeError) and error.__cause__:  # how huggingface_hub wraps the upload of one file
        return may_pass(error.__cause__)
    no_answer = isinstance(error, HTTPError | ConnectionError | TimeoutError)
    return no_answer and not isinstance(error, OfflineModeIsEnabled)


def _in_a_line(error: Exception) -> str:
    """Name and first line; never the rest, which may hold addresses that are signed."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".rstrip(".: ") + "."
