"""How a class gets from the driver to the workers: by name.

Events and projections hold compiled codecs, which do not travel, so a class is imported again
where it is needed. A worker does not look for modules in the same places as the driver's script;
the driver's places go along and are looked at last, which finds the modules of a script on one
machine and does no harm on a cluster.
"""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ..decisions import DefinitionError, Projection

MAIN = "__main__"


@dataclass(frozen=True)
class Shipped:
    """A projection class, as a value that any process can make the class from."""

    module: str
    name: str
    script: str | None  # the file of the driver's main program, if the class is defined there
    places: tuple[str, ...]

    def load(self) -> type[Projection]:
        return _loaded(self)


def shipped(projection: type[Projection]) -> Shipped:
    """Refused for a class that no other process could import."""
    if not (isinstance(projection, type) and issubclass(projection, Projection)):
        raise DefinitionError(f"a projection class is needed, not {projection!r:.80}")
    module, script = projection.__module__, None
    if module == MAIN:
        main = sys.modules[MAIN]
        if getattr(main, "__spec__", None) is not None:
            module = main.__spec__.name  # type: ignore[union-attr]
        elif Path(getattr(main, "__file__", None) or "-").is_file():
            script = str(Path(main.__file__ or "").absolute())
        else:
            raise DefinitionError(
                f"{projection.__qualname__} is defined in a notebook or at a prompt, where Spark's workers cannot "
                "import it; put it into a module, with its events"
            )
    if "<locals>" in projection.__qualname__:
        raise DefinitionError(
            f"{projection.__qualname__} is defined inside of a function, where Spark's workers cannot import it; "
            "move it to the top of its module"
        )
    return Shipped(module, projection.__qualname__, script, tuple(str(Path(place).absolute()) for place in sys.path))


@cache
def _loaded(given: Shipped) -> type[Projection]:
    sys.path += [place for place in given.places if place not in sys.path]
    if given.script is not None:
        # Under another name, so that what it does as a main program is not done again.
        found: Any = _Namespace(runpy.run_path(given.script, run_name="__fencepost_main__"))
    else:
        try:
            found = import_module(given.module)
        except ModuleNotFoundError as error:
            raise DefinitionError(
                f"a worker cannot import {given.module} ({error}); ship it with --py-files or install it there"
            ) from None
    for part in given.name.split("."):
        found = getattr(found, part)
    assert isinstance(found, type)
    assert issubclass(found, Projection)
    return found


class _Namespace:
    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__.update(names)
