"""One of several processes that serve a store; `supervisor` starts it as `python -m fencepost.server.worker`.

It reads its task from standard input, says `ready` or what is wrong on standard output, and serves until SIGTERM. When
standard input is closed, the process that started it has ended, and it drains as after SIGTERM.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from ..engine import configure_logs
from ..errors import FencepostError
from .server_process import runner, serve
from .settings import Settings
from .sockets import Sockets
from .supervisor import READY, Task


def main() -> int:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    settings = Settings(**task.settings)
    configure_logs(settings.log_format)
    sockets = Sockets(*([socket.socket(fileno=each) for each in numbers] for numbers in task.sockets))
    threading.Thread(target=_drain_without_parent, name="fencepost-parent", daemon=True).start()
    try:
        runner()(
            serve(
                settings,
                sockets=sockets,
                shared=(Path(task.folder), task.number),
                on_ready=lambda port: print(READY, flush=True),
            )
        )
    except FencepostError as error:
        print(" ".join(str(error).split()), flush=True)
        return 1
    return 0


def _drain_without_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
