"""The group `demo`: runs example applications."""

from __future__ import annotations

import click

from ..demos.wallet.serving import main as wallet_command


@click.group("demo")
def demo_command() -> None:
    """Run example applications."""


demo_command.add_command(wallet_command)
