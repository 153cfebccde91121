"""Serve the wallets, in as many processes as are wanted."""

from __future__ import annotations

import os

import uvicorn

from .app import STORE_VARIABLE


def serve(*, store: str, host: str, port: int, workers: int, quiet: bool) -> None:
    """Serve until the process is ended. Each worker opens the store at the address."""
    # Workers are new processes: they find the store where this one was told.
    os.environ[STORE_VARIABLE] = store
    uvicorn.run(
        f"{__package__}.app:create",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        access_log=not quiet,
        log_level="warning" if quiet else "info",
        proxy_headers=False,  # and other headers that nobody asked for
        server_header=False,
        # A live page never ends its request, so it is not waited for.
        timeout_graceful_shutdown=1,
    )
