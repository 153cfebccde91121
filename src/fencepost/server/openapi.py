"""The description of the HTTP interface as OpenAPI 3.1.

Schemas come from the structures that the server really decodes and encodes (`fencepost.wire`), so they cannot differ
from it. Each operation names the right that it needs in `x-right`. tests/server/test_openapi.py holds that every path
of the server is described, that the examples work, and that a key without the right is refused.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final

import msgspec

from ..consumers import ConsumerStatus, DeadLetter
from ..wire import documents, problems, rows
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


def _operation(verb: str, right: str | None, summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A path with one operation. `right` is what its API key needs, if a right alone decides."""
    needed = {} if right is None else {"x-right": right}
    return {verb: {"summary": summary, **needed, **more, "responses": responses}}


_get: Final = partial(_operation, "get")
_post: Final = partial(_operation, "post")


def _consumer_paths() -> dict[str, Any]:
    """The paths about consumers: what is asked with GET needs the right `read`, a command the right `admin`."""
    name = _parameter("name", "The name of the consumer.", {"type": "string"}, where="path", required=True)
    position = _parameter("position", "The position of the event.", POSITION, where="path", required=True)
    letter = {"$ref": "#/components/schemas/DeadLetter"}
    state = {"$ref": "#/components/schemas/ConsumerStatus"}

    def asked(summary: str, schema: dict[str, Any], *parameters: Any) -> dict[str, Any]:
        responses = _answers("What was found.", schema, *((404, 409) if parameters else ()))
        return _get("read", summary, responses, parameters=list(parameters))

    def command(summary: str, kind: type, answer: dict[str, Any], **example: Any) -> dict[str, Any]:
        return _post(
            "admin",
            summary,
            _answers(
                "Recorded.", {"type": "object", "properties": {"consumer": {"type": "string"}, **answer}}, 404, 409
            ),
            description="Recorded in the store with the name of the API key, the time, and `by`.",
            parameters=[name],
            requestBody={**_body(kind.__name__, {**example, "by": "ada"}), "required": False},
        )

    changed = {"changed": {"type": "boolean", "description": "Whether this changed anything."}}
    count = {"type": "integer", "description": "How many dead letters."}
    one, letters = "/v1/consumers/{name}", "/v1/consumers/{name}/dead-letters"
    again = "Handle events again: those after a position, or those recorded since a time."
    replayed, dropped = "Have the consumer handle dead letters again.", "Drop dead letters without handling them."
    return {
        "/v1/consumers": asked("The status of every consumer.", _list_of("consumers", state)),
        one: asked("The status of one consumer: position, lag, lease, errors.", state, name),
        f"{one}/pause": command(
            "Pause after the batch that is being handled.", consumers.PauseDocument, changed, reason="maintenance"
        ),
        f"{one}/resume": command("Go on after a pause, or after a failure.", consumers.CommandDocument, changed),
        f"{one}/step": command("Have a paused consumer handle one event.", consumers.StepDocument, changed),
        f"{one}/repartition": command(
            "Split its events in another way.", consumers.RepartitionDocument, changed, partitions=1
        ),
        f"{one}/reset": command(again, consumers.ResetDocument, {"position": POSITION}, position=0),
        letters: asked("The events that the consumer has set aside.", _list_of("dead_letters", letter), name),
        f"{letters}/{{position}}": asked("A dead letter, with its event.", letter, name, position),
        f"{letters}/replay": command(replayed, consumers.LettersDocument, {"requested": count}, all=True),
        f"{letters}/discard": command(dropped, consumers.LettersDocument, {"discarded": count}, all=True),
    }


def _list_of(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": schema}}}


def _paths() -> dict[str, Any]:
    binary = {"type": "string", "format": "binary"}
    own = {
        "description": "The form of Fencepost's own client; see docs/reference/http.md.",
        "requestBody": {"required": True, "content": {rows.MEDIA_TYPE: {"schema": binary}}},
    }
    page = _answers("A page of events.", _EVENTS)
    stream = _answers("A stream without end.", {"type": "string"}, media_type="text/event-stream")
    return {
        "/v1/append": _post(
            "append",
            "Store events, all or none, if no condition fails.",
            _answers("Where the events are.", {"$ref": "#/components/schemas/PlacedDocument"}, 409),
            description="`already: true` says that the events, or an event that matches `unless`, are stored "
            "already. With event ids, the same request can be sent again: it is stored once.",
            requestBody=_body("AppendDocument", EXAMPLE_APPEND),
        ),
        "/v1/appends": _post(
            "append",
            "Several appends, each stored or refused on its own.",
            _answers("An outcome for each.", binary, media_type=rows.MEDIA_TYPE),
            **own,
        ),
        "/v1/events": _get(
            "read",
            "Read events; with `Accept: application/x-ndjson`, all of them as a stream.",
            page,
            parameters=_READ,
        ),
        "/v1/read": _post(
            "read",
            "As /v1/events, with the query in the body.",
            page,
            requestBody=_body("ReadDocument", {"query": EXAMPLE_QUERY, "after": 0, "limit": 100}),
        ),
        "/v1/subscribe": _get(
            "read",
            "The events after a position, then each new one: server-sent events, or NDJSON.",
            stream,
            parameters=[
                *_READ[:3],
                _RANGE[0],
                _parameter("Last-Event-ID", "Go on after this position.", POSITION, where="header"),
            ],
        )
        | _post(
            "read",
            "The same, with the query in the body.",
            stream,
            requestBody=_body("ReadDocument", {"query": EXAMPLE_QUERY, "after": 0}),
        ),
        "/v1/head": _get(
            "read",
            "The position of the last event; with wait_s, as soon as it is above `after`.",
            _answers("The head, with an ETag.", _HEAD),
            parameters=[
                _parameter("after", "Wait for a head above this position.", POSITION),
                _parameter("wait_s", "Seconds to wait at most.", {"type": "number", "minimum": 0}),
            ],
        ),
        "/v1/checkpoints/{name}": _get(
            "read",
            "Where a checkpoint is; an append moves it.",
            _answers("Its position; 0 if it was never set.", _ANY),
            parameters=[_parameter("name", "Its name.", {"type": "string"}, where="path", required=True)],
        ),
        "/v1/recorded": _get(
            "read",
            "What appends were conditional on, in stores that record it.",
            _answers("Recorded appends.", _ANY),
            parameters=[*_RANGE, _parameter("limit", "At most this many.", {"type": "integer", "minimum": 1})],
        ),
        "/v1/restore": _post(
            "admin",
            "Take over another store's events with their positions. Needs the right `admin`.",
            _answers("The new head.", _HEAD),
            **own,
        ),
        "/v1/verify": _post(
            "admin",
            "Check the whole store: lines of JSON that say how far the check is, then the result.",
            _answers("Lines.", _ANY, media_type="application/x-ndjson"),
            description="Needs the right `admin` and a key without a scope. One check runs at a time. The last "
            "line has `sound`, the counts and `problems`, or `error` if the check could not be finished.",
        ),
        **_consumer_paths(),
        "/healthz": _get(None, "Whether the process is alive.", _answers("Alive.", _ANY)),
        "/readyz": _get(None, "Whether the store answers.", _answers("Ready.", _ANY)),
        "/metrics": _get(
            None,
            "Metrics for Prometheus.",
            _answers("Metrics.", {"type": "string"}, media_type="text/plain"),
            description="Needs a key without a scope, if there are keys, unless `metrics_port` is set.",
        ),
    }


@cache
def description() -> dict[str, Any]:
    """The whole document."""
    kinds = (documents.AppendDocument, documents.ReadDocument, documents.PlacedDocument, documents.SequencedDocument)
    _, schemas = msgspec.json.schema_components(
        (
            *kinds,
            *dict.fromkeys(kind for kind, _ in consumers.COMMANDS.values()),
            ConsumerStatus,
            DeadLetter,
            problems.Problem,
        ),
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
