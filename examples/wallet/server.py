"""The command that serves the wallets, in one or more processes: `python -m examples.wallet`.

The server is imported when the command runs, because it needs the extra `server`, which the other commands do not.
"""

from __future__ import annotations

import os

import click

from fencepost.core.address import MEMORY, Address


@click.command("wallet")
@click.option(
    "--store",
    default="wallet.db",
    show_default=True,
    metavar="STORE",
    help="Address of the store; an SQLite file is created if it does not exist.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on; the default is reachable from this machine only.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=8_000,
    show_default=True,
    metavar="PORT",
    help="Port to listen on.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="PROCESSES",
    help="Number of processes; they share the store.",
)
@click.option("--quiet", is_flag=True, help="Do not print a line for each request.")
def main(store: str, host: str, port: int, workers: int, quiet: bool) -> None:
    """Serve wallets over HTTP, with a page that shows them live.

    /docs describes the requests for deposits, withdrawals and transfers. Concurrent requests never lose,
    duplicate or overdraw money. Ctrl-C stops the service.
    """
    try:
        import uvicorn

        from .app import STORE_VARIABLE
    except ImportError as error:
        problem = f"the wallet service needs the extra 'server' ({error}): pip install 'fencepost[server]'"
        raise click.UsageError(problem) from error
    if Address.parse(store).kind is MEMORY and workers > 1:
        raise click.UsageError(
            "--workers: each process would have a memory: store of its own; name a file or a database"
        )
    if not quiet:
        click.echo(f"Serving wallets at http://{host}:{port}/ (requests: /docs); press Ctrl-C to stop.", err=True)
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
