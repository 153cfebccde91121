"""The group `postgres`: manages stores in a PostgreSQL database."""

from __future__ import annotations

import click

from ..address import without_options
from .options import extras, json_option
from .output import Output


@click.group("postgres")
def postgres_command() -> None:
    """Manage stores in a PostgreSQL database."""


@postgres_command.command("install")
@click.argument("url")
@click.option(
    "--schema",
    default="fencepost",
    show_default=True,
    metavar="SCHEMA",
    help="The schema of the store; each schema holds one store.",
)
@json_option
def install_command(url: str, schema: str, as_json: bool | None) -> None:
    """Create an empty store in a schema of the database URL, or upgrade an older store in place."""
    with extras():
        from ..engines.postgres import install
    if "schema" in without_options(url, ("schema",))[1]:
        raise click.UsageError("the URL must not contain schema=; pass the schema as --schema")
    created = install(url, schema)
    sentence = f"The store in schema {schema} is ready." if created else f"Schema {schema} has a store already."
    Output(as_json).result({"schema": schema, "created": created}, sentence)
