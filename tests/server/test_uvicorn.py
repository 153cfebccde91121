"""What `http_connection` and `server_process` rely on inside uvicorn: an upgrade that changes it fails here."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fencepost.server.http_connection import HttpConnection
from fencepost.server.server_process import HttpServer


def assigned(function: object) -> set[str]:
    """The attributes of `self` that the function assigns."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def test_a_connection_has_the_attributes_that_are_used() -> None:
    used = "app client config connections cycle flow headers loop parser pipeline transport"
    assert set(used.split()) <= assigned(HttpToolsProtocol.__init__)
    assert "url" in assigned(HttpToolsProtocol.on_message_begin)
    assert {"response_complete"} <= assigned(RequestResponseCycle.__init__)
    assert {"server_state", "should_exit", "_captured_signals"} <= assigned(uvicorn.Server.__init__)


@pytest.mark.parametrize(
    ("ours", "theirs", "names"),
    [
        (
            HttpConnection,
            HttpToolsProtocol,
            "connection_made connection_lost data_received on_message_begin on_header on_headers_complete on_body "
            "on_message_complete on_response_complete pause_writing resume_writing _unset_keepalive_if_required",
        ),
        (HttpServer, uvicorn.Server, "capture_signals startup on_tick shutdown serve"),
    ],
)
def test_a_method_that_is_overridden_or_called_is_there_with_the_same_parameters(
    ours: type, theirs: type, names: str
) -> None:
    for name in names.split():
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        ), name
