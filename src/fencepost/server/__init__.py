"""A server that puts a store behind HTTP: `fencepost serve wallet.db`.

settings         what can be configured, by flags, FENCEPOST_* variables and a TOML file
admission        what every call passes, over both interfaces: caller, rights, limits, metrics, the append itself
access, keys     rights, scopes that limit a key to some tags and types, and the file of API keys
app, routes      the HTTP application: which path is answered by which handler, errors as problem+json
request          requests and answers over ASGI, with limits on size and time
handlers         what each path does; consumers, verification and dcb_adapter have the handlers of their paths
streams          long answers: NDJSON readings, subscriptions as server-sent events
head_watch       one thread that learns of new heads, for all requests that wait for one
umadb            UmaDB's interface over gRPC
metrics          counts and latencies, in the format of Prometheus, of one worker or of several as one
observer         the log, on standard error, and spans of OpenTelemetry
docs_page        the page at /docs, made from openapi.json, the description of the interface
http_connection  one HTTP connection, with limits that uvicorn does not have
certificate      the certificate, loaded again when its files change
server_process   one process: its sockets, the store, the server, and what happens at its end
supervisor       several processes that serve one store; worker is one of them

The server uses `AsyncEventStore` alone, so every engine can be served. `wire` has the forms of what travels.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .access import Right
    from .keys import add_key, read_keys, revoke_key
    from .remote.transport import is_this_machine
    from .server_process import check_settings, runner, serve
    from .settings import Settings, load_settings
    from .supervisor import supervise

__all__ = [
    "Right",
    "Settings",
    "add_key",
    "check_settings",
    "is_this_machine",
    "load_settings",
    "read_keys",
    "revoke_key",
    "runner",
    "serve",
    "supervise",
]

# Imported on first use: a client of a server needs none of these, nor what they import.
_ELSEWHERE: Final = {
    "Right": "access",
    "Settings": "settings",
    "add_key": "keys",
    "check_settings": "server_process",
    "is_this_machine": "remote.transport",
    "load_settings": "settings",
    "read_keys": "keys",
    "revoke_key": "keys",
    "runner": "server_process",
    "serve": "server_process",
    "supervise": "supervisor",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_ELSEWHERE[name]}", __name__)
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}; the server needs the extra 'server': pip install 'fencepost[server]'") from error
    found = globals()[name] = getattr(module, name)
    return found
