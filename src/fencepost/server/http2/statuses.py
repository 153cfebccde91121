"""The statuses of gRPC that this server gives, and deadlines in the form of gRPC."""

from __future__ import annotations

import re
from typing import Final

OK: Final = 0
CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16

NAMES: Final = {number: name for name, number in globals().items() if isinstance(number, int)}

UNITS_S: Final = {"H": 3_600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")


class Failure(Exception):
    """A call ends with this status."""

    def __init__(self, status: int, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.details = details


def timeout_s(text: str) -> float | None:
    """The header `grpc-timeout` in seconds; None if it has no valid form.

    >>> timeout_s("250m"), timeout_s("soon")
    (0.25, None)
    """
    found = _TIMEOUT.fullmatch(text)
    return None if found is None else int(found[1]) * UNITS_S[found[2]]
