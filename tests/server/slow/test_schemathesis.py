"""schemathesis sends what openapi.json allows, and what it does not: every answer is one that the file describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from tests.support.thorough import times

from fencepost.server.docs_page import DESCRIPTION

from ..running import RunningServer

# A subscription has no end. The other paths that are left out take bodies of msgpack, which schemathesis does not make.
schema = schemathesis.openapi.from_dict(DESCRIPTION).exclude(path=["/v1/subscribe", "/v1/appends", "/v1/restore"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RunningServer("memory:", max_wait_s=0.01) as server:
        yield server.url


OPERATIONS = {operation.ok().label: operation.ok() for operation in schema.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_described(label: str, url: str) -> None:
    @settings(max_examples=times(30, 300), deadline=None, suppress_health_check=list(HealthCheck))
    @given(OPERATIONS[label].as_strategy())
    def check(case: Any) -> None:
        answer = case.call(base_url=url, timeout=20)
        case.validate_response(
            answer, checks=(not_a_server_error, status_code_conformance, response_schema_conformance)
        )

    check()
