"""A process that runs the outbox `o` into a file, until it is told to stop or killed.

With the trouble `die-after-publishing` it kills itself between publishing a batch and saving the checkpoint, once the
batch contains the position `at`. With `suspend-in-batch` it suspends itself after half of a batch, at that position.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import sleep

from tests.consumers.outbox.receivers import TOPIC
from tests.support.reporting import report

import fencepost
from fencepost.consumers import start
from fencepost.consumers.outbox import FilePublisher, Message, Outbox

LEASE_S = 1.0


class Troubled(FilePublisher):
    def __init__(self, path: str, reports: str, trouble: str, at: int) -> None:
        super().__init__(path)
        self.reports, self.trouble, self.at = reports, trouble, at

    def publish(self, messages: Sequence[Message]) -> None:
        found = any(message.event.position >= self.at for message in messages)
        if found and self.trouble == "die-after-publishing":
            super().publish(messages)
            os.kill(os.getpid(), signal.SIGKILL)
        if found and self.trouble == "suspend-in-batch":
            self.trouble = ""
            half = len(messages) // 2
            super().publish(messages[:half])
            report(self.reports, "suspended")
            # To this thread: a signal to the process is handled by the main thread, and this one would go on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            super().publish(messages[half:])
            report(self.reports, "continued")
            return
        super().publish(messages)


def main(reports: str, address: str, path: str, stop: str, trouble: str = "", at: str = "0") -> None:
    publisher = Troubled(path, reports, trouble, int(at))
    outbox = Outbox("o", TOPIC, publisher, lease_s=LEASE_S, batch=7)
    with fencepost.open(address) as store, start(store, outbox) as runner:
        report(reports, "started")
        while not Path(stop).exists():
            sleep(0.01)
        runner.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
