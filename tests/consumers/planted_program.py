"""The process of `program`, with a bug planted into it. The bug is the first argument after where to report.

`checkpoint-before-effect` commits the checkpoint of a batch in a transaction of its own, before the handlers run.
`no-fencing` moves the checkpoint whatever token the row has. `sound` plants nothing, and shows that the test itself
does not fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tests.consumers import program

from fencepost import SequencedEvent
from fencepost.consumers.sql import SqlTarget
from fencepost.consumers.worker import Worker


def checkpoint_before_effect() -> None:
    together = Worker._together

    def planted(self: Worker, events: Sequence[SequencedEvent], up_to: int) -> int:
        with self.target.transaction() as transaction:
            self.target.save(transaction, up_to)
        self.saved = up_to
        return together(self, events, up_to)

    Worker._together = planted  # type: ignore[method-assign]


def no_fencing() -> None:
    def save(self: SqlTarget, transaction: Any, position: int) -> None:
        statement = "UPDATE fencepost_consumer SET position = %s WHERE name = %s"
        self.run(transaction, statement, (position, self._lease.name))

    SqlTarget.save = save  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "checkpoint-before-effect": checkpoint_before_effect,
    "no-fencing": no_fencing,
    "sound": lambda: None,
}


if __name__ == "__main__":
    BUGS[sys.argv[2]]()
    program.main(sys.argv[1], *sys.argv[3:])
