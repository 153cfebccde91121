"""Serves the wallets, in one or more processes."""

from __future__ import annotations

import os

import uvicorn

from .app import STORE_VARIABLE


def serve(*, store: str, host: str, port: int, workers: int, quiet: bool) -> None:
    """Serve until the process is ended. Each worker opens the store at the address."""
    # Workers are new processes, which read the address from the environment.
    os.environ[STORE_VARIABLE] = store
    uvicorn.run(
        f"{__package__}.app:create",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=not quiet,
        log_level="warning" if quiet else "info",
        proxy_headers=False,  # no proxy is expected, so do not trust its headers
        server_header=False,
        # A live page never ends its request, so do not wait for it.
        timeout_graceful_shutdown=1,
    )
