"""In place of `python`: ask the server for a process, hand it this one's files and signals, and end as it ends.

It runs without site packages, in a few milliseconds. `quick_python` fills in the two constants.
"""

import json
import os
import signal
import socket
import sys

SOCKET = ""
PYTHON = ""


def main(words: list[str]) -> None:
    asked = [*words]
    while asked[:1] in (["-u"], ["-B"]):
        del asked[0]
    if not asked or (asked[0].startswith("-") and asked[0] not in ("-m", "-c")):
        os.execv(PYTHON, [PYTHON, *words])
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(SOCKET)
        own = {"words": asked, "folder": os.getcwd(), "environment": dict(os.environ), "files": (files := inherited())}
        request = json.dumps(own).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "big")], files)
        server.sendall(request)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
        answer = server.recv(4, socket.MSG_WAITALL)
    end(int.from_bytes(answer, "big", signed=True) if answer else 70)


def inherited() -> list[int]:
    """The files of this process that are not its own: standard ones, and those that `multiprocessing` hands on."""
    return [0, 1, 2, *(file for file in range(3, 256) if is_inherited(file))]


def is_inherited(file: int) -> bool:
    try:
        return os.get_inheritable(file)
    except OSError:
        return False


def end(status: int) -> None:
    """End with an exit status, or by the signal whose negative it is."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
