"""`/read` and `/append` as the test suite of dcb.events expects them; with the setting `dcb_adapter` only.

`data` is a string there, and a failed condition is a success that says so. A query without items matches every event,
and `from` is inclusive. Callers need the same API keys as for the rest of the interface, and their scopes hold.
tests/server/test_dcb_adapter.py re-creates the three scenarios of that suite.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec

from .. import AppendCondition, Event, Placed, Query, QueryItem
from ..engine import Append
from ..errors import ConditionFailed, InvalidInput
from .access import Access, Right
from .admission import Admission
from .request import Answer, Request, answer_json, answer_problem
from .wire.documents import naming, parsed
from .wire.problems import problem_of


class Item(msgspec.Struct):
    types: list[str] = []
    tags: list[str] = []


class Items(msgspec.Struct):
    items: list[Item] = []


class Options(msgspec.Struct):
    from_: int | None = msgspec.field(default=None, name="from")
    limit: int | None = None
    backwards: bool = False


class Given(msgspec.Struct):
    type: str
    data: str = ""
    tags: list[str] = []


class Condition(msgspec.Struct, rename="camel"):
    fail_if_events_match: Items
    after: int | None = None


class Body(msgspec.Struct):
    events: list[Given]
    condition: Condition | None = None


@dataclass
class DcbAdapter:
    _admission: Admission

    async def read(self, request: Request, access: Access) -> Answer:
        access.check(Right.READ)
        query = access.scope.narrowed(query_from(_parameter(request, "query", Items)))
        options = _parameter(request, "options", Options)
        start = options.from_ or 0
        after, up_to = (0, start or None) if options.backwards else (max(start - 1, 0), None)
        found: list[dict[str, Any]] = []
        if query is not None:
            async for event in self._admission.store.read(
                query, after=after, up_to=up_to, limit=options.limit, backwards=options.backwards
            ):
                text = event.data.decode(errors="replace")
                found.append({"type": event.type, "tags": sorted(event.tags), "data": text, "position": event.position})
        return answer_json(found)

    async def append(self, request: Request, access: Access) -> Answer:
        access.check(Right.APPEND)
        body = parsed(await request.body(), Body)
        events = []
        for index, each in enumerate(body.events):
            with naming(f"events[{index}]"):
                events.append(Event(each.type, data=each.data.encode(), tags=each.tags))
        conditions = []
        if body.condition is not None:
            with naming("condition"):
                query = query_from(body.condition.fail_if_events_match)
                conditions.append(AppendCondition(query, after=body.condition.after or 0))
        began = perf_counter()
        outcome = await self._admission.place(access, Append(tuple(events), tuple(conditions)))
        if not isinstance(outcome, Placed | ConditionFailed):
            return answer_problem(problem_of(outcome))
        duration = round(1_000_000 * (perf_counter() - began))
        failed = isinstance(outcome, ConditionFailed)
        return answer_json({"durationInMicroseconds": duration, "appendConditionFailed": failed})


def query_from(given: Items) -> Query:
    if any(not item.types and not item.tags for item in given.items) or not given.items:
        return Query.all()
    return Query([QueryItem(types=item.types, tags=item.tags) for item in given.items])


def _parameter(request: Request, name: str, kind: Any) -> Any:
    texts = request.query.get(name)
    if not texts:
        return kind()
    try:
        return msgspec.json.decode(texts[0], type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidInput(name, f"not valid: {error}") from None
    except RecursionError:
        raise InvalidInput(name, "nested too deeply to be decoded") from None
