"""These tests need a real cluster (docs/how-to/foundationdb.md). Without FENCEPOST_TEST_FDB they are not collected."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("FENCEPOST_TEST_FDB") else ["test_*.py"]
