"""Routes that FastAPI documents and that are answered as it would, in a fraction of the time.

FastAPI and Starlette make ready for dependencies, forms, files, middleware and telemetry with each request, which takes
longer than to decide about a wallet. These routes have parameters of the path and the query and a JSON body, and
nothing else: the service finds the route itself, pydantic checks what was given, the body in one go from its bytes, and
the handlers of errors that were installed with FastAPI answer what goes wrong. Everything else is left to FastAPI.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from fencepost import InvalidInput

from .requests import body_of

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Service(FastAPI):
    """An application that answers its direct routes by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = self._handler(scope) if scope["type"] == "http" else None
        if handle is None:
            await super().__call__(scope, receive, send)
            return
        assert not self.user_middleware, "a direct route is not wrapped by any"
        scope["app"] = self
        request = Request(scope, receive)
        try:
            response = await handle(request)
        except Exception as error:
            answer = self._answer_to(error)
            if answer is None:
                await PlainTextResponse("Internal Server Error", 500)(scope, receive, send)
                raise  # for the server's log
            response = await answer(request, error)
        await response(scope, receive, send)

    def _handler(self, scope: Scope) -> Handler | None:
        """The handler of the direct route that matches; stores the path's parameters in the scope."""
        for route in self.routes:
            if isinstance(route, DirectRoute) and route.methods and scope["method"] in route.methods:
                match = route.path_regex.match(scope["path"])
                if match is not None:
                    scope["path_params"] = match.groupdict()
                    return route.direct
        return None

    def _answer_to(self, error: Exception) -> Callable[[Request, Any], Awaitable[Response]] | None:
        handlers: Any = self.exception_handlers
        answers = (handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        return next(answers, None)


class DirectRoute(APIRoute):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.direct = handler(self.endpoint, set(self.param_convertors))


def handler(endpoint: Callable[..., Awaitable[Response]], in_path: set[str]) -> Handler:
    """The endpoint as a function of the request alone."""
    hints = get_type_hints(endpoint, include_extras=True)
    parameters = {name: each for name, each in inspect.signature(endpoint).parameters.items() if name != "request"}
    bodies = {name: hints[name] for name in parameters if _is_model(hints[name])}
    assert len(bodies) <= 1, f"{endpoint.__name__} has more than one body"
    path = {name: TypeAdapter(hints[name]) for name in parameters if name in in_path}
    query = {
        name: (TypeAdapter(hints[name]), each.default)
        for name, each in parameters.items()
        if name not in path and name not in bodies
    }

    async def handle(request: Request) -> Response:
        values: dict[str, Any] = {}
        errors: list[Any] = []
        for name, adapter in path.items():
            _check(values, errors, "path", name, adapter.validate_python, request.path_params[name])
        if query:
            given = request.query_params if request.scope["query_string"] else {}
            for name, (adapter, default) in query.items():
                values[name] = default
                if name in given:
                    _check(values, errors, "query", name, adapter.validate_python, given[name])
        for name, model in bodies.items():
            _check_content_type(request)
            _check(values, errors, "body", name, model.model_validate_json, await body_of(request))
        if errors:
            raise RequestValidationError(errors)
        return await endpoint(request, **values)

    return handle


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _check(
    values: dict[str, Any], errors: list[Any], place: str, name: str, validate: Callable[[Any], Any], given: Any
) -> None:
    try:
        values[name] = validate(given)
    except ValidationError as error:
        # pydantic names the place within a body; other parameters are named here.
        where = (place,) if place == "body" else (place, name)
        errors.extend({**each, "loc": (*where, *each["loc"])} for each in error.errors(include_url=False))


def _check_content_type(request: Request) -> None:
    """Require JSON: without CORS, a page of another site cannot send this content type."""
    given = request.headers.get("content-type", "")
    if given != "application/json":
        kind = given.partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise InvalidInput("Content-Type", f"application/json is needed, not {given!r:.80}")
