"""Waiting for events that other processes append.

One thread with its own connection executes LISTEN for the notification that each append sends. It also reads the head
every second, because notifications do not arrive on a standby or through a pooler. The first call of `wait` starts
the thread. If the connection is lost, the thread connects again, for as long as it takes; meanwhile `wait` returns
the last known head.

A notification only makes the thread read the head. Its content is not trusted, because every role that may connect to
the database can send one. So a lost, late, repeated or forged notification has no effect
(tests/postgres/test_listener.py).
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

import psycopg

from ...core.interrupts import Waiters, shielded
from ...errors import StoreCorrupt
from .connection_pool import Connection
from .seen_log import SeenLog, Witness

POLL_S: Final = 1.0  # without notifications; a notification takes a millisecond
RETRY_S: Final = 0.2  # between two attempts to reach the server


class Listener:
    """The threads that wait for a higher head than this process has seen."""

    def __init__(self, connect: Callable[[], Connection], channel: str, seen: SeenLog) -> None:
        self._connect = connect
        self._channel = channel
        self.seen = seen
        self._error: StoreCorrupt | None = None
        self._lock = threading.Lock()
        self._changed = Waiters()
        self._interrupts = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._abandoned = False
        self._wake_read, self._wake_write = os.pipe()

    def advance(self, head: int, witness: Witness | None = None) -> None:
        """Wake the threads that wait for this head. A head that is not higher than the known one changes nothing."""
        with shielded:
            if self.seen.advance(head, witness):
                self._changed.notify_all()

    def wait(self, after: int, timeout_s: float) -> int:
        with shielded:
            with self._lock:
                if self._thread is None and not self._closed:
                    self._thread = threading.Thread(target=self._listen, name="fencepost-listener", daemon=True)
                    self._thread.start()
            interrupts = self._interrupts
            self._changed.wait_for(
                lambda: self.seen.head > after or self._interrupts > interrupts or self._error is not None, timeout_s
            )
            if self._error is not None:
                raise self._error
            return self.seen.head

    def interrupt(self) -> None:
        self._interrupts += 1
        self._changed.notify_all()

    def close(self) -> None:
        with shielded:
            with self._lock:
                if self._closed:
                    return
                self._closed = True
                thread = self._thread
            self.interrupt()
            os.write(self._wake_write, b"x")
            if thread is not None:
                thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def abandon(self) -> None:
        """Close without waiting for the thread, which closes the pipe at its end. The garbage collector calls this."""
        if self._thread is None:
            self.close()
        else:
            self._abandoned = True
            os.write(self._wake_write, b"x")
            self._closed = True  # last, because the thread may close the pipe as soon as it reads this

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connect() as connection:
                    self._listen_on(connection)
            except StoreCorrupt as error:  # the log went back, which each waiting thread must report
                self._error = error
                self._changed.notify_all()
                self._pause(RETRY_S)
            except Exception:  # any error: waiting threads need this thread, and no other would be started
                self._pause(RETRY_S)
        if self._abandoned:
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _listen_on(self, connection: Connection) -> None:
        with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a standby refuses LISTEN, but its head can be read
            connection.execute(f'LISTEN "{self._channel}"'.encode())
        while not self._closed:
            # Read after LISTEN: every later commit sends a notification.
            last = self.seen.read_head(connection)
            self._error = None
            self.advance(last.position, last)
            deadline = monotonic() + POLL_S
            while not self._closed and not self._is_notified(connection) and (rest_s := deadline - monotonic()) > 0:
                self._pause(rest_s, connection.fileno())

    def _is_notified(self, connection: Connection) -> bool:
        """Whether a notification has arrived that names a higher head. Those of our own appends do not."""
        is_notified = False
        for notification in connection.notifies(timeout=0):
            with suppress(ValueError):  # sent by another program, and not a position
                is_notified |= int(notification.payload) > self.seen.head
        return is_notified

    def _pause(self, timeout_s: float, *files: int) -> None:
        """Wait until one of the files is readable, the time is over, or the listener is closed."""
        ready = select.poll()  # select.select does not support descriptors above 1023
        for file in (self._wake_read, *files):
            ready.register(file, select.POLLIN)
        ready.poll(timeout_s * 1_000)
