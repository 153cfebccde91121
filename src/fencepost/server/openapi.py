"""The description of the HTTP interface as OpenAPI 3.1.

Schemas come from the structures that the server really decodes and encodes (`fencepost.wire`), so they cannot differ
from it. Each operation names the right that it needs in `x-right`. tests/server/test_openapi.py holds that every path
of the server is described, that the examples work, and that a key without the right is refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from ..consumers import ConsumerStatus, DeadLetter
from ..wire import documents, problems
from . import consumers
from .settings import VERSION

EXAMPLE_EVENT: Final = {
    "type": "MoneyDeposited",
    "tags": ["wallet:w1"],
    "data": {"amount": 25},
    "id": "5f0c1a52-6c1f-4a7b-9f0e-2f1f6f1f0001",
}
EXAMPLE_QUERY: Final = {"items": [{"types": ["MoneyDeposited", "MoneyWithdrawn"], "tags": ["wallet:w1"]}]}
EXAMPLE_APPEND: Final = {
    "events": [EXAMPLE_EVENT],
    "condition": {"fail_if_events_match": EXAMPLE_QUERY, "after": 0},
}

POSITION: Final = {
    "description": "A position: a number, or a string of digits from 2^53 on.",
    "oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,29}$"}],
}


def _parameter(name: str, meaning: str, schema: dict[str, Any], *, where: str = "query", required: bool = False) -> Any:
    return {"name": name, "in": where, "description": meaning, "required": required, "schema": schema}


_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_RANGE: Final = [
    _parameter("after", "Only events after this position.", POSITION),
    _parameter("upto", "Only events up to this position.", POSITION),
]
_READ: Final = [
    _parameter("type", "Only events of these types; any number of times.", _TEXTS),
    _parameter("tag", "Only events with all of these tags; any number of times.", _TEXTS),
    _parameter("query", "A query as JSON, instead of type and tag.", {"type": "string"}),
    *_RANGE,
    _parameter("limit", "At most this many events.", {"type": "integer", "minimum": 1}),
    _parameter("backwards", "The newest events first.", {"type": "boolean"}),
]


def _body(kind: str, example: Any) -> dict[str, Any]:
    return {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind}"}, "example": example}},
    }


def _answers(meaning: str, schema: dict[str, Any], *more: int, media_type: str = "application/json") -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers: dict[str, Any] = {"200": {"description": meaning, "content": {media_type: {"schema": schema}}}}
    for status in (401, 403, 408, 413, 422, 429, 500, 503, *more):
        titles = sorted({kind.title for kind in KINDS if kind.status == status})
        answers[str(status)] = {"description": "; ".join(titles) or "Failed", "content": problem}
    return answers


KINDS: Final = [kind for kind in vars(problems).values() if isinstance(kind, problems.Kind)]
_EVENTS: Final = {
    "type": "object",
    "required": ["events", "head", "more"],
    "properties": {
        "events": {"type": "array", "items": {"$ref": "#/components/schemas/SequencedDocument"}},
        "head": POSITION,
        "more": {"type": "boolean", "description": "Whether to ask again, after the last event of this page."},
    },
}
_HEAD: Final = {"type": "object", "required": ["head"], "properties": {"head": POSITION}}
_ANY: Final[dict[str, Any]] = {"type": "object"}


def _consumer_paths() -> dict[str, Any]:
    """The paths about consumers: what is asked with GET needs the right `read`, a command the right `admin`."""
    name = _parameter("name", "The name of the consumer.", {"type": "string"}, where="path", required=True)
    position = _parameter("position", "The position of the event.", POSITION, where="path", required=True)
    letter = {"$ref": "#/components/schemas/DeadLetter"}
    state = {"$ref": "#/components/schemas/ConsumerStatus"}

    def asked(summary: str, schema: dict[str, Any], parameters: list[Any]) -> dict[str, Any]:
        responses = _answers("What was found.", schema, *((404, 409) if parameters else ()))
        return {"get": {"summary": summary, "x-right": "read", "parameters": parameters, "responses": responses}}

    def command(summary: str, kind: type, example: Any, **properties: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"consumer": {"type": "string"}, **properties}}
        return {
            "post": {
                "summary": summary,
                "description": "Recorded in the store with the name of the API key, the time, and `by`.",
                "x-right": "admin",
                "parameters": [name],
                "requestBody": {**_body(kind.__name__, example), "required": False},
                "responses": _answers("Recorded.", schema, 404, 409),
            }
        }

    changed = {"type": "boolean", "description": "Whether this changed anything."}
    count = {"type": "integer", "description": "How many dead letters."}
    one, letters = "/v1/consumers/{name}", "/v1/consumers/{name}/dead-letters"
    return {
        "/v1/consumers": asked("The status of every consumer.", _list_of("consumers", state), []),
        one: asked("The status of one consumer: position, lag, lease, errors.", state, [name]),
        f"{one}/pause": command(
            "Pause after the batch that is being handled.",
            consumers.PauseDocument,
            {"reason": "maintenance", "by": "ada"},
            changed=changed,
        ),
        f"{one}/resume": command(
            "Go on after a pause, or after a failure.", consumers.CommandDocument, {"by": "ada"}, changed=changed
        ),
        f"{one}/step": command(
            "Have a paused consumer handle one event.", consumers.StepDocument, {"by": "ada"}, changed=changed
        ),
        f"{one}/repartition": command(
            "Split its events in another way.",
            consumers.RepartitionDocument,
            {"partitions": 1, "by": "ada"},
            changed=changed,
        ),
        f"{one}/reset": command(
            "Handle events again: those after a position, or those recorded since a time.",
            consumers.ResetDocument,
            {"position": 0, "by": "ada"},
            position=POSITION,
        ),
        letters: asked("The events that the consumer has set aside.", _list_of("dead_letters", letter), [name]),
        f"{letters}/{{position}}": asked("A dead letter, with its event.", letter, [name, position]),
        f"{letters}/replay": command(
            "Have the consumer handle dead letters again.",
            consumers.LettersDocument,
            {"all": True, "by": "ada"},
            requested=count,
        ),
        f"{letters}/discard": command(
            "Drop dead letters without handling them.",
            consumers.LettersDocument,
            {"all": True, "by": "ada"},
            discarded=count,
        ),
    }


def _list_of(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": schema}}}


def _paths() -> dict[str, Any]:
    placed = {"$ref": "#/components/schemas/PlacedDocument"}
    binary = {"type": "string", "format": "binary"}
    own = "The form of Fencepost's own client; see docs/reference/http.md."
    return {
        "/v1/append": {
            "post": {
                "x-right": "append",
                "summary": "Store events, all or none, if no condition fails.",
                "description": "`already: true` says that the events, or an event that matches `unless`, are stored "
                "already. With event ids, the same request can be sent again: it is stored once.",
                "requestBody": _body("AppendDocument", EXAMPLE_APPEND),
                "responses": _answers("Where the events are.", placed, 409),
            }
        },
        "/v1/appends": {
            "post": {
                "x-right": "append",
                "summary": "Several appends, each stored or refused on its own.",
                "description": own,
                "requestBody": {"required": True, "content": {"application/vnd.fencepost+msgpack": {"schema": binary}}},
                "responses": _answers("An outcome for each.", binary, media_type="application/vnd.fencepost+msgpack"),
            }
        },
        "/v1/events": {
            "get": {
                "x-right": "read",
                "summary": "Read events; with `Accept: application/x-ndjson`, all of them as a stream.",
                "parameters": _READ,
                "responses": _answers("A page of events.", _EVENTS),
            }
        },
        "/v1/read": {
            "post": {
                "x-right": "read",
                "summary": "As /v1/events, with the query in the body.",
                "requestBody": _body("ReadDocument", {"query": EXAMPLE_QUERY, "after": 0, "limit": 100}),
                "responses": _answers("A page of events.", _EVENTS),
            }
        },
        "/v1/subscribe": {
            "get": {
                "x-right": "read",
                "summary": "The events after a position, then each new one: server-sent events, or NDJSON.",
                "parameters": [
                    *_READ[:3],
                    _RANGE[0],
                    _parameter("Last-Event-ID", "Go on after this position.", POSITION, where="header"),
                ],
                "responses": _answers("A stream without end.", {"type": "string"}, media_type="text/event-stream"),
            },
            "post": {
                "x-right": "read",
                "summary": "The same, with the query in the body.",
                "requestBody": _body("ReadDocument", {"query": EXAMPLE_QUERY, "after": 0}),
                "responses": _answers("A stream without end.", {"type": "string"}, media_type="text/event-stream"),
            },
        },
        "/v1/head": {
            "get": {
                "x-right": "read",
                "summary": "The position of the last event; with wait_s, as soon as it is above `after`.",
                "parameters": [
                    _parameter("after", "Wait for a head above this position.", POSITION),
                    _parameter("wait_s", "Seconds to wait at most.", {"type": "number", "minimum": 0}),
                ],
                "responses": _answers("The head, with an ETag.", _HEAD),
            }
        },
        "/v1/checkpoints/{name}": {
            "get": {
                "x-right": "read",
                "summary": "Where a checkpoint is; an append moves it.",
                "parameters": [_parameter("name", "Its name.", {"type": "string"}, where="path", required=True)],
                "responses": _answers("Its position; 0 if it was never set.", _ANY),
            }
        },
        "/v1/recorded": {
            "get": {
                "x-right": "read",
                "summary": "What appends were conditional on, in stores that record it.",
                "parameters": [*_RANGE, _parameter("limit", "At most this many.", {"type": "integer", "minimum": 1})],
                "responses": _answers("Recorded appends.", _ANY),
            }
        },
        "/v1/restore": {
            "post": {
                "x-right": "admin",
                "summary": "Take over another store's events with their positions. Needs the right `admin`.",
                "description": own,
                "requestBody": {"required": True, "content": {"application/vnd.fencepost+msgpack": {"schema": binary}}},
                "responses": _answers("The new head.", _HEAD),
            }
        },
        "/v1/verify": {
            "post": {
                "summary": "Check the whole store: lines of JSON that say how far the check is, then the result.",
                "description": "Needs the right `admin` and a key without a scope. One check runs at a time. The last "
                "line has `sound`, the counts and `problems`, or `error` if the check could not be finished.",
                "x-right": "admin",
                "responses": _answers("Lines.", _ANY, media_type="application/x-ndjson"),
            }
        },
        **_consumer_paths(),
        "/healthz": {"get": {"summary": "Whether the process is alive.", "responses": _answers("Alive.", _ANY)}},
        "/readyz": {"get": {"summary": "Whether the store answers.", "responses": _answers("Ready.", _ANY)}},
        "/metrics": {
            "get": {
                "summary": "Metrics for Prometheus.",
                "description": "Needs a key without a scope, if there are keys, unless `metrics_port` is set.",
                "responses": _answers("Metrics.", {"type": "string"}, media_type="text/plain"),
            }
        },
    }


@cache
def description() -> dict[str, Any]:
    """The whole document."""
    kinds = (documents.AppendDocument, documents.ReadDocument, documents.PlacedDocument, documents.SequencedDocument)
    commands = (
        consumers.CommandDocument,
        consumers.PauseDocument,
        consumers.StepDocument,
        consumers.ResetDocument,
        consumers.RepartitionDocument,
        consumers.LettersDocument,
    )
    _, schemas = msgspec.json.schema_components(
        (*kinds, *commands, ConsumerStatus, DeadLetter, problems.Problem),
        schema_hook=lambda kind: {"description": "Any JSON value."} if kind is msgspec.Raw else {},
        ref_template="#/components/schemas/{name}",
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fencepost",
            "version": VERSION,
            "description": "An event store with Dynamic Consistency Boundaries. Errors are problem+json with a stable "
            "`type`; `retryable` says whether the same request may succeed later.",
        },
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
        "security": [{"key": []}],
    }
