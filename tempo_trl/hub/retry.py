"""Retry an action after a dropped connection, a limited number of times.

huggingface_hub itself retries uploads of files, but not the other requests, such as the commit.
"""

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

WAITS = (1, 5, 20)  # seconds before the second, third and last attempt
TEMPORARY = (408, 409, 412, 429)  # timeout, somebody else's commit in between, too many requests; and 500 and above

Value = TypeVar("Value")


def retry(action: Callable[[], Value]) -> Value:
    """The result of `action`, with retries after temporary failures. The last failure is raised."""
    for wait in WAITS:
        try:
            return action()
        except Exception as error:
            if not is_temporary(error) and type(error) is not RuntimeError:  # the type of most errors of hf_xet
                raise
            first_line = (str(error).splitlines() or [""])[0]  # not the rest, which may contain signed URLs
            summary = f"{type(error).__name__}: {first_line}".rstrip(".: ")
            print(f"{summary}. Trying again in {wait} s.", file=sys.stderr)
        time.sleep(wait)
    return action()


def is_temporary(error: BaseException) -> bool:
    """Whether the same request may succeed later: there was no answer, or one with a temporary error."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in TEMPORARY or status >= 500
    if isinstance(error, RuntimeError) and error.__cause__:  # how huggingface_hub wraps the upload of one file
        return is_temporary(error.__cause__)
    no_answer = isinstance(error, HTTPError | ConnectionError | TimeoutError)
    return no_answer and not isinstance(error, OfflineModeIsEnabled)
