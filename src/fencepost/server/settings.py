"""What can be configured. A flag takes precedence over a FENCEPOST_* variable, which takes precedence over the file.

Every setting has a name, a default and a meaning, all of them here. The command line, the environment and the TOML file
are derived from this list; docs/reference/http.md shows it, which tests/server/test_settings.py checks.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any, Final

from ..engine import Address
from ..errors import InvalidInput

VARIABLE_PREFIX: Final = "FENCEPOST_"
LARGEST_PORT: Final = 65_535

try:
    VERSION = version("fencepost")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0+source"


def setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Settings:
    store: str = setting("", "the address of the store to serve")
    host: str = setting("127.0.0.1", "the interface to listen on")
    port: int = setting(8_765, "the port for HTTP")
    grpc_port: int = setting(0, "the port for UmaDB's gRPC interface; 0: it is not served")
    metrics_port: int = setting(0, "a port of its own for /metrics, /healthz and /readyz, without keys; 0: none")
    metrics_host: str = setting("127.0.0.1", "the interface of metrics_port")
    workers: int = setting(1, "processes that serve the store; each has the limits below for itself")
    keys: str = setting("", "the file of API keys, kept by `fencepost keys`; without it, no key is needed")
    insecure: bool = setting(False, "allow other interfaces than loopback without keys, or keys without TLS")
    tls_certificate: str = setting("", "a PEM file with the server's certificate chain")
    tls_key: str = setting("", "a PEM file with the private key of the certificate")
    tls_client_ca: str = setting("", "a PEM file; clients must show a certificate signed by one of these")
    max_body_bytes: int = setting(100_000_000, "the largest body of a request")
    max_grpc_message_bytes: int = setting(4_194_304, "the largest message of a call over gRPC, also when unpacked")
    max_requests: int = setting(256, "requests in flight, without those that wait or stream; more are refused with 503")
    max_connections: int = setting(1_024, "open connections; more are refused with 503")
    max_subscriptions: int = setting(1_024, "requests that wait for new events; more are refused with 503")
    max_body_memory_bytes: int = setting(400_000_000, "the bodies of all requests and answers in flight together")
    caller_share: float = setting(
        0.5, "the part of the limits on requests, subscriptions, memory and connections that one caller may take"
    )
    requests_per_second: int = setting(0, "the rate of requests for each API key; 0: no limit")
    request_timeout_s: float = setting(30.0, "how long a client may take to send its request")
    stalled_client_s: float = setting(30.0, "how long a client may take to read a part of a stream")
    heartbeat_s: float = setting(15.0, "a subscription without new events sends a sign of life this often")
    max_wait_s: float = setting(30.0, "the longest that a request may wait for a new head")
    drain_s: float = setting(10.0, "how long requests in flight may go on after SIGTERM")
    log_format: str = setting("text", "text or json")
    access_log: bool = setting(False, "log a line for each request")
    dcb_adapter: bool = setting(False, "answer /read and /append as the test suite of dcb.events expects")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < inf:
                raise InvalidInput(each.name, f"a number of at least 0 is needed, not {value}")
            if each.name.endswith("port") and value > LARGEST_PORT:
                raise InvalidInput(each.name, f"a port is a number up to {LARGEST_PORT}, not {value}")
            if (each.name.startswith("max_") or each.name == "workers") and value <= 0:
                raise InvalidInput(each.name, f"at least 1 is needed, not {value}")
        if not 0 < self.caller_share <= 1:
            raise InvalidInput("caller_share", f"a part above 0, and at most 1, is needed, not {self.caller_share}")
        if self.metrics_port and self.metrics_port in (self.port, self.grpc_port):
            raise InvalidInput("metrics_port", f"{self.metrics_port} is the port for HTTP or for gRPC already")
        if self.log_format not in ("text", "json"):
            raise InvalidInput("log_format", f"text or json is needed, not {self.log_format!r:.80}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise InvalidInput("tls_certificate", "a certificate and its key are needed, or neither")
        if self.tls_client_ca and not self.tls_certificate:
            raise InvalidInput("tls_client_ca", "client certificates need TLS: give tls_certificate and tls_key")

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_certificate)

    def shown(self) -> dict[str, Any]:
        """All settings, with the store's address without its secrets."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "store": str(Address.parse(self.store)) if self.store else ""}

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"


def load_settings(
    flags: Mapping[str, Any], *, file: str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings from the file, the environment and the flags; a later one takes precedence."""
    environment = os.environ if environment is None else environment
    known = {each.name: each for each in fields(Settings)}
    values: dict[str, Any] = {}
    if file is not None:
        for name, value in _from_file(file).items():
            if name not in known:
                raise InvalidInput(name, f"{file}: unknown setting; known are {', '.join(known)}")
            values[name] = _checked(name, value, type(known[name].default))
    for name, each in known.items():
        text = environment.get(VARIABLE_PREFIX + name.upper())
        if text is not None:
            values[name] = _parsed(name, text, type(each.default))
    values.update({name: value for name, value in flags.items() if value is not None})
    return Settings(**values)


def _from_file(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text())
    except OSError as error:
        raise InvalidInput("config", f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("config", f"{file} is not valid TOML: {error}") from None


def _checked(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise InvalidInput(name, f"{kind.__name__} is needed, not {value!r:.80}")
    return value


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise InvalidInput(name, f"true or false is needed, not {text!r:.80}")
        return text.lower() in ("true", "1")
    try:
        return kind(text)
    except ValueError:
        raise InvalidInput(name, f"a number is needed, not {text!r:.80}") from None
