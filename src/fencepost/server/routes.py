"""Which route a path leads to.

A template may have places such as `{name}`, which stand for one percent-encoded segment of a path, or for the rest of
the path if the template ends with `{name...}`. Paths without places are found by lookup, the others in the order of
the templates. The name of a route is its template, so labels of metrics never hold what a client has invented.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from .access import Access
from .request import Answer, Request, Stream

Handler: TypeAlias = Callable[[Request, Access], Awaitable[Answer | Stream]]

PLACE: Final = re.compile(r"\\\{(\w+)(\\\.\\\.\\\.)?\\\}")  # as `re.escape` writes it


class Route(NamedTuple):
    name: str  # of its metrics
    methods: dict[str, Handler]
    public: bool = False  # answered without an API key


class Router:
    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._exact = {template: route for template, route in routes.items() if "{" not in template}
        self._patterns = [(pattern_of(template), route) for template, route in routes.items() if "{" in template]

    def find(self, request: Request) -> Route | None:
        """The route of the request's path; what stands in the places of its template goes into `request.places`."""
        route = self._exact.get(request.path)
        if route is None:
            # The raw path, because an encoded slash is part of a name.
            raw = request.raw_path.decode("latin-1").partition("?")[0]
            for pattern, candidate in self._patterns:
                if found := pattern.fullmatch(raw):
                    request.places = {name: unquote(text, errors="replace") for name, text in found.groupdict().items()}
                    return candidate
        return route


def pattern_of(template: str) -> re.Pattern[str]:
    """
    >>> pattern_of("/v1/consumers/{name}/pause").fullmatch("/v1/consumers/a%2Fb/pause")["name"]
    'a%2Fb'
    """

    def group(place: re.Match[str]) -> str:
        return f"(?P<{place[1]}>{'.+' if place[2] else '[^/]+'})"

    return re.compile(PLACE.sub(group, re.escape(template)), re.DOTALL)
