"""A server whose SQLite file was moved away is not ready."""

from __future__ import annotations

from pathlib import Path

import httpx


def test_readiness_ends_when_the_file_is_moved_away(http: httpx.Client, tmp_path: Path) -> None:
    assert http.get("/readyz").status_code == 200
    (tmp_path / "wallet.db").rename(tmp_path / "moved.db")
    refused = http.get("/readyz")
    assert refused.status_code == 503
    assert "renamed, replaced or deleted" in refused.text
