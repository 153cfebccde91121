"""Classes of events and projections, imported by name in the workers.

Events and projections hold compiled codecs, which cannot be pickled. So a worker imports the class again. A worker
does not search for modules where the driver's script does; the driver's search path is therefore sent along and
searched last. That finds the modules of a script on one machine, and changes nothing on a cluster.
"""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...decisions import DefinitionError

MAIN = "__main__"


@dataclass(frozen=True)
class Shipped:
    """A class as a value that any process can load the class from."""

    module: str
    name: str
    script: str | None  # the file of the driver's main program, if the class is defined there
    places: tuple[str, ...]

    def load(self) -> Any:
        return _loaded(self)


def shipped(cls: type) -> Shipped:
    """The class as a value; raises `DefinitionError` for a class that no other process could import."""
    module, script = cls.__module__, None
    if module == MAIN:
        main = sys.modules[MAIN]
        if getattr(main, "__spec__", None) is not None:
            module = main.__spec__.name  # type: ignore[union-attr]
        elif Path(getattr(main, "__file__", None) or "-").is_file():
            script = str(Path(main.__file__ or "").absolute())
        else:
            raise DefinitionError(
                f"{cls.__qualname__} is defined in a notebook or at a prompt, where Spark's workers cannot "
                "import it; put it into a module, with its events"
            )
    if "<locals>" in cls.__qualname__:
        raise DefinitionError(
            f"{cls.__qualname__} is defined inside a function, where Spark's workers cannot import it; "
            "move it to the top of its module"
        )
    return Shipped(module, cls.__qualname__, script, tuple(str(Path(place).absolute()) for place in sys.path))


@cache
def _loaded(given: Shipped) -> Any:
    sys.path += [place for place in given.places if place not in sys.path]
    if given.script is not None:
        # Under another name, so that its `if __name__ == "__main__":` block does not run again.
        found: Any = SimpleNamespace(**runpy.run_path(given.script, run_name="__fencepost_main__"))
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
    return found
