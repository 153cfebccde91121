"""`postgres`: what is particular to stores in a PostgreSQL database."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import click

from .options import extras, json_option
from .output import Output


@click.group("postgres")
def postgres_command() -> None:
    """Stores in a PostgreSQL database."""


@postgres_command.command("install")
@click.argument("url")
@click.option("--schema", default="fencepost", show_default=True, help="Where the store is: one store a schema.")
@json_option
def install_command(url: str, schema: str, as_json: bool | None) -> None:
    """Make an empty store; one that is there already is left as it is."""
    with extras():
        from ..engines.postgres import install
    if "schema" in parse_qs(urlsplit(url).query):
        raise click.UsageError("the URL is that of the database: name the schema by --schema")
    created = install(url, schema)
    sentence = f"The store in schema {schema} is ready." if created else f"Schema {schema} has a store already."
    # The URL may hold a password, so it is not repeated.
    Output(as_json).result({"schema": schema, "created": created}, sentence)
