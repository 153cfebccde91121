"""`demo`: applications to try Fencepost with."""

from __future__ import annotations

import click


@click.group("demo")
def demo_command() -> None:
    """Applications to try Fencepost with."""


@demo_command.command("wallet")
@click.option(
    "--store", default="wallet.db", show_default=True, help="Address of the store; a file is made if need be."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; by default not to others.")
@click.option("--port", type=click.IntRange(1, 65_535), default=8_000, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes, which share the store."
)
@click.option("--quiet", is_flag=True, help="Do not print a line for each request.")
def wallet_command(store: str, host: str, port: int, workers: int, quiet: bool) -> None:
    """Serve wallets over HTTP, with a page that shows them live.

    Money is deposited, withdrawn and transferred by requests that /docs describes; none is lost, doubled or
    overdrawn, however many come at once. Ends with Ctrl-C.
    """
    try:
        from ..demos.wallet.serving import serve
    except ImportError as error:
        problem = f"the wallet service needs the extra 'server' ({error}): pip install 'fencepost[server]'"
        raise click.UsageError(problem) from error
    if store == "memory:" and workers > 1:
        raise click.UsageError(
            "--workers: each process would have a memory: store of its own; name a file or a database"
        )
    if not quiet:
        click.echo(f"The wallets are at http://{host}:{port}/, what they take at /docs; end with Ctrl-C.", err=True)
    serve(store=store, host=host, port=port, workers=workers, quiet=quiet)
