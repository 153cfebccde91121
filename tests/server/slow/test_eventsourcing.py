"""The suites of `eventsourcing` for recorders pass with `eventsourcing-umadb` over this server, unchanged."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import Any

from eventsourcing.dcb.tests import DCBRecorderTestCase
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
)

handler = signal.getsignal(signal.SIGINT)
import umadb  # noqa: E402
from eventsourcing_umadb.recorders import (  # noqa: E402
    UmaDBAggregateRecorder,
    UmaDBApplicationRecorder,
    UmaDBDCBRecorder,
)

signal.signal(signal.SIGINT, handler)  # importing umadb replaces it

from ..running import RunningServer, free_port  # noqa: E402


class OverThisServer:
    """A server of its own for each test."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        self.server = RunningServer(str(Path(self.folder.name) / "log.db"), grpc_port=port)
        self.client = umadb.Client(f"http://127.0.0.1:{port}")

    def tearDown(self) -> None:
        self.client.close()
        self.server.stop()
        self.folder.cleanup()


class TestAggregateRecorder(OverThisServer, AggregateRecorderTestCase):
    def create_recorder(self) -> Any:
        return UmaDBAggregateRecorder(self.client)


class TestApplicationRecorder(OverThisServer, ApplicationRecorderTestCase):
    EXPECT_CONTIGUOUS_NOTIFICATION_IDS = True

    def create_recorder(self) -> Any:
        return UmaDBApplicationRecorder(self.client)


class TestNotificationIds(OverThisServer, NonInterleavingNotificationIDsBaseCase):
    insert_num = 100

    def create_recorder(self) -> Any:
        return UmaDBApplicationRecorder(self.client)


class TestDcbRecorder(OverThisServer, DCBRecorderTestCase):
    def test_append_read(self) -> None:
        self._test_append_read(UmaDBDCBRecorder(self.client))

    def test_append_subscribe(self) -> None:
        self._test_append_subscribe(UmaDBDCBRecorder(self.client))


# Otherwise pytest would run the imported suites by themselves.
del AggregateRecorderTestCase, ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase, DCBRecorderTestCase
