"""Waiting for events that other processes append.

One thread and one connection of their own LISTEN for the notifications that each append sends, and
ask for the head once in a while as a safety net: on a standby, or behind a pooler, notifications do
not arrive. The thread is started by the first wait. When its connection is lost it makes a new one,
for as long as it takes; those who wait meanwhile are told the head that was seen last.

A notification only ever says that it is time to ask for the head. Nothing else is believed of it, since
everybody who may connect to the database can send one; so none that is lost, late, repeated or forged can do harm.
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

from .connections import Connection

POLL_S: Final = 1.0  # the safety net; a notification takes a millisecond
RETRY_S: Final = 0.2  # between two attempts to reach the server


class Listener:
    def __init__(self, connect: Callable[[], Connection], channel: str, head_query: bytes) -> None:
        self._connect = connect
        self._channel = channel
        self._head_query = head_query
        self._changed = threading.Condition()
        self.seen = 0
        self._interrupts = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._wake_read, self._wake_write = os.pipe()

    def saw(self, head: int) -> None:
        """The head is at least there: whoever waits for it need not wait any longer."""
        with self._changed:
            if head > self.seen:
                self.seen = head
                self._changed.notify_all()

    def wait(self, after: int, timeout_s: float) -> int:
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._listen, name="fencepost-listener", daemon=True)
                self._thread.start()
            interrupts = self._interrupts
            self._changed.wait_for(lambda: self.seen > after or self._interrupts > interrupts, timeout_s)
            return self.seen

    def interrupt(self) -> None:
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
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

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connect() as connection:
                    self._listen_on(connection)
            except Exception:  # whatever it is: those who wait need this thread, and nobody would start another one
                self._pause(RETRY_S)

    def _listen_on(self, connection: Connection) -> None:
        with suppress(psycopg.errors.ReadOnlySqlTransaction):  # a standby cannot listen, but it can be asked
            connection.execute(f'LISTEN "{self._channel}"'.encode())
        while not self._closed:
            # Asked after LISTEN has begun: what is committed later sends a notification.
            row = connection.execute(self._head_query).fetchone()
            assert row is not None
            self.saw(row[0])
            deadline = monotonic() + POLL_S
            while not self._closed and not self._is_told(connection) and (rest_s := deadline - monotonic()) > 0:
                self._pause(rest_s, connection.fileno())

    def _is_told(self, connection: Connection) -> bool:
        """Whether a notification has come that could be news: of our own appends we know already."""
        told = False
        for notification in connection.notifies(timeout=0):
            with suppress(ValueError):  # somebody else's, which is no position
                told |= int(notification.payload) > self.seen
        return told

    def _pause(self, timeout_s: float, *files: int) -> None:
        """Until one of the files has something to read, the time is over, or the listener is closed."""
        ready = select.poll()  # select.select knows no file above 1023
        for file in (self._wake_read, *files):
            ready.register(file, select.POLLIN)
        ready.poll(timeout_s * 1_000)
