"""`fencepost serve`, `fencepost healthcheck` and `fencepost keys`: a store behind HTTP."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click

from ..engine import configure_logs
from ..errors import FencepostError
from .options import extras, json_option
from .output import Output

NOT_READY = 3  # the exit code of `healthcheck` for a server that answers that it is not ready


def _settings_options(command: Any) -> Any:
    from ..server import Settings

    for each in reversed(fields(Settings)):
        if each.name == "store":
            continue
        flag = "--" + each.name.replace("_", "-")
        kind = type(each.default)
        if kind is bool:
            option = click.option(flag, each.name, is_flag=True, default=None, help=each.metadata["meaning"] + ".")
        else:
            shown = f" [default: {each.default}]" if each.default != "" else ""
            option = click.option(flag, each.name, type=kind, default=None, help=each.metadata["meaning"] + "." + shown)
        command = option(command)
    return command


@click.command("serve")
@click.argument("store", required=False)
@click.option("--config", type=click.Path(exists=True), help="A TOML file with settings.")
@click.option("--show-config", is_flag=True, help="Print the settings that are in force, and exit.")
@_settings_options
def serve_command(store: str | None, config: str | None, show_config: bool, **flags: Any) -> None:
    """Serve the store over HTTP until SIGTERM or Ctrl-C.

    Every flag can be given as an environment variable, FENCEPOST_PORT for example, or in the TOML file; a flag takes
    precedence over a variable, a variable over the file.
    """
    with extras():
        from ..server import check_settings, load_settings, runner, serve, supervise
    chosen = load_settings({"store": store, **flags}, file=config)
    if show_config:
        for name, value in chosen.shown().items():
            click.echo(f"{name} = {json.dumps(value)}")
        return
    configure_logs(chosen.log_format)
    run = runner()

    def ready(port: int) -> None:
        click.echo(f"listening on {chosen.host}:{port}", err=True)

    check_settings(chosen)
    run((serve if chosen.workers == 1 else supervise)(chosen, on_ready=ready))


@click.command("healthcheck")
@click.argument("url")
@json_option
def healthcheck_command(url: str, as_json: bool | None) -> None:
    """Ask the server at URL whether it is ready; for service managers and containers.

    Exits with 0 if it is, with 3 if it answers that it is not, and says why, and with 1 if it does not answer.

    The certificate of a server on this machine is not checked: it seldom names 127.0.0.1, and nothing secret is sent.
    """
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit
    from urllib.request import urlopen

    from ..server import is_this_machine

    try:
        trust = ssl.create_default_context()
        if is_this_machine(urlsplit(url).hostname or ""):
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        with urlopen(url.rstrip("/") + "/readyz", timeout=5, context=trust) as answer:
            status = answer.status
    except HTTPError as refused:
        try:
            reason = json.loads(refused.read())["detail"]
        except (ValueError, LookupError, TypeError):  # not the answer of a Fencepost server
            reason = f"it answered {refused.code}"
        Output(as_json).result(
            {"ready": False, "status": refused.code, "reason": reason}, f"{url}: not ready: {reason}"
        )
        raise SystemExit(NOT_READY) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise click.ClickException(f"{url}: not ready: {error}") from None
    Output(as_json).result({"ready": True, "status": status}, f"{url} is ready.")


@click.group("keys")
def keys_command() -> None:
    """Keep the API keys of a server."""


_file_argument = click.argument("file", type=click.Path(dir_okay=False))


@keys_command.command("add")
@_file_argument
@click.argument("name")
@click.option("--right", "rights", multiple=True, type=click.Choice(["read", "append", "admin"]), help="Any number.")
@click.option("--tag", "tags", multiple=True, help="Limit the key to events that have one of these tags.")
@click.option("--type", "types", multiple=True, help="Limit the key to events of these types.")
@click.option("--days", type=click.IntRange(1), help="The key expires after this many days.")
@json_option
def add_command(
    file: str,
    name: str,
    rights: tuple[str, ...],
    tags: tuple[str, ...],
    types: tuple[str, ...],
    days: int | None,
    as_json: bool | None,
) -> None:
    """Make a key and print it, once: the file keeps only its hash. Without --right, it may read and append."""
    from ..server import Right, add_key

    expires = None if days is None else datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=days)
    made = add_key(
        Path(file),
        name,
        rights=frozenset(Right(right) for right in rights or ("read", "append")),
        expires=expires,
        tags=frozenset(tags),
        types=frozenset(types),
    )
    Output(as_json).result({"name": made.name, "key": made.secret}, made.secret)


@keys_command.command("list")
@_file_argument
@json_option
def list_command(file: str, as_json: bool | None) -> None:
    """List the keys: names, rights, scopes and when they expire."""
    from ..server import read_keys

    output = Output(as_json)
    for key in read_keys(Path(file)):
        expires = None if key.expires is None else key.expires.isoformat()
        rights = [right.value for right in key.rights]
        entry = {"name": key.name, "rights": rights, "tags": key.tags, "types": key.types, "expires": expires}
        scope = ", ".join([*key.tags, *key.types]) or "everything"
        output.result(entry, f"{key.name}: {', '.join(rights)}; {scope}; expires {expires or 'never'}")


@keys_command.command("revoke")
@_file_argument
@click.argument("name")
@json_option
def revoke_command(file: str, name: str, as_json: bool | None) -> None:
    """Remove a key. A running server refuses it within a second."""
    from ..server import revoke_key

    try:
        revoke_key(Path(file), name)
    except FencepostError as error:
        raise click.UsageError(str(error)) from None
    Output(as_json).result({"name": name, "revoked": True}, f"{name} is revoked.")
